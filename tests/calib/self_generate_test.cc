// Calibration rows that the model writes itself.
#include "calib/self_generate.h"

#include <set>

#include <gtest/gtest.h>

#include "io/file_write.h"
#include "io/json.h"
#include "support/devices.h"
#include "support/errors.h"
#include "support/plain_linears.h"
#include "support/temp_dir.h"

namespace bw::calib {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

constexpr uint32_t kBos = 286;
const fs::path kModel = fs::path(BW_FIXTURES) / "models" / "llama";

struct Setting {
  std::optional<tokenizer::ChatTemplate> chat;
  bool bos = true;
  size_t threads = 2;
  const char* device = "cpu";
};

Rows generate(const SelfGenerateOptions& options, const Setting& setting = {}) {
  const model::ModelDir dir(kModel);
  io::Json json = io::load_json(kModel / "tokenizer.json");
  if (!setting.bos) json["post_processor"] = nullptr;
  const auto tokenizer = tokenizer::Tokenizer::from_json(json.dump(), "test");
  const auto device = test::make_device(setting.device, setting.threads);
  ThreadPool pool(setting.threads);
  const nn::LanguageModel model(*device, dir, options.length, backend::Precision::kF32,
                                test::plain_linears(dir, *device));
  size_t last = 0, total = 0;
  const auto progress = [&](size_t done, size_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  };
  const Rows rows = self_generate(model, tokenizer, setting.chat ? &*setting.chat : nullptr, options, pool, progress);
  EXPECT_EQ(last, total);
  return rows;
}

TEST(SelfGenerate, TheSeedDecides) {
  const Rows one = generate({13, 20, 5}, {{}, true, 1}), again = generate({13, 20, 5}, {{}, true, 3});
  EXPECT_EQ(one.ids, again.ids);
  EXPECT_EQ(one.ids, generate({13, 20, 5}, {{}, true, 2, "sim"}).ids);
  EXPECT_EQ(one.count(), 13u);
  EXPECT_EQ(one.length, 20u);
  EXPECT_EQ(one.source, "self-generated");
  const Rows other = generate({13, 20, 6});
  for (size_t r = 0; r < 13; ++r) {
    EXPECT_FALSE(std::equal(one.row(r).begin(), one.row(r).end(), other.row(r).begin())) << r;
  }
  EXPECT_FALSE(std::equal(one.row(1).begin(), one.row(1).end(), one.row(0).begin()));
}

TEST(SelfGenerate, RowsAreTextsThatBeginWithBosAndAnyToken) {
  for (const size_t length : {60, 128, 129, 300}) {
    const Rows rows = generate({6, length, 1});
    ASSERT_EQ(rows.count(), 6u);
    std::set<uint32_t> openings;
    size_t texts = 0;
    for (size_t r = 0; r < 6; ++r) {
      for (size_t at = 0; at < length; at += 128) {
        EXPECT_EQ(rows.row(r)[at], kBos) << r << ", " << at;
        if (at + 1 == length) continue;  // the last text is cut there
        openings.insert(rows.row(r)[at + 1]);
        ++texts;
      }
    }
    EXPECT_GT(2 * openings.size(), texts) << length;  // drawn from 288
  }
}

TEST(SelfGenerate, OneTextInEightOpensAUsersTurn) {
  Setting setting;
  setting.chat = tokenizer::ChatTemplate::parse("<s>U:{{ messages[0].content }}</s>", "test");
  const Rows rows = generate({17, 12, 1}, setting);
  const auto tokenizer = tokenizer::Tokenizer::load(kModel);
  const std::vector<uint32_t> opening = tokenizer.encode("<s>U:");
  ASSERT_EQ(opening[0], kBos);
  ASSERT_GT(opening.size(), 2u);
  for (size_t r = 0; r < 17; ++r) {
    const bool opens = std::equal(opening.begin(), opening.end(), rows.row(r).begin());
    EXPECT_EQ(opens, r % 8 == 7) << r;
    EXPECT_EQ(rows.row(r)[0], kBos);
  }
  // An opening that is longer than a row is cut.
  const Rows narrow = generate({8, 2, 1}, setting);
  EXPECT_TRUE(std::equal(opening.begin(), opening.begin() + 2, narrow.row(7).begin()));
}

TEST(SelfGenerate, WithoutBosAnOrdinaryTokenOpens) {
  const Rows rows = generate({11, 6, 1}, {{}, false, 2});
  std::set<uint32_t> openings;
  for (size_t r = 0; r < rows.count(); ++r) {
    EXPECT_LT(rows.row(r)[0], kBos);
    openings.insert(rows.row(r)[0]);
  }
  EXPECT_GT(openings.size(), 5u);
}

TEST(SelfGenerate, RefusesSenselessAndGiganticAmounts) {
  const auto check = [](size_t rows, size_t length) { check_self_generation({rows, length, 1}); };
  expect_error([&] { check(0, 10); }, ErrorCode::kUsage, {"0 calibration rows of 10"});
  expect_error([&] { check(1, 1); }, ErrorCode::kUsage, {"1 calibration rows of 1 tokens"});
  expect_error([&] { check(1000000000000, 512); }, ErrorCode::kUsage,
               {"1000000000000 calibration rows of 512", "4294967296"});
  expect_error([&] { check(SIZE_MAX, SIZE_MAX); }, ErrorCode::kUsage, {"too many"});
  EXPECT_NO_THROW(check(size_t{1} << 20, size_t{1} << 12));
  EXPECT_THROW(generate({size_t{1} << 40, 8, 1}), Error);
}

// A template as a model directory with special tokens has it.
tokenizer::ChatTemplate chat_of(const fs::path& file) {
  const test::TempDir dir;
  fs::copy_file(file, dir / "chat_template.jinja");
  io::write_file(dir / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  return tokenizer::ChatTemplate::load(dir.path()).value();
}

TEST(UserTurnOpening, IsWhatStandsBeforeTheUsersWords) {
  const fs::path folder = fs::path(BW_FIXTURES) / "chat_template" / "templates";
  size_t templates = 0;
  for (const auto& file : fs::directory_iterator(folder)) {
    SCOPED_TRACE(file.path().filename().string());
    const tokenizer::ChatTemplate chat = chat_of(file.path());
    const std::string opening = user_turn_opening(chat);
    const io::OrderedJson messages = {{{"role", "user"}, {"content", "Where is the ferry?"}}};
    EXPECT_FALSE(opening.empty());
    EXPECT_TRUE(chat.render(messages, false).starts_with(opening + "Where is the ferry?")) << opening;
    ++templates;
  }
  EXPECT_EQ(templates, 15u);
  const auto opening_of = [&](const char* name) { return user_turn_opening(chat_of(folder / name)); };
  EXPECT_EQ(opening_of("phi3_style.jinja"), "<|user|>\n");
  EXPECT_EQ(opening_of("gemma2_style.jinja"), "<s><turn>user\n");
  EXPECT_EQ(opening_of("smollm2_style.jinja"), "<|s|>system\nA small assistant.<|e|>\n<|s|>user\n");
}

TEST(UserTurnOpening, IsEmptyWhereItCannotBeTold) {
  const auto opening = [](const char* source) {
    return user_turn_opening(tokenizer::ChatTemplate::parse(source, "test"));
  };
  EXPECT_EQ(opening("{{ raise_exception('a system message is needed') }}"), "");
  EXPECT_EQ(opening("nothing of what the user says"), "");
  EXPECT_EQ(opening("{{ messages[0].content | upper }}"), "");
}

}  // namespace
}  // namespace bw::calib
