#include "io/work_dir.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/hash.h"
#include "bitwright/error.h"
#include "io/file_map.h"
#include "io/file_write.h"
#include "io/json.h"

namespace bw::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = ".bitwright-work";
constexpr const char* kSeal = ".seal";
constexpr std::string_view kPieces[] = {".piece", ".piece.safetensors"};
constexpr const char* kUnfinished = ".tmp-";  // see AtomicFile
constexpr uint64_t kMostSealBytes = 1 << 16;

fs::path seal_of(const fs::path& file) {
  fs::path seal = file;
  seal += kSeal;
  return seal;
}

bool is_piece(std::string_view name) {
  return std::any_of(std::begin(kPieces), std::end(kPieces), [&](auto end) { return name.ends_with(end); });
}

// Whether a name is one that this file gives out: of a piece, its seal, or one of these on its way.
bool is_ours(std::string name) {
  name.resize(std::min(name.size(), name.find(kUnfinished)));
  if (name.ends_with(kSeal)) name.resize(name.size() - std::string_view(kSeal).size());
  return is_piece(name);
}

std::string hash_of(const fs::path& file) {
  Hasher hasher;
  const FileMap map(file);
  hasher.update(map.bytes());
  return hasher.hex();
}

// `path`, once nothing but a folder of ours can be there.
const fs::path& ours(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return path;
  if (!fs::is_directory(path, error)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it is no directory", path.string()), "choose another --work");
  }
  if (!fs::exists(path / kMarker, error) && !fs::is_empty(path, error)) {
    throw Error(ErrorCode::kUsage, fmt::format("{}: it exists and was not made by Bitwright", path.string()),
                "it is left as it is; choose another --work");
  }
  return path;
}

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  if (error) throw Error(ErrorCode::kIo, fmt::format("{}: cannot be removed: {}", file.string(), error.message()));
}

}  // namespace

PieceDir::PieceDir(const fs::path& path) : path_(path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw Error(ErrorCode::kIo, fmt::format("{}: cannot create the directory: {}", path.string(), error.message()));
  }
}

fs::path PieceDir::file(std::string_view name) const {
  BW_CHECK(is_piece(name));
  return path_ / name;
}

PieceDir::State PieceDir::check(std::string_view name, std::string_view key) const {
  const fs::path piece = file(name), seal = seal_of(piece);
  std::error_code error;
  if (!fs::is_regular_file(seal, error)) return State::kAbsent;
  try {
    const Json json = parse_json(read_file(seal, kMostSealBytes), seal.string());
    if (json.at("key").get<std::string>() != key) return State::kOther;
    // Compared as JSON: a number that is no size must not become one.
    const bool whole = json.at("bytes") == fs::file_size(piece) && json.at("xxh3") == hash_of(piece);
    return whole ? State::kWhole : State::kDamaged;
  } catch (const Json::exception&) {  // the seal itself is damaged
  } catch (const fs::filesystem_error&) {
  } catch (const Error&) {
  }
  return State::kDamaged;
}

void PieceDir::seal(std::string_view name, std::string_view key, uint64_t bytes, std::string_view hash) const {
  const Json json = {{"key", key}, {"bytes", bytes}, {"xxh3", hash}};
  write_file(seal_of(file(name)), json.dump() + "\n");
}

void PieceDir::seal(std::string_view name, std::string_view key) const {
  const fs::path piece = file(name);
  seal(name, key, fs::file_size(piece), hash_of(piece));
}

void PieceDir::discard(std::string_view name) const {
  remove_file(seal_of(file(name)));
  remove_file(file(name));
}

void PieceDir::clear() const {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (is_ours(entry.path().filename().string())) found.push_back(entry.path());
  }
  for (const fs::path& file : found) remove_file(file);
}

WorkDir::WorkDir(const fs::path& path) : PieceDir(ours(path)), lock_(path / kMarker) {}

bool WorkDir::holds_more_than(std::string_view name) const noexcept {
  std::error_code error;
  for (fs::recursive_directory_iterator at(path(), error), end; !error && at != end; at.increment(error)) {
    const std::string found = at->path().filename().string();
    if (found != name && is_piece(found)) return true;
  }
  return false;
}

void WorkDir::clear() const {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(path())) {
    if (entry.is_directory() && !entry.is_symlink()) folders.push_back(entry.path());
  }
  for (const fs::path& folder : folders) {
    PieceDir(folder).clear();
    std::error_code not_empty;
    fs::remove(folder, not_empty);
  }
  PieceDir::clear();
}

void WorkDir::remove() noexcept {
  std::error_code ignored;
  try {
    clear();
  } catch (...) {  // it stays; the next run with this folder finds it
  }
  fs::remove(path() / kMarker, ignored);
  fs::remove(path(), ignored);
}

}  // namespace bw::io
