// A work folder: what is finished, and what is left.
#include <algorithm>

#include "io/piece_file.h"
#include "pipeline/inspect.h"
#include "pipeline/job_pieces.h"

namespace bw::pipeline {
namespace {

namespace fs = std::filesystem;
using State = JobStep::State;

// The number that a piece has in its header; nullopt if the piece or the number is not there.
std::optional<size_t> number_in(const io::PieceDir& dir, const char* name, const char* key) {
  if (!dir.is_sealed(name)) return std::nullopt;
  std::optional<size_t> found;
  const auto read = [&](const io::PieceReader& piece) {
    found = piece.number(key, size_t{1} << 20);
    return true;
  };
  return io::read_piece(dir, name, read) ? found : std::nullopt;
}

JobStep measuring(const io::PieceDir& root, size_t layers) {
  JobStep step{"measure", {}, State::kWaiting, 0, 2 * layers};  // forward, and back
  const auto forward = number_in(root, kForwardPiece, "done"), left = number_in(root, kBackwardPiece, "left");
  if (root.is_sealed(kMeasuredPiece)) {
    step.state = State::kDone;
    step.done = step.total;
  } else if (left) {
    step.state = State::kBegun;
    step.done = step.total - std::min(step.total, *left);
  } else if (forward) {
    step.state = State::kBegun;
    step.done = *forward;
  }
  return step;
}

// The linears of a target, and its head.
JobStep quantizing(const io::PieceDir& folder, const std::string& name, size_t layers) {
  JobStep step{name, kept_place(folder).value_or("").string(), State::kWaiting, 0, layers == 0 ? 0 : layers + 1};
  for (const std::string& piece : folder.names()) {
    step.done += piece.starts_with("layer-") && folder.is_sealed(piece);
  }
  if (step.done > 0) step.state = State::kBegun;
  return step;
}

uint64_t bytes_in(const fs::path& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    const uint64_t size = at->is_regular_file(error) ? at->file_size(error) : 0;
    if (!error) bytes += size;
    error.clear();  // it went meanwhile
  }
  return bytes;
}

}  // namespace

JobReport inspect_job(const fs::path& path) {
  const io::PieceDir root(path);
  JobReport r;
  r.bytes = bytes_in(path);
  const size_t layers = number_in(root, kJobPiece, "layers").value_or(0);
  if (root.is_sealed(kRowsPiece)) r.steps.push_back({"calibration text", {}, State::kDone, 0, 0});
  r.steps.push_back(measuring(root, layers));
  const io::Json finished = finished_targets(root);
  for (const std::string& name : io::folder_names(path)) {
    r.steps.push_back(quantizing(io::PieceDir(path / name), name, layers));
    if (!finished.contains(name)) continue;
    r.steps.back().state = State::kDone;
    r.steps.back().done = r.steps.back().total;
  }
  return r;
}

}  // namespace bw::pipeline
