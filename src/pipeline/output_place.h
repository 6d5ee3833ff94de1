// The place of an output: OUTPUT, OUTPUT.partial where it is built, and OUTPUT.replaced, which is what OUTPUT was,
// while both are renamed.
#pragma once

#include <filesystem>
#include <string_view>

namespace bw::pipeline {

// In a directory under construction, and locked meanwhile; it goes when the directory has its name. A directory with it
// is ours, and as OUTPUT it is complete.
inline constexpr const char* kPartialMarker = ".bitwright-partial";

// OUTPUT with `suffix` at the end of its last component, however the path is written.
std::filesystem::path beside(const std::filesystem::path& output, std::string_view suffix);
std::filesystem::path partial_of(const std::filesystem::path& output);
std::filesystem::path replaced_of(const std::filesystem::path& output);

// Throws Error(kUsage) if OUTPUT must not be written: it exists and is not ours, or `overwrite` is false; it is a link,
// or the model directory or inside it; something that is not ours stands beside it under the names above.
void check_output_path(const std::filesystem::path& model, const std::filesystem::path& output, bool overwrite);

// Ends what a run that was killed while it renamed has left undone: a complete OUTPUT loses its marker and what it
// replaces, or what was to be replaced gets its name back. Throws Error(kIo) if another run is about it.
void settle_output(const std::filesystem::path& output);

// For an output that a killed run has begun and that nobody asks for any more: settled, and OUTPUT.partial removed if
// it is ours and no other run builds it.
void abandon_output(const std::filesystem::path& output) noexcept;

}  // namespace bw::pipeline
