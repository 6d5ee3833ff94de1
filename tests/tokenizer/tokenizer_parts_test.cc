// The parts of the tokenizer that the golden ids do not reach: pattern syntax, normal forms, tries, tables.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "bitwright/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/pattern.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_normal.h"
#include "tokenizer/vocab.h"

namespace bw::tokenizer {
namespace {

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  const Regex regex = Regex::compile(pattern);
  RegexSearch search(regex, text);
  std::vector<std::string> result;
  for (Match match; search.next(match);) result.push_back(text.substr(match.begin, match.end - match.begin));
  return result;
}

using Strings = std::vector<std::string>;

TEST(Regex, Matches) {
  EXPECT_EQ(matches("a+", "aab a"), (Strings{"aa", "a"}));
  EXPECT_EQ(matches("x*", "axx"), (Strings{"", "xx"}));
  EXPECT_EQ(matches("", "é"), (Strings{"", ""}));
  EXPECT_EQ(matches("a", ""), Strings{});
  EXPECT_EQ(matches(R"(\p{L}+)", "été \U00031350x"),
            (Strings{"été", "\U00031350x"}));  // U+31350 is younger than Unicode 14
}

TEST(Regex, OnigurumaSyntax) {
  EXPECT_EQ(translate_pattern("[a-z]{1,2}+b"), "(?:[a-z]{1,2})+b");
  EXPECT_EQ(translate_pattern("(ab){2}+"), "(?:(ab){2})+");
  EXPECT_EQ(translate_pattern("a{,3}"), "a{0,3}");
  EXPECT_EQ(translate_pattern("a++"), "a++");
  EXPECT_EQ(translate_pattern("(?m:a.)"), "(?s:a.)");
  EXPECT_EQ(translate_pattern("(?<name>a)(?i)b"), "(?<name>a)(?i)b");
  EXPECT_EQ(translate_pattern(R"(\h\u00e9\\w)"), R"([0-9A-Fa-f]\x{00e9}\\w)");
  EXPECT_EQ(matches(R"(\s)", "\u180e\u0085"), Strings{"\u0085"});
}

TEST(Regex, Errors) {
  for (const char* pattern : {"(", "[a", "a\\", "[a&&b]", "[a[b]]", R"(\p{Nothing})", R"(\pL)", R"([\W])", "(?<=a+)b",
                              R"(\u12)", ")", R"(\p{)", "[[:x", "*"}) {
    EXPECT_THROW(Regex::compile(pattern), Error) << pattern;
  }
  EXPECT_THROW(Regex::compile(std::string(100000, 'a')), Error);
  EXPECT_THROW(Regex::compile(std::string(1000, '(') + std::string(1000, ')')), Error);
}

TEST(Regex, CatastrophicPatternIsAnError) {
  EXPECT_THROW(matches("(?:a|aa|(a))+c", std::string(5000, 'a') + "bc"), Error);
}

// Matches that are bearable one by one.
TEST(Regex, WorkOfAllMatchesTogetherIsBounded) {
  std::string text;
  for (int line = 0; line < 200; ++line) text += std::string(25, 'a') + "b\n";
  EXPECT_THROW(matches("(?:a|aa)+$|a", text), Error);
}

TEST(Regex, LongMatchesAreNoWork) {
  const std::string words = R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  std::string text;
  for (const char c : {'a', ' ', '!', '\n', ' ', 'b'}) text.append(100'000, c);
  EXPECT_EQ(matches(words, text).size(), 5u);  // "!!...\n\n..." is one, each run of spaces leaves one to the next
  EXPECT_EQ(
      matches(R"(\p{Lu}*\p{Ll}+|\p{Lu}+|\s+$|\s+)", std::string(100'000, 'A') + std::string(100'000, ' ') + "a").size(),
      3u);
}

TEST(Regex, ErrorsAreOneShortLine) {
  for (const std::string& pattern : {std::string("a\n\x1b[2J("), "[\n[" + std::string(5000, 'a')}) {
    try {
      Regex::compile(pattern);
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_EQ(what.find_first_of("\n\x1b"), std::string::npos) << what;
      EXPECT_LT(what.size(), 500u);
    }
  }
}

TEST(Normalize, MarksAndForms) {
  EXPECT_EQ(normalize_unicode("e\u0301", NormalForm::kNfc), "é");
  EXPECT_EQ(normalize_unicode("é", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(normalize_unicode("q\u0307\u0323", NormalForm::kNfc), "q\u0323\u0307");
  EXPECT_EQ(normalize_unicode("\u1100\u1161\u11a8x", NormalForm::kNfc), "\uac01x");
  EXPECT_EQ(normalize_unicode("ﬁ①", NormalForm::kNfkc), "fi1");
  EXPECT_EQ(normalize_unicode("", NormalForm::kNfkd), "");
}

TEST(Normalize, EqualsUtf8proc) {
  std::srand(3);
  const char32_t pool[] = {'a',    'e',    0xE9,   0x300, 0x301, 0x323, 0x327, 0x1E9B, 0x1100, 0x1161,  0x11A8, 0xAC00,
                           0x4E2D, 0xFB01, 0x2126, 0x9C7, 0x9BE, 0xF71, 0xF72, 0xF74,  0x344,  0x1D15F, 0x3099, 0x304B};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 10; ++i) append_utf8(text, pool[static_cast<size_t>(std::rand()) % std::size(pool)]);
    const auto expect = [&](NormalForm form, utf8proc_uint8_t* (*reference)(const utf8proc_uint8_t*)) {
      utf8proc_uint8_t* expected = reference(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
      EXPECT_EQ(normalize_unicode(text, form), reinterpret_cast<const char*>(expected)) << text;
      std::free(expected);
    };
    expect(NormalForm::kNfc, utf8proc_NFC);
    expect(NormalForm::kNfd, utf8proc_NFD);
    expect(NormalForm::kNfkc, utf8proc_NFKC);
    expect(NormalForm::kNfkd, utf8proc_NFKD);
  }
}

TEST(Unicode, StandInsKeepLengths) {
  std::string storage;
  const std::string old = "abc é 中 😀";
  EXPECT_EQ(with_stand_ins(old, storage).data(), old.data());
  const std::string fresh = "a\U00031350\u0CF3b\U00011F50";
  const std::string_view shown = with_stand_ins(fresh, storage);
  EXPECT_EQ(shown.size(), fresh.size());
  EXPECT_NE(shown, fresh);
}

TEST(Unicode, BytesAndTheirSpelling) {
  std::string all, spelled, back;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  append_spelled(spelled, all);
  for (std::string_view rest = spelled; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    back += static_cast<char>(spelled_byte(c.value).value());
    rest.remove_prefix(c.length);
  }
  EXPECT_EQ(back, all);
  EXPECT_EQ(spelled_byte(0x144), std::nullopt);
  EXPECT_EQ(spelled_byte(' '), std::nullopt);
}

TEST(ByteTrie, Prefixes) {
  const ByteTrie trie({{"a", 1}, {"abc", 2}, {"ab\xFF", 3}, {"b", 4}});
  std::vector<std::pair<size_t, uint32_t>> found;
  const auto collect = [&](size_t n, uint32_t value) { found.emplace_back(n, value); };
  trie.for_each_prefix("abcd", collect);
  EXPECT_EQ(found, (std::vector<std::pair<size_t, uint32_t>>{{1, 1}, {3, 2}}));
  found.clear();
  trie.for_each_prefix("ab\xFF", collect);
  EXPECT_EQ(found, (std::vector<std::pair<size_t, uint32_t>>{{1, 1}, {3, 3}}));
  found.clear();
  trie.for_each_prefix("", collect);
  trie.for_each_prefix("c", collect);
  ByteTrie().for_each_prefix("a", collect);
  EXPECT_TRUE(found.empty());
  EXPECT_TRUE(trie.may_start('a'));
  EXPECT_FALSE(trie.may_start('c'));
}

TEST(Vocab, FindsAfterGrowing) {
  Vocab vocab;
  for (uint32_t i = 0; i < 5000; ++i) vocab.add("token" + std::to_string(i), 2 * i);
  for (uint32_t i = 0; i < 5000; ++i) EXPECT_EQ(vocab.find("token" + std::to_string(i)), 2 * i);
  EXPECT_EQ(vocab.find("token"), std::nullopt);
  EXPECT_EQ(vocab.text(3), std::nullopt);
  EXPECT_EQ(vocab.text(4), "token2");
  EXPECT_EQ(vocab.n_ids(), 9999u);
  EXPECT_THROW(vocab.add("token7", 3), Error);
  EXPECT_THROW(vocab.add("other", 4), Error);
  EXPECT_THROW(vocab.add("other", uint64_t{1} << 40), Error);
}

TEST(MergeTable, SetAndFind) {
  MergeTable table;
  EXPECT_EQ(table.find(0, 0), nullptr);
  table.reserve(1000);
  for (uint32_t i = 0; i < 1000; ++i) table.set(i, i * 7 % 13, {i, i + 1});
  for (uint32_t i = 0; i < 1000; ++i) {
    const auto* merge = table.find(i, i * 7 % 13);
    ASSERT_NE(merge, nullptr);
    EXPECT_EQ(merge->rank, i);
  }
  EXPECT_EQ(table.find(1000, 0), nullptr);
}

TEST(Behavior, EmptyText) {
  std::vector<Part> parts;
  find_parts(Regex::compile("a"), "", parts);
  apply_behavior(Behavior::kMergedWithNext, parts);
  EXPECT_TRUE(parts.empty());
}

}  // namespace
}  // namespace bw::tokenizer
