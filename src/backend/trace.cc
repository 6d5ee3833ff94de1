#include "backend/trace.h"

#include <algorithm>

#include <fmt/format.h>

namespace bw::backend {
namespace {

// Names are ours (operations, stages, tensors of a model): control characters are left out, quotes escaped.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) continue;
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// Tracks from top to bottom, so that a wait stands above the queue that it waits for.
size_t place_of(std::string_view track) {
  constexpr std::string_view kOrder[] = {"stages", "layers", "waits", "cpu", "upload", "compute", "download"};
  return static_cast<size_t>(std::find(std::begin(kOrder), std::end(kOrder), track) - std::begin(kOrder));
}

}  // namespace

int64_t Trace::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_).count();
}

void Trace::add(Span span) {
  const std::lock_guard lock(mutex_);
  spans_.push_back(std::move(span));
}

std::vector<Span> Trace::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_;
}

std::string Trace::chrome_json() const {
  const std::vector<Span> all = spans();
  std::vector<std::string_view> tracks;
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  std::string events;
  for (const Span& s : all) {
    auto at = std::find(tracks.begin(), tracks.end(), s.track);
    const auto id = at - tracks.begin();
    if (at == tracks.end()) tracks.push_back(s.track);
    events += fmt::format(",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":{},\"ts\":{:.3f},\"dur\":{:.3f}", id,
                          quoted(s.name), static_cast<double>(s.begin_ns) / 1e3,
                          static_cast<double>(s.end_ns - s.begin_ns) / 1e3);
    if (s.bytes != 0) events += fmt::format(",\"args\":{{\"bytes\":{}}}", s.bytes);
    if (s.flops > 0) events += fmt::format(",\"args\":{{\"flops\":{:.0f}}}", s.flops);
    events += '}';
  }
  out += "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"bitwright\"}}";
  for (size_t i = 0; i < tracks.size(); ++i) {
    out += fmt::format(",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{0},\"name\":\"thread_name\",\"args\":{{\"name\":{1}}}}}",
                       i, quoted(tracks[i]));
    out += fmt::format(
        ",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{}}}}}", i,
        place_of(tracks[i]));
  }
  return out + events + "\n]}\n";
}

}  // namespace bw::backend
