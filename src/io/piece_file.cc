#include "io/piece_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "bitwright/error.h"

namespace bw::io {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr const char* kAdvice = "remove the file, or run with --restart";

[[noreturn]] void too_short(const FileMap& map) {
  throw Error(ErrorCode::kModel, fmt::format("{}: it ends too early", map.path().string()), kAdvice);
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
  dir_.announce_seal(name_, key, file_.size(), hasher_.hex());
  file_.commit();
  dir_.accept_seal(name_);
}

PieceReader::PieceReader(const PieceDir& dir, std::string_view name) : map_(dir.file(name)) {
  uint64_t size = 0;
  read_values(std::span(&size, 1));
  const std::span<const std::byte> text = take(size);
  header_ = parse_json({reinterpret_cast<const char*>(text.data()), text.size()}, map_.path().string());
}

size_t PieceReader::number(const char* key, size_t most) const {
  const auto it = header_.is_object() ? header_.find(key) : header_.end();
  if (it == header_.end() || !it->is_number_unsigned() || it->get<uint64_t>() > most) {
    throw Error(ErrorCode::kModel,
                fmt::format("{}: '{}' of its header is not a whole number up to {}", map_.path().string(), key, most),
                kAdvice);
  }
  return it->get<size_t>();
}

std::span<const std::byte> PieceReader::take(size_t bytes) {
  if (bytes > left()) too_short(map_);
  const std::span<const std::byte> taken = map_.bytes().subspan(at_, bytes);
  at_ += bytes;
  return taken;
}

bool read_piece(const PieceDir& dir, std::string_view name, const std::function<bool(PieceReader& piece)>& read) {
  try {
    PieceReader piece(dir, name);
    return read(piece);
  } catch (const Json::exception&) {
    return false;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kModel) throw;
    return false;
  }
}

}  // namespace bw::io
