#include "io/work_dir.h"

#include <algorithm>
#include <span>
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
constexpr const char *kSeal = ".seal", *kNext = ".next";
constexpr std::string_view kPieces[] = {".piece", ".piece.safetensors"};
constexpr const char* kUnfinished = ".tmp-";  // see AtomicFile
constexpr uint64_t kMostSealBytes = 1 << 16;

fs::path seal_of(const fs::path& file) {
  fs::path seal = file;
  seal += kSeal;
  return seal;
}

fs::path next_seal_of(const fs::path& file) {
  fs::path seal = seal_of(file);
  seal += kNext;
  return seal;
}

bool is_piece(std::string_view name) {
  return std::any_of(std::begin(kPieces), std::end(kPieces), [&](auto end) { return name.ends_with(end); });
}

// Whether a name is one that this file gives out: of a piece, its seal, or one of these on its way.
bool is_ours(std::string name) {
  name.resize(std::min(name.size(), name.find(kUnfinished)));
  if (name.ends_with(kNext)) name.resize(name.size() - std::string_view(kNext).size());
  if (name.ends_with(kSeal)) name.resize(name.size() - std::string_view(kSeal).size());
  return is_piece(name);
}

std::string hash_of(const fs::path& file) {
  Hasher hasher;
  const FileMap map(file);
  hasher.update(map.bytes());
  return hasher.hex();
}

// Hash of what a seal says: one that was damaged must not pass for one of another key.
std::string check_of(const Json& seal) {
  Hasher hasher;
  for (const char* const part : {"key", "bytes", "xxh3"}) {
    const std::string text = seal.at(part).dump() + "\n";
    hasher.update(std::as_bytes(std::span(text)));
  }
  return hasher.hex();
}

std::string seal_text(std::string_view key, uint64_t bytes, std::string_view hash) {
  Json json = {{"key", key}, {"bytes", bytes}, {"xxh3", hash}};
  json["check"] = check_of(json);
  return json.dump() + "\n";
}

// What a seal says of a piece.
PieceDir::State state_by(const fs::path& seal, const fs::path& piece, std::string_view key) {
  using State = PieceDir::State;
  std::error_code error;
  if (!fs::is_regular_file(seal, error)) return State::kAbsent;
  try {
    const Json json = parse_json(read_file(seal, kMostSealBytes), seal.string());
    if (json.at("check") != check_of(json)) return State::kDamaged;
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

std::vector<std::string> PieceDir::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) {
    std::string name = entry.path().filename().string();
    if (is_piece(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool PieceDir::is_sealed(std::string_view name) const {
  std::error_code error;
  return fs::is_regular_file(seal_of(file(name)), error);
}

PieceDir::State PieceDir::check(std::string_view name, std::string_view key) const {
  const fs::path piece = file(name);
  const State state = state_by(seal_of(piece), piece, key);
  if (state == State::kWhole) return state;
  const bool replaced =
      state_by(next_seal_of(piece), piece, key) == State::kWhole;  // and killed before it was accepted
  return replaced ? State::kWhole : state;
}

void PieceDir::seal(std::string_view name, std::string_view key, uint64_t bytes, std::string_view hash) const {
  write_file(seal_of(file(name)), seal_text(key, bytes, hash));
}

void PieceDir::announce_seal(std::string_view name, std::string_view key, uint64_t bytes, std::string_view hash) const {
  write_file(next_seal_of(file(name)), seal_text(key, bytes, hash));
}

void PieceDir::accept_seal(std::string_view name) const {
  const fs::path seal = seal_of(file(name));
  std::error_code error;
  fs::rename(next_seal_of(file(name)), seal, error);
  if (error) throw Error(ErrorCode::kIo, fmt::format("{}: cannot be put in place: {}", seal.string(), error.message()));
  fsync_directory(path_);
}

void PieceDir::seal(std::string_view name, std::string_view key) const {
  const fs::path piece = file(name);
  seal(name, key, fs::file_size(piece), hash_of(piece));
}

void PieceDir::discard(std::string_view name) const {
  remove_file(next_seal_of(file(name)));
  remove_file(seal_of(file(name)));
  remove_file(file(name));
}

void PieceDir::clear(const Keep& keep) const {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (is_ours(name) && !(keep && keep(name))) found.push_back(entry.path());
  }
  // Seals first: a piece without one does not exist, a seal without its piece looks like damage.
  std::stable_partition(found.begin(), found.end(),
                        [](const fs::path& file) { return file.extension() == kSeal || file.extension() == kNext; });
  for (const fs::path& file : found) remove_file(file);
}

WorkDir::WorkDir(const fs::path& path) : PieceDir(ours(path)), lock_(path / kMarker) {}

bool is_work_dir(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path / kMarker, error);
}

std::vector<std::string> folder_names(const fs::path& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_directory() && !entry.is_symlink()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void WorkDir::clear(const Keep& keep) const {
  for (const std::string& name : folder_names()) {
    folder(name).clear();
    std::error_code not_empty;
    fs::remove(path() / name, not_empty);
  }
  PieceDir::clear(keep);
}

void WorkDir::remove() noexcept {
  try {
    clear();
    fs::remove(path() / kMarker);
    if (!fs::is_symlink(path())) fs::remove(path());
  } catch (...) {  // what is left stays; the next run with this folder finds it
  }
}

bool holds_other_pieces(const fs::path& work, std::initializer_list<std::string_view> begins) noexcept try {
  std::error_code error;
  for (fs::recursive_directory_iterator at(work, error), end; !error && at != end; at.increment(error)) {
    const std::string found = at->path().filename().string();
    const auto is_begin = [&](std::string_view begin) { return found.starts_with(begin); };
    if (is_piece(found) && std::none_of(begins.begin(), begins.end(), is_begin)) return true;
  }
  return false;
} catch (...) {
  return true;  // for want of memory it cannot be told: nothing may be lost for that
}

}  // namespace bw::io
