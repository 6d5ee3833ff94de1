#include "model/findings.h"

#include <string>
#include <string_view>

namespace bw::model {

Finding finding_of(const Error& error, const std::filesystem::path& root) {
  Finding f{Finding::Severity::kError, error.code(), {}, error.what(), error.hint()};
  if (!f.advice.empty()) f.what.resize(f.what.size() - f.advice.size() - std::string_view("; ").size());
  const std::string directory = root.string();
  if (directory.empty() || !f.what.starts_with(directory)) return f;
  constexpr std::string_view kEnd = ": ";
  const size_t end = f.what.find(kEnd, directory.size());
  if (end == std::string::npos) return f;
  f.where = f.what.substr(directory.size(), end - directory.size());
  if (f.where.starts_with('/')) f.where.erase(0, 1);
  f.what.erase(0, end + kEnd.size());
  return f;
}

}  // namespace bw::model
