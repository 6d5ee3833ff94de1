// The folder of a long job: finished pieces that outlive the program, however it ends.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/file_lock.h"

namespace bw::io {

// A directory of pieces. A piece is a file and its seal, a small file NAME.seal that was written after it: the key that
// the piece was made under (everything that its bytes depend on), its size and its hash. Without a seal that fits, a
// piece does not exist. So whatever moment the program is killed at, what is found later is whole or is made again.
class PieceDir {
 public:
  // Makes the directory if it is absent. Throws Error(kIo) if it cannot be made.
  explicit PieceDir(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  // Where a piece lies, or is to be written (whole: see AtomicFile). name: one component that ends with .piece or
  // .piece.safetensors; files of other names are never touched.
  std::filesystem::path file(std::string_view name) const;

  enum class State {
    kAbsent,
    kOther,    // made under another key
    kDamaged,  // not the bytes that were sealed
    kWhole,
  };
  // Reads the whole piece to see whether it is what was sealed.
  State check(std::string_view name, std::string_view key) const;
  // Of a piece that has been written; with size and hash (Hasher::hex) as whoever wrote it knows them, or read for
  // that.
  void seal(std::string_view name, std::string_view key, uint64_t bytes, std::string_view hash) const;
  void seal(std::string_view name, std::string_view key) const;
  // Removes the piece and its seal, the seal first; nothing happens if they are not there.
  void discard(std::string_view name) const;
  // Removes all pieces and what killed runs have left of unfinished ones.
  void clear() const;

 private:
  std::filesystem::path path_;
};

// The folder itself: pieces, and folders of pieces, under a marker that says it is ours and keeps other runs out.
class WorkDir : public PieceDir {
 public:
  // Makes the folder, or opens one that carries our marker. Throws Error(kUsage) if something else is in its place (a
  // file, a directory with files and without the marker), Error(kIo) if another run holds it or it cannot be made.
  explicit WorkDir(const std::filesystem::path& path);
  WorkDir(const WorkDir&) = delete;
  WorkDir& operator=(const WorkDir&) = delete;

  // Whether there is any piece, in folders too, besides the one of this name.
  bool holds_more_than(std::string_view name) const noexcept;
  PieceDir folder(std::string_view name) const { return PieceDir(path() / name); }
  // Removes all pieces, those in folders first; what is not ours stays.
  void clear() const;
  // The same and the folder, if nothing else is in it. What cannot be removed stays.
  void remove() noexcept;

 private:
  FileLock lock_;
};

}  // namespace bw::io
