#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <algorithm>

#include <pcre2.h>

#include "bitwright/error.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"

namespace bw::tokenizer {
namespace {

// Steps that a match may take are free up to kFreeSteps; what takes more draws on a budget of the whole text, so that
// not even a thousand bad matches take long. Patterns of real tokenizers need a few steps for each byte of a long
// match.
constexpr uint32_t kFreeSteps = 1000;
constexpr uint64_t kLeastSteps = 1'000'000, kStepsPerByte = 64;
constexpr uint32_t kHeapLimitKib = 32 * 1024;
constexpr size_t kJitStackStart = 64 * 1024;
constexpr size_t kJitStackMax = 64 * 1024 * 1024;
constexpr size_t kMaxPattern = 64 * 1024;

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  std::string pattern;  // as in the file
  pcre2_code* code = nullptr;
  bool jit = false;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Regex Regex::compile(std::string_view oniguruma_pattern) {
  if (oniguruma_pattern.size() > kMaxPattern) {
    throw Error(ErrorCode::kModel, "regular expression of " + std::to_string(oniguruma_pattern.size()) +
                                       " bytes, at most " + std::to_string(kMaxPattern) + " are supported");
  }
  const std::string translated = translate_pattern(oniguruma_pattern);
  auto code = std::make_shared<Code>();
  code->pattern = oniguruma_pattern;
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's ^ and $ always stand for line ends.
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code->code == nullptr) {
    throw Error(ErrorCode::kModel, "regular expression " + shown(code->pattern) + ": " + message_of(error) +
                                       " at byte " + std::to_string(offset) + " of " + shown(translated));
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;  // where code may not be generated: interpreted
  Regex result;
  result.code_ = std::move(code);
  return result;
}

struct RegexSearch::State {
  std::shared_ptr<const Regex::Code> code;
  std::string stand_ins;
  std::string_view text;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  size_t from = 0;
  size_t last_end = static_cast<size_t>(-1);
  uint64_t steps_left = 0;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }

  int match() const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    if (code->jit) return pcre2_jit_match(code->code, subject, text.size(), from, 0, data, context);
    return pcre2_match(code->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, context);
  }
  // The default JIT stack is small and free; a larger one is made for the rare pattern and text that need it.
  int match_with_stack() {
    int rc = match();
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT || stack != nullptr) return rc;
    stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);
    if (stack == nullptr) return PCRE2_ERROR_NOMEMORY;
    pcre2_jit_stack_assign(context, nullptr, stack);
    return match();
  }
  // PCRE2 does not tell how many steps a match took: it is tried with limits that grow.
  int match_within_budget() {
    for (uint64_t limit = kFreeSteps;; limit *= 4) {
      pcre2_set_match_limit(context, static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
      const int rc = match_with_stack();
      if (rc != PCRE2_ERROR_MATCHLIMIT || limit > steps_left) return rc;
      steps_left -= limit;
    }
  }
};

RegexSearch::RegexSearch(const Regex& regex, std::string_view text) : state_(std::make_unique<State>()) {
  state_->code = regex.code_;
  state_->text = with_stand_ins(text, state_->stand_ins);
  state_->steps_left = kLeastSteps + kStepsPerByte * text.size();
  state_->data = pcre2_match_data_create(1, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  if (state_->data == nullptr || state_->context == nullptr) throw std::bad_alloc();
  pcre2_set_heap_limit(state_->context, kHeapLimitKib);
}

RegexSearch::~RegexSearch() = default;

bool RegexSearch::next(Match& match) {
  State& s = *state_;
  while (s.from <= s.text.size()) {
    const int rc = s.match_within_budget();
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) {
      throw Error(ErrorCode::kModel, "regular expression " + shown(s.code->pattern) + " gave up at byte " +
                                         std::to_string(s.from) + " of the text: " + message_of(rc));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(s.data);
    match = {bounds[0], bounds[1]};
    if (match.end < match.begin) match.begin = match.end;  // \K in a look-ahead
    if (match.begin == match.end && match.end == s.last_end) {
      s.from += s.from < s.text.size() ? first_code_point(s.text.substr(s.from)).length : 1;
      continue;
    }
    s.from = s.last_end = match.end;
    return true;
  }
  return false;
}

}  // namespace bw::tokenizer
