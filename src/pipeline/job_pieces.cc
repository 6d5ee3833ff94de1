#include "pipeline/job_pieces.h"

#include <algorithm>
#include <cstdlib>
#include <span>

#include <fmt/format.h>

#include "io/piece_file.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlaceKey = "place of the output";

}  // namespace

// What has been finished: the targets' keys and results by name, in one piece, so that all of it is known or nothing
// is. It stays until all else in the work folder is gone: with it, outputs are known to be ours and complete.
std::vector<std::string> finished_pieces(const io::PieceDir& dir) {
  std::vector<std::string> names = dir.names();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with(kFinishedPrefix); });
  return names;
}

// A piece and its seal cannot be replaced at once: the next one has another name, and the others go afterwards.
void keep_finished(const io::PieceDir& dir, const io::Json& finished) {
  const std::vector<std::string> before = finished_pieces(dir);
  size_t n = 0;
  if (!before.empty()) n = std::strtoul(before.back().c_str() + kFinishedPrefix.size(), nullptr, 10) + 1;
  io::PieceWriter(dir, fmt::format("{}{:05}.piece", kFinishedPrefix, n), finished).seal(kFinishedKey);
  for (const std::string& name : before) dir.discard(name);
}

io::Json finished_targets(const io::PieceDir& dir) {
  io::Json finished = io::Json::object();
  for (const std::string& name : finished_pieces(dir)) {
    if (!dir.is_sealed(name)) continue;
    io::read_piece(dir, name, [&](const io::PieceReader& piece) {
      if (piece.header().is_object()) finished.update(piece.header());
      return true;
    });
  }
  return finished;
}

std::optional<fs::path> kept_place(const io::PieceDir& folder) {
  if (folder.check(kPlacePiece, kPlaceKey) != io::PieceDir::State::kWhole) return std::nullopt;
  std::string path;
  const bool understood = io::read_piece(folder, kPlacePiece, [&](io::PieceReader& piece) {
    path.resize(piece.left());
    piece.read_values(std::span(path));
    return !path.empty();
  });
  return understood ? std::optional<fs::path>(path) : std::nullopt;
}

void keep_place(const io::PieceDir& folder, const fs::path& output) {
  const std::string path = fs::absolute(output).string();  // any bytes, so not in the header
  io::PieceWriter piece(folder, kPlacePiece, {});
  piece.write_values(std::span<const char>(path));
  piece.seal(kPlaceKey);
}

}  // namespace bw::pipeline
