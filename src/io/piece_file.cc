#include "io/piece_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "bitwright/error.h"

namespace bw::io {
namespace {

static_assert(std::endian::native == std::endian::little);

[[noreturn]] void too_short(const FileMap& map) {
  throw Error(ErrorCode::kModel, fmt::format("{}: it ends too early", map.path().string()),
              "remove the file, or run with --restart");
}

}  // namespace

PieceWriter::PieceWriter(const PieceDir& dir, std::string_view name, const Json& header)
    : dir_(dir), name_(name), file_(dir.file(name)) {
  const std::string text = header.dump();
  const uint64_t size = text.size();
  write(std::as_bytes(std::span(&size, 1)));
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void PieceWriter::seal(std::string_view key) {
  file_.commit();
  dir_.seal(name_, key, file_.size(), hasher_.hex());
}

PieceReader::PieceReader(const PieceDir& dir, std::string_view name) : map_(dir.file(name)) {
  uint64_t size = 0;
  read_values(std::span(&size, 1));
  const std::span<const std::byte> text = take(size);
  header_ = parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, map_.path().string());
}

std::span<const std::byte> PieceReader::take(size_t bytes) {
  if (bytes > map_.bytes().size() - at_) too_short(map_);
  const std::span<const std::byte> taken = map_.bytes().subspan(at_, bytes);
  at_ += bytes;
  return taken;
}

}  // namespace bw::io
