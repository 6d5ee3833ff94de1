// The folder of a long job: finished pieces that outlive the program, however it ends.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_lock.h"

namespace bw::io {

// A directory of pieces. A piece is a file and its seal, a small file NAME.seal that was written after it: the key that
// the piece was made under (everything that its bytes depend on), its size and its hash. Without a seal that fits, a
// piece does not exist. Where a piece takes the place of another, its seal is there before it as NAME.seal.next, so
// that one of them fits at every moment. So whenever the program is killed, what is found later is whole or is made
// again.
class PieceDir {
 public:
  // Makes the directory if it is absent. Throws Error(kIo) if it cannot be made.
  explicit PieceDir(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  // Where a piece lies, or is to be written (whole: see AtomicFile). name: one component that ends with .piece or
  // .piece.safetensors; files of other names are never touched.
  std::filesystem::path file(std::string_view name) const;

  // Of the pieces that are there, whatever state they are in; sorted.
  std::vector<std::string> names() const;

  enum class State {
    kAbsent,
    kOther,    // made under another key
    kDamaged,  // not the bytes that were sealed
    kWhole,
  };
  // Whether there is a seal of that name, whatever it says.
  bool is_sealed(std::string_view name) const;
  // Reads the whole piece to see whether it is what was sealed.
  State check(std::string_view name, std::string_view key) const;
  // Of a piece that has been written; with size and hash (Hasher::hex) as whoever wrote it knows them, or read for
  // that.
  void seal(std::string_view name, std::string_view key, uint64_t bytes, std::string_view hash) const;
  void seal(std::string_view name, std::string_view key) const;
  // The same in two steps, with the piece put in its place between them.
  void announce_seal(std::string_view name, std::string_view key, uint64_t bytes, std::string_view hash) const;
  void accept_seal(std::string_view name) const;
  // Removes the piece and its seal, the seal first; nothing happens if they are not there.
  void discard(std::string_view name) const;
  // Removes all pieces, except those of which `keep` says so, and what killed runs have left of unfinished ones.
  using Keep = std::function<bool(std::string_view name)>;
  void clear(const Keep& keep = nullptr) const;

 private:
  std::filesystem::path path_;
};

// Whether the directory carries our marker.
bool is_work_dir(const std::filesystem::path& path);
// Of the directories in a directory; sorted.
std::vector<std::string> folder_names(const std::filesystem::path& path);

// The folder itself: pieces, and folders of pieces, under a marker that says it is ours and keeps other runs out.
class WorkDir : public PieceDir {
 public:
  // Makes the folder, or opens one that carries our marker. Throws Error(kUsage) if something else is in its place (a
  // file, a directory with files and without the marker), Error(kIo) if another run holds it or it cannot be made.
  explicit WorkDir(const std::filesystem::path& path);
  WorkDir(const WorkDir&) = delete;
  WorkDir& operator=(const WorkDir&) = delete;

  PieceDir folder(std::string_view name) const { return PieceDir(path() / name); }
  // Of the folders that are there.
  std::vector<std::string> folder_names() const { return io::folder_names(path()); }
  // Removes all pieces but those of its own that `keep` names, those in folders first; what is not ours stays.
  void clear(const Keep& keep = nullptr) const;
  // All pieces, the marker and the folder itself, unless something else is in it or it is behind a link of the user's.
  // What cannot be removed stays.
  void remove() noexcept;

 private:
  FileLock lock_;
};

// Whether there is a piece in a work folder, in folders of it too, besides those whose names begin like these. False
// also where nothing can be read, true where there is no memory to tell.
bool holds_other_pieces(const std::filesystem::path& work, std::initializer_list<std::string_view> begins) noexcept;

}  // namespace bw::io
