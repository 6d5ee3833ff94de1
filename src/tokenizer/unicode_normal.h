// Unicode normalization forms.
#pragma once

#include <string>
#include <string_view>

namespace bw::tokenizer {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` must be valid UTF-8. Linear time also for endless runs of combining marks.
std::string normalize_unicode(std::string_view text, NormalForm form);

}  // namespace bw::tokenizer
