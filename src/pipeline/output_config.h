// The output's config.json and the files that travel with it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/model_dir.h"
#include "pipeline/measurement.h"

namespace bw::pipeline {

// config.json of the EXL2 model: the original's keys, with exactly one architecture, the rope keys at the top level
// (the loader reads only those), tie_word_embeddings false where a head is stored, and quantization_config.
// docs/exl2.md lists the reasons.
std::string output_config(const model::ModelDir& dir, const Measurement& m, double bits, int head_bits);

// The first thing in a directory that Bitwright does not write; nullopt if the directory is an output of ours and no
// more.
std::optional<std::string> foreign_file(const std::filesystem::path& dir);

// What is written about the model, beside it.
inline constexpr const char *kModelCard = "README.md", *kReportPage = "report.html", *kReportData = "report.json";

// Files of the model directory that are copied: *.json (not config.json, not an index), *.jinja, *.model, *.txt, *.py,
// *.md and licence files. Sorted by name. Weights, sub-directories and hidden files are not.
std::vector<std::filesystem::path> side_files(const std::filesystem::path& dir);

// The names under which they are copied, in the same order: their own, but where that is (in letters of any case) one
// that is written about the model, NAME.original.EXTENSION; with a second .original where that is taken, too.
std::vector<std::string> side_file_names(const std::vector<std::filesystem::path>& files);

}  // namespace bw::pipeline
