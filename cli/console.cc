#include "console.h"

#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "bitwright/units.h"

namespace bw::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kLeastPause = 0.1;     // between two drawings, or two objects
constexpr double kLongestSilence = 60;  // between two plain lines, if there is news
constexpr std::chrono::milliseconds kTick(250);

void tell(const std::string& text) { static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr)); }

void tell_object(const Json& object) { tell(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"); }

}  // namespace

uint64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  unsigned long long all = 0, resident = 0;
  const bool read = std::fscanf(file, "%llu %llu", &all, &resident) == 2;
  std::fclose(file);
  return read ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

Console& Console::get() {
  static Console console;
  return console;
}

Console::~Console() {
  ticker_.reset();  // before what it uses
  clear();
}

double Console::now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

void Console::show(const ProgressEvent& event) {
  const bool warning = event.kind == ProgressEvent::Kind::kWarning;
  if (options_.quiet && !warning) return;
  const std::lock_guard lock(mutex_);
  if (event.kind == ProgressEvent::Kind::kProgress) return show_progress(event);
  if (options_.json)
    return tell_object({{"event", warning ? "warning" : "note"}, {"stage", event.stage}, {"text", event.text}});
  clear();
  tell(fmt::format("{}{}: {}\n", warning ? coloured("warning:", Colour::kYellow, look_) + " " : "", event.stage,
                   event.text));
  if (look_.live && !stage_.empty()) draw();
}

void Console::ask(std::string_view text) {
  const std::lock_guard lock(mutex_);
  std::fflush(stdout);  // it stands after what was written before
  clear();
  tell(std::string(text));
}

void Console::show_progress(const ProgressEvent& event) {
  const bool first = event.stage != stage_ || event.done < meter_.done();
  if (first) begin_stage(event);
  if (options_.verbose && event.text != text_) say_step();
  if (event.text != text_) step_began_ = now();
  text_ = event.text;
  unit_ = event.unit;
  meter_.update(event.done, event.total, now());
  const bool due = first || meter_.finished() || now() - said_at_ >= kLeastPause;
  if (options_.json) {
    if (due) show_json(first);
  } else if (look_.live) {
    if (due && !meter_.finished()) draw();
  } else {
    const Progress p = progress();
    const int percent = p.total > 0 ? static_cast<int>(100 * p.done / p.total) : 0;
    if (percent >= next_percent_ || now() - said_at_ >= kLongestSilence) {
      next_percent_ = percent / 10 * 10 + 10;
      said_at_ = now();
      tell(plain_line(p) + "\n");
    }
  }
  if (meter_.finished()) end_stage();
}

void Console::begin_stage(const ProgressEvent& event) {
  clear();
  stage_ = event.stage;
  text_.clear();
  meter_ = {};
  next_percent_ = 0;
  step_began_ = said_at_ = now();
  if (look_.live && !options_.json && !ticker_) {
    ticker_.emplace([this](const std::stop_token& stop) { tick(stop); });
  }
}

// A finished stage leaves a line on the terminal.
void Console::end_stage() {
  if (look_.live && !options_.json) {
    clear();
    const std::string time = "done in " + duration(meter_.elapsed(now()));
    tell(cut(fmt::format("{:<16}  {}  {}", shown(stage_, look_), time, format_bytes(resident_bytes())),
             columns_of(STDERR_FILENO) - 1) +
         "\n");
  }
  stage_.clear();
  meter_ = {};
}

void Console::say_step() {
  if (text_.empty() || options_.json) return;
  clear();
  tell(fmt::format("{}: {} took {:.1f} s\n", stage_, text_, now() - step_began_));
}

Progress Console::progress() const {
  const double t = now();
  return {stage_, text_, unit_, meter_.done(), meter_.total(), meter_.rate(t), meter_.eta(t), resident_bytes()};
}

void Console::show_json(bool first) {
  const Progress p = progress();
  said_at_ = now();
  Json object = {{"event", "progress"}, {"stage", p.stage}, {"done", p.done}, {"total", p.total}};
  if (!p.unit.empty()) object["unit"] = p.unit;
  if (!p.text.empty()) object["text"] = p.text;
  object["elapsed_s"] = first ? 0 : meter_.elapsed(said_at_);
  object["rate"] = p.rate > 0 ? Json(p.rate) : Json();
  object["eta_s"] = p.eta ? Json(*p.eta) : Json();
  object["rss_bytes"] = p.rss_bytes;
  tell_object(object);
}

// The last column stays free: some terminals go on to the next line when it is written to.
void Console::draw() {
  said_at_ = now();
  const size_t columns = columns_of(STDERR_FILENO);
  tell("\r" + progress_line(progress(), columns - 1, look_) + "\x1b[K");
  std::fflush(stderr);
  line_open_ = true;
}

void Console::clear() {
  if (line_open_) tell("\r\x1b[K");
  line_open_ = false;
}

void Console::tick(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, kTick, [] { return false; });
    if (!stop.stop_requested() && !stage_.empty() && now() - said_at_ >= kLeastPause) draw();
  }
}

void Console::last_line(std::string_view text, int status) {
  const std::lock_guard lock(mutex_);
  std::fflush(stdout);  // it stands last, also where both streams go to one place
  clear();
  stage_.clear();
  const std::string_view word = status == 0 ? "done: " : "error: ";
  const bool marked = text.starts_with(word);
  if (marked) text.remove_prefix(word.size());
  if (options_.json) {
    return tell_object({{"event", status == 0 ? "result" : "error"}, {"status", status}, {"text", text}});
  }
  const std::string mark = marked ? coloured(word, status == 0 ? Colour::kGreen : Colour::kRed, look_) : std::string();
  tell(mark + std::string(text) + "\n");
}

}  // namespace bw::cli
