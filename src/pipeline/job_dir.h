// The work folder of a job, so that the same command continues what was killed.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "io/piece_file.h"
#include "io/work_dir.h"
#include "pipeline/reporter.h"

namespace bw::pipeline {

// What a job is about. Another model or text under the same work folder is a mistake, not a change of mind.
struct JobIdentity {
  std::string model;  // fingerprint, see measurement.h
  std::string text;   // of the calibration files; "self-written"
  size_t layers = 0;  // of the model, for who looks at the folder
};
// Of the contents of the files, in their order. Throws Error(kIo) if one cannot be read.
std::string text_fingerprint(const std::vector<std::filesystem::path>& files);

// The key of a piece: a fingerprint of everything that its bytes depend on.
std::string piece_key(std::initializer_list<std::string_view> parts);

// What the user should know where a run ends before its job does: whether the folder holds anything to go on from.
std::string kept_advice(const std::filesystem::path& work);

class JobDir {
 public:
  // Opens the folder, or makes it, and keeps other runs out of it. Nothing in it is changed. The reporter must outlive
  // it.
  JobDir(const std::filesystem::path& path, const JobIdentity& identity, const WorkOptions& options,
         Reporter& reporter);
  // The folder goes if nothing is in it that would be missed.
  ~JobDir();

  // Before anything is read or written. Throws Error(kUsage) if the folder belongs to a job on another model or text,
  // naming which; with `restart` all that it holds of ours is removed instead.
  void begin(bool restart);

  const JobIdentity& identity() const { return identity_; }
  const io::PieceDir& root() const { return work_; }
  io::PieceDir folder(std::string_view name) const { return work_.folder(name); }
  std::vector<std::string> folder_names() const { return work_.folder_names(); }

  // Whether the piece is there under this key. One that is damaged, or was made under another key, is removed, and the
  // user told.
  bool has(const io::PieceDir& dir, std::string_view name, std::string_view key) const;
  // Whether `read` understands the piece that is there under this key (see io::read_piece). One that it does not is
  // damaged, too.
  bool read(const io::PieceDir& dir, std::string_view name, std::string_view key,
            const std::function<bool(io::PieceReader& piece)>& read) const;
  // Whether a state that costs something to write should be: some time after the last one, or because the caller wants
  // the run to end.
  bool due() const;
  void saved() { last_ = Clock::now(); }
  void tell_resumed(std::string text) const { reporter_.note("resume", std::move(text)); }

  // The job is complete: all of it goes, the record of what is finished last, so that a run that is killed here leaves
  // either that or nothing.
  void remove() noexcept;
  // Runs what is done in the folder. Where it fails because of the model or the numbers, it would again: then nothing
  // is kept.
  template <typename Body>
  auto keep_for_later(const Body& body) {
    try {
      return body();
    } catch (const Error& e) {
      if (e.code() == ErrorCode::kModel || e.code() == ErrorCode::kNumeric) work_.remove();
      if (e.code() != ErrorCode::kIo || !e.hint().empty()) throw;
      throw Error(e.code(), e.what(), kept_advice(work_.path()));
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  void tell_damaged(const io::PieceDir& dir, std::string_view name) const;

  io::WorkDir work_;
  JobIdentity identity_;
  Reporter& reporter_;
  double seconds_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace bw::pipeline
