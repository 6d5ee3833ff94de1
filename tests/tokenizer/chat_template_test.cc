// Whole chat templates in the manner of a dozen model families against the outputs of Python's jinja2
// (tools/make_chat_template_fixtures.py), and the ways a model directory stores a template.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "bitwright/error.h"
#include "io/file_write.h"
#include "io/json.h"
#include "tokenizer/chat_template.h"

namespace bw::tokenizer {
namespace {

namespace fs = std::filesystem;
using io::OrderedJson;

const std::string kFolder = std::string(BW_FIXTURES) + "/chat_template/";

class ModelDir {
 public:
  ModelDir() : path_(fs::temp_directory_path() / ("bw_chat_template_" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~ModelDir() { fs::remove_all(path_); }
  ModelDir(const ModelDir&) = delete;
  ModelDir& operator=(const ModelDir&) = delete;
  void write(const char* file, std::string_view text) const { io::write_file(path_ / file, text); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(ChatTemplate, FamiliesEqualJinja2) {
  const OrderedJson fixture = io::load_ordered_json(kFolder + "conversations.json");
  std::set<std::string> templates;
  size_t rendered = 0;
  for (const auto& entry : fixture["cases"]) {
    const auto name = entry["template"].get<std::string>();
    const auto conversation = entry["conversation"].get<std::string>();
    SCOPED_TRACE(name + " / " + conversation);
    templates.insert(name);
    const ChatTemplate chat = ChatTemplate::parse(io::read_file(kFolder + "templates/" + name), name);
    const OrderedJson& data = fixture["conversations"][conversation];
    OrderedJson variables = fixture["tokens"];
    if (data.contains("variables")) variables.update(data["variables"]);
    variables["strftime_now"] = fixture["clock"];
    const bool prompt = entry["add_generation_prompt"].get<bool>();
    if (entry.contains("e")) {
      EXPECT_THROW(chat.render(data["messages"], prompt, variables), Error);
      continue;
    }
    ++rendered;
    EXPECT_EQ(chat.render(data["messages"], prompt, variables), entry["o"].get<std::string>());
  }
  EXPECT_GE(templates.size(), 14u);
  EXPECT_GT(rendered, 300u);
}

TEST(ChatTemplate, NoTemplateIsNoError) {
  const ModelDir dir;
  EXPECT_FALSE(ChatTemplate::load(dir.path()));
  dir.write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": null})");
  EXPECT_FALSE(ChatTemplate::load(dir.path()));
}

TEST(ChatTemplate, LoadsFromTheConfig) {
  const ModelDir dir;
  dir.write(
      "tokenizer_config.json",
      R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "unk_token": null, "add_bos_token": true,
                "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}{{ unk_token is defined }}"})");
  dir.write("special_tokens_map.json", R"({"eos_token": "other", "pad_token": {"content": "<pad>"}})");
  const auto chat = ChatTemplate::load(dir.path());
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->render({{{"role", "user"}, {"content", "hi"}}}, false), "<s>hi</s><pad>False");
  EXPECT_EQ(chat->render({{{"role", "user"}, {"content", "hi"}}}, false, {{"bos_token", ""}}), "hi</s><pad>False");
}

TEST(ChatTemplate, FileComesBeforeTheConfig) {
  const ModelDir dir;
  dir.write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "config"})");
  dir.write("chat_template.jinja", "file{{ bos_token }}\n");
  EXPECT_EQ(ChatTemplate::load(dir.path())->render(OrderedJson::array(), false), "file<s>");
}

TEST(ChatTemplate, NamedTemplates) {
  const ModelDir dir;
  dir.write("tokenizer_config.json",
            R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(ChatTemplate::load(dir.path())->render(OrderedJson::array(), false), "d");
  dir.write("tokenizer_config.json",
            R"({"chat_template": [{"name": "a", "template": "t"}, {"name": "b", "template": "d"}]})");
  EXPECT_THROW(ChatTemplate::load(dir.path()), Error);
  dir.write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THROW(ChatTemplate::load(dir.path()), Error);
}

TEST(ChatTemplate, ErrorsNameTheFile) {
  const ModelDir dir;
  dir.write("chat_template.jinja", "ab\n{% if %}");
  try {
    ChatTemplate::load(dir.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), (dir.path() / "chat_template.jinja").string() +
                                             ":2:7: expected an expression, found the end of a statement");
  }
}

TEST(ChatTemplate, MessagesMustBeAListOfObjects) {
  const ChatTemplate chat = ChatTemplate::parse("x", "test");
  EXPECT_EQ(chat.render(OrderedJson::array(), true), "x");
  EXPECT_THROW(chat.render(OrderedJson::object(), true), Error);
  EXPECT_THROW(chat.render({"text"}, true), Error);
  EXPECT_THROW(chat.render({{{"role", 18446744073709551615ull}}}, true), Error);
}

}  // namespace
}  // namespace bw::tokenizer
