// Oniguruma's syntax (the Ruby flavour that the `tokenizers` library uses) to PCRE2's, where the two differ.
#include <cctype>
#include <utility>
#include <vector>

#include "bitwright/error.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer_json.h"

namespace bw::tokenizer {
namespace {

// Members of classes whose meaning differs between the two libraries.
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}";
// Outside a class, Oniguruma's \w also takes these numbers of Latin-1.
constexpr std::string_view kLatinNumbers = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
constexpr std::string_view kSpace =
    "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view kNotSpace =
    "\\x00-\\x08\\x0E-\\x1F!-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}\\x{202A}-"
    "\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{D7FF}\\x{E000}-\\x{10FFFF}";
constexpr std::string_view kHex = "0-9A-Fa-f";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kModel, "regular expression " + shown(in_) + ": " + what + " at byte " +
                                       std::to_string(at_) + " is not supported");
  }
  bool follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(size_t n) {
    out_.append(in_, at_, n);
    at_ += n;
  }
  void begin_atom() { atom_ = out_.size(); }

  void step() {
    switch (in_[at_]) {
      case '\\':
        begin_atom();
        escape(false);
        return;
      case '[':
        begin_atom();
        character_class();
        return;
      case '(':
        open_group();
        return;
      case ')':
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        copy(1);
        return;
      case '{':
        interval();
        return;
      case '*':
      case '+':
      case '?':
      case '|':
        copy(1);
        return;
      default:
        begin_atom();
        copy(1);
        // All bytes of one character are one atom.
        while (at_ < in_.size() && (static_cast<unsigned char>(in_[at_]) & 0xC0) == 0x80) copy(1);
    }
  }

  void open_group() {
    groups_.push_back(out_.size());
    if (follows("(?#")) {
      const size_t end = in_.find(')', at_);
      copy(end == std::string_view::npos ? in_.size() - at_ : end - at_);
      return;
    }
    copy(1);
    if (!follows("?")) return;
    copy(1);
    // Options: Ruby's m (the dot takes line ends) is PCRE2's s.
    size_t end = at_;
    while (end < in_.size() && (in_[end] == 'i' || in_[end] == 'm' || in_[end] == 'x' || in_[end] == '-')) ++end;
    if (end == in_.size() || (in_[end] != ':' && in_[end] != ')')) return;
    for (; at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
  }

  // {n,m}: {,m} means {0,m}, and a + behind it repeats where PCRE2 would make it possessive.
  void interval() {
    size_t end = at_ + 1;
    while (end < in_.size() && (std::isdigit(static_cast<unsigned char>(in_[end])) || in_[end] == ',')) ++end;
    const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    if (end >= in_.size() || in_[end] != '}' || body.empty() || body == ",") {
      begin_atom();
      out_ += '\\';
      copy(1);
      return;
    }
    out_ += body.starts_with(',') ? "{0" : "{";
    out_.append(body).append("}");
    at_ = end + 1;
    if (follows("+")) {
      out_.insert(atom_, "(?:").append(")");
    }
  }

  // An escape inside a class (only its members are written) or outside one.
  void escape(bool in_class) {
    if (at_ + 1 >= in_.size()) fail("a lone backslash");
    const char c = in_[at_ + 1];
    const auto members = [&](std::string_view text, bool negated) {
      at_ += 2;
      if (in_class) {
        out_.append(text);
      } else {
        out_.append(negated ? "[^" : "[").append(text).append("]");
      }
    };
    switch (c) {
      case 'w':
        return members(in_class ? std::string(kWord) : std::string(kWord).append(kLatinNumbers), false);
      case 's':
        return members(kSpace, false);
      case 'h':
        return members(kHex, false);
      case 'S':
        return in_class ? members(kNotSpace, false) : members(kSpace, true);
      case 'W':
      case 'H':
        if (in_class) fail(std::string("\\") + c + " in a character class");
        return members(c == 'W' ? std::string(kWord).append(kLatinNumbers) : std::string(kHex), true);
      case 'u':
        if (at_ + 6 > in_.size()) fail("a short \\u");
        out_.append("\\x{").append(in_, at_ + 2, 4).append("}");
        at_ += 6;
        return;
      case 'p':
      case 'P':
        return property();
      case 'R':
      case 'X':
      case 'K':
      case 'g':
      case 'k':
      case 'y':
      case 'Y':
      case 'O':
      case 'N':
        fail(std::string("\\") + c);
      default:
        out_ += '\\';
        ++at_;
        copy(1);
    }
  }

  void property() {
    const size_t end = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || end == std::string_view::npos) fail("\\p without {NAME}");
    copy(end + 1 - at_);
  }

  // [:NAME:] inside a class.
  void posix_class() {
    static constexpr std::pair<std::string_view, std::string_view> kClasses[] = {{"alpha", "\\p{Alphabetic}"},
                                                                                 {"alnum", "\\p{Alphabetic}\\p{Nd}"},
                                                                                 {"digit", "\\p{Nd}"},
                                                                                 {"upper", "\\p{Uppercase}"},
                                                                                 {"lower", "\\p{Lowercase}"},
                                                                                 {"space", kSpace},
                                                                                 {"word", kWord},
                                                                                 {"xdigit", kHex}};
    const size_t end = in_.find(":]", at_);
    const std::string_view name = in_.substr(at_ + 2, end == std::string_view::npos ? 0 : end - at_ - 2);
    for (const auto& [known, members] : kClasses) {
      if (name != known) continue;
      out_.append(members);
      at_ = end + 2;
      return;
    }
    fail("a POSIX class with this name");
  }

  void character_class() {
    copy(1);
    if (follows("^")) copy(1);
    if (follows("]")) out_ += '\\', copy(1);
    while (at_ < in_.size() && in_[at_] != ']') {
      if (follows("[:")) {
        posix_class();
      } else if (follows("[")) {
        fail("a character class inside another");
      } else if (follows("&&")) {
        fail("an intersection of character classes");
      } else if (follows("\\")) {
        escape(true);
      } else {
        copy(1);
      }
    }
    if (at_ < in_.size()) copy(1);
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last repeatable item begins in out_
  std::vector<size_t> groups_;  // the same for every open group
};

}  // namespace

std::string translate_pattern(std::string_view oniguruma_pattern) { return Translator(oniguruma_pattern).run(); }

}  // namespace bw::tokenizer
