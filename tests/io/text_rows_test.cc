#include "io/text_rows.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <string>

#include "bitwright/error.h"
#include "io/file_write.h"

namespace bw::io {
namespace {

namespace fs = std::filesystem;

std::string error_of(std::string_view contents, const char* name) {
  try {
    parse_documents(contents, name);
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kModel);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
}

TEST(TextRows, PlainText) {
  const auto documents = parse_documents("Zürich\n{\"text\": 1}\r\n", "a.txt");
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(documents[0].text, "Zürich\n{\"text\": 1}\r\n");
  EXPECT_FALSE(documents[0].is_chat);
  EXPECT_EQ(documents[0].line, 1u);
  EXPECT_EQ(parse_documents("x", "no_ending")[0].text, "x");
}

TEST(TextRows, ByteOrderMarkIsSkipped) {
  EXPECT_EQ(parse_documents("\xef\xbb\xbfhi", "a.txt")[0].text, "hi");
  EXPECT_EQ(parse_documents("\xef\xbb\xbf{\"text\": \"hi\"}", "a.jsonl")[0].text, "hi");
}

TEST(TextRows, JsonLines) {
  const auto documents = parse_documents(
      "{\"text\": \"one\\n\\u00e9\", \"id\": 3}\r\n\n  \n{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"hi\"}]}\n{\"text\": \"\"}",
      "A.JSONL");
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].text, "one\né");
  EXPECT_EQ(documents[0].line, 1u);
  EXPECT_TRUE(documents[1].is_chat);
  EXPECT_EQ(documents[1].line, 4u);
  EXPECT_EQ(documents[1].messages.dump(), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(documents[2].text, "");
  EXPECT_EQ(documents[2].line, 5u);
}

TEST(TextRows, ShareGpt) {
  const auto documents = parse_documents(
      R"({"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}, {"role": "user", "content": "r"}]})",
      "a.jsonl");
  ASSERT_EQ(documents.size(), 1u);
  EXPECT_EQ(
      documents[0].messages.dump(),
      R"([{"role":"system","content":"s"},{"role":"user","content":"q"},{"role":"assistant","content":"a"},{"role":"user","content":"r"}])");
}

TEST(TextRows, JsonList) {
  const auto documents = parse_documents("[{\"text\": \"a\"},\n {\"text\": \"b\"}]", "a.json");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[1].text, "b");
  EXPECT_EQ(parse_documents("{\"text\": \"a\"}\n{\"text\": \"b\"}", "a.json").size(), 2u);
  EXPECT_EQ(error_of("[]", "a.json"), "a.json: the list is empty");
  EXPECT_EQ(error_of("[{\"text\": \"a\"}, 5]", "a.json"),
            "a.json (entry 1): expected an object with \"text\" or \"messages\", found number");
}

TEST(TextRows, BadBytes) {
  EXPECT_EQ(error_of("abc\xff", "a.txt"), "a.txt: not valid UTF-8 at byte 3; convert the text to UTF-8");
  EXPECT_EQ(error_of("\xc3", "a.txt"), "a.txt: not valid UTF-8 at byte 0; convert the text to UTF-8");
  EXPECT_EQ(error_of(std::string_view("ab\0c", 4), "a.txt"), "a.txt: a zero byte at byte 2, so this is no text file");
  EXPECT_EQ(error_of("\xff\xfe"
                     "a",
                     "a.txt"),
            "a.txt: the text is UTF-16; convert it to UTF-8");
  EXPECT_EQ(error_of("\x1f\x8b\x08", "a.jsonl"), "a.jsonl: this is a gzip file, not text; unpack or convert it");
  EXPECT_NE(error_of("PAR1...", "a.txt").find("parquet is not read yet"), std::string::npos);
  EXPECT_NE(error_of("anything", "b/a.parquet").find("parquet is not read yet"), std::string::npos);
}

TEST(TextRows, BadRows) {
  EXPECT_EQ(error_of("{\"text\": \"a\"}\n{\"id\": 1}\n", "a.jsonl"),
            "a.jsonl:2: the object has neither \"text\" nor \"messages\"");
  EXPECT_EQ(error_of("\n\n{\"text\": \n", "a.jsonl").substr(0, 10), "a.jsonl:3:");
  EXPECT_EQ(error_of("5", "a.jsonl"), "a.jsonl:1: expected an object with \"text\" or \"messages\", found number");
  EXPECT_EQ(error_of("{\"text\": null}", "a.jsonl"), "a.jsonl:1: \"text\" is not a string but null");
  EXPECT_EQ(error_of("{\"messages\": []}", "a.jsonl"),
            "a.jsonl:1: \"messages\" is not a list with at least one message");
  EXPECT_EQ(error_of("{\"messages\": [{\"content\": \"x\"}]}", "a.jsonl"),
            "a.jsonl:1: a message of \"messages\" has no \"role\"");
  EXPECT_EQ(error_of("{\"conversations\": [{\"from\": \"x\"}]}", "a.jsonl"),
            "a.jsonl:1: an entry of \"conversations\" has no \"from\" and \"value\"");
  EXPECT_EQ(error_of("", "a.txt"), "a.txt: the file is empty");
  EXPECT_EQ(error_of("\xef\xbb\xbf \n", "a.jsonl"), "a.jsonl: the file is empty");
}

TEST(TextRows, Files) {
  const fs::path path = fs::temp_directory_path() / ("bw_text_rows_" + std::to_string(getpid()) + ".jsonl");
  write_file(path, "{\"text\": \"a\"}\n");
  EXPECT_EQ(read_documents(path)[0].text, "a");
  fs::remove(path);
  try {
    read_documents(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos);
  }
}

}  // namespace
}  // namespace bw::io
