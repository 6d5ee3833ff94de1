#include "tokenizer/unicode_normal.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "tokenizer/unicode.h"

namespace bw::tokenizer {
namespace {

// True if `c` neither changes nor touches its neighbours in `form`. Conservative: most text is decided by two
// comparisons.
bool is_stable(char32_t c, NormalForm form) {
  if (c < 0x80) return true;
  if (c >= 0x3400 && c < 0xA000) return true;  // ideographs
  return form == NormalForm::kNfc && c < 0x300;
}

int combining_class(char32_t c) {
  if (!is_mark(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

void append_decomposed(std::vector<utf8proc_int32_t>& out, char32_t c, bool compatible) {
  if (is_unknown_mark(c)) {
    out.push_back(static_cast<utf8proc_int32_t>(c));
    return;
  }
  utf8proc_int32_t buffer[32];  // the longest decomposition has 18
  const int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  int last_class = 0;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), buffer, 32,
                                         static_cast<utf8proc_option_t>(options), &last_class);
  if (n < 1 || n > 32) {
    out.push_back(static_cast<utf8proc_int32_t>(c));
    return;
  }
  out.insert(out.end(), buffer, buffer + n);
}

// Sorts every run of marks by combining class. utf8proc would do it by insertion, in quadratic time.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  const auto mark_class = [](utf8proc_int32_t c) { return combining_class(static_cast<char32_t>(c)); };
  for (size_t i = 0; i < text.size();) {
    if (mark_class(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < text.size() && mark_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(i), text.begin() + static_cast<ptrdiff_t>(end),
                     [&](auto a, auto b) { return mark_class(a) < mark_class(b); });
    i = end;
  }
}

// Composes text[begin, ...) up to the next unknown mark, which for the reference is an ordinary character, appends the
// result and returns where it stopped.
size_t append_composed(std::string& out, std::vector<utf8proc_int32_t>& text, size_t begin) {
  size_t end = begin + 1;
  while (end < text.size() && !is_unknown_mark(static_cast<char32_t>(text[end]))) ++end;
  auto length = static_cast<utf8proc_ssize_t>(end - begin);
  // An unknown mark at the front is no base for what follows.
  const size_t base = is_unknown_mark(static_cast<char32_t>(text[begin])) ? 1 : 0;
  const auto composed =
      utf8proc_normalize_utf32(text.data() + begin + base, length - static_cast<utf8proc_ssize_t>(base),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (composed >= 0) length = composed + static_cast<utf8proc_ssize_t>(base);
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    append_utf8(out, static_cast<char32_t>(text[begin + static_cast<size_t>(i)]));
  return end;
}

// Normalizes a part whose neighbours are stable.
void append_normalized(std::string& out, std::string_view part, NormalForm form,
                       std::vector<utf8proc_int32_t>& buffer) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  buffer.clear();
  while (!part.empty()) {
    const CodePoint c = first_code_point(part);
    append_decomposed(buffer, c.value, compatible);
    part.remove_prefix(c.length);
  }
  order_marks(buffer);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    for (size_t at = 0; at < buffer.size();) at = append_composed(out, buffer, at);
  } else {
    for (const utf8proc_int32_t c : buffer) append_utf8(out, static_cast<char32_t>(c));
  }
}

}  // namespace

std::string normalize_unicode(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> buffer;
  size_t done = 0;         // text[0, done) is in `out`
  size_t last_stable = 0;  // where the stable code point before `at` begins (or `at` itself)
  size_t at = 0;
  while (at < text.size()) {
    CodePoint c = first_code_point(text.substr(at));
    if (is_stable(c.value, form)) {
      last_stable = at;
      at += c.length;
      continue;
    }
    // A mark may join the stable code point before it, so that one belongs to the part.
    out.append(text, done, last_stable - done);
    size_t end = at;
    while (end < text.size() && !is_stable((c = first_code_point(text.substr(end))).value, form)) end += c.length;
    append_normalized(out, text.substr(last_stable, end - last_stable), form, buffer);
    done = last_stable = at = end;
  }
  out.append(text, done);
  return out;
}

}  // namespace bw::tokenizer
