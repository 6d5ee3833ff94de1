#include "tokenizer/normalizer.h"

#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"

namespace bw::tokenizer {
namespace {

constexpr int kMaxNesting = 16;

void parse_into(const io::Json& json, int depth, std::vector<NormalizerStep>& steps) {
  const std::string type = component_type(json, "normalizer");
  const std::string where = "normalizer " + type;
  if (type == "Sequence") {
    if (depth >= kMaxNesting) bad_tokenizer("normalizer: sequences nested too deep");
    for (const io::Json& item : array_field(json, "normalizers", where)) parse_into(item, depth + 1, steps);
  } else if (type == "NFC") {
    steps.emplace_back(NormalForm::kNfc);
  } else if (type == "NFD") {
    steps.emplace_back(NormalForm::kNfd);
  } else if (type == "NFKC") {
    steps.emplace_back(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    steps.emplace_back(NormalForm::kNfkd);
  } else if (type == "Replace") {
    steps.emplace_back(ReplaceText{parse_pattern(json, where), require_string(json, "content", where)});
  } else if (type == "Prepend") {
    steps.emplace_back(PrependText{require_string(json, "prepend", where)});
  } else if (type == "Strip") {
    steps.emplace_back(
        StripText{bool_field(json, "strip_left", true, where), bool_field(json, "strip_right", true, where)});
  } else if (type == "Lowercase") {
    steps.emplace_back(LowercaseText{});
  } else if (type == "StripAccents") {
    steps.emplace_back(StripAccentsText{});
  } else if (type == "ByteLevel") {
    steps.emplace_back(SpellBytesText{});
  } else {
    bad_tokenizer("normalizer " + shown(type) + " is not supported");
  }
}

template <typename Change>
std::string map_characters(std::string_view text, Change&& change) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    change(out, c.value);
    text.remove_prefix(c.length);
  }
  return out;
}

struct Apply {
  std::string& text;
  bool& at_start;
  size_t most;  // bytes that the text may grow to

  void operator()(NormalForm form) const { text = normalize_unicode(text, form); }
  void operator()(const ReplaceText& step) const { text = replace_all(step.pattern, text, step.content, most); }
  void operator()(const PrependText& step) const {
    if (!text.empty()) text.insert(0, step.content);
  }
  void operator()(const StripText& step) const {
    std::string_view rest = text;
    while (step.left && !rest.empty() && is_whitespace(first_code_point(rest).value)) {
      rest.remove_prefix(first_code_point(rest).length);
      at_start = false;
    }
    while (step.right && !rest.empty() && is_whitespace(last_code_point(rest).value)) {
      rest.remove_suffix(last_code_point(rest).length);
    }
    text = std::string(rest);
  }
  void operator()(LowercaseText) const { text = map_characters(text, append_lowercase); }
  void operator()(StripAccentsText) const {
    if (!text.empty() && is_mark(first_code_point(text).value)) at_start = false;
    text = map_characters(text, [](std::string& out, char32_t c) {
      if (!is_mark(c)) append_utf8(out, c);
    });
  }
  void operator()(SpellBytesText) const {
    std::string spelled;
    append_spelled(spelled, text);
    text = std::move(spelled);
  }
};

}  // namespace

std::vector<NormalizerStep> parse_normalizer(const io::Json& json) {
  std::vector<NormalizerStep> steps;
  if (!json.is_null()) parse_into(json, 0, steps);
  return steps;
}

std::string normalize(const std::vector<NormalizerStep>& steps, std::string text, bool& at_start) {
  const size_t most = most_bytes(text.size());
  for (const NormalizerStep& step : steps) {
    std::visit(Apply{text, at_start, most}, step);
    check_growth(text.size(), most);
  }
  return text;
}

}  // namespace bw::tokenizer
