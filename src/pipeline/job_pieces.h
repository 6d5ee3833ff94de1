// What a job keeps in its work folder beside layers: names of pieces, where outputs go, which ones are finished.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "io/work_dir.h"

namespace bw::pipeline {

inline constexpr const char* kJobPiece = "job.piece";            // what the job is about
inline constexpr const char* kRowsPiece = "rows.piece";          // self-written calibration
inline constexpr const char* kForwardPiece = "forward.piece";    // states on the way to the head
inline constexpr const char* kBackwardPiece = "backward.piece";  // and gradients on the way back
inline constexpr const char* kMeasuredPiece = "measured.piece";  // the measurement, or gradients alone
// In the folder of a target: the path where its output was to be, of no use to a later run but to remove what is there.
inline constexpr const char* kPlacePiece = "place.piece";
// The piece that records finished outputs begins with this; its key must not depend on more than such a record does,
// since it outlives the rest of the folder.
inline constexpr std::string_view kFinishedPrefix = "finished-";
inline constexpr const char* kFinishedKey = "finished targets";
// Begins the names of pieces that hold one warning each: a run that goes on recalls what earlier ones have warned of.
inline constexpr std::string_view kWarningPrefix = "warning-";

// Where the output of a target's folder was to be; nullopt: that is not there, or cannot be understood.
std::optional<std::filesystem::path> kept_place(const io::PieceDir& folder);
void keep_place(const io::PieceDir& folder, const std::filesystem::path& output);

// The pieces that record finished targets; the newest last.
std::vector<std::string> finished_pieces(const io::PieceDir& dir);
// {name of a target: {"key": ..., "result": ...}}, in place of what was kept before.
void keep_finished(const io::PieceDir& dir, const io::Json& finished);
// What is kept, for a reader that changes nothing; an empty object where it cannot be understood.
io::Json finished_targets(const io::PieceDir& dir);

}  // namespace bw::pipeline
