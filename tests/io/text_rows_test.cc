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
  EXPECT_NE(error_of("PAR1...", "a.txt").find("parquet"), std::string::npos);
  EXPECT_NE(error_of("anything", "b/a.parquet").find("parquet"), std::string::npos);
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

TEST(TextRows, RowsOfTokenIds) {
  const auto documents = parse_documents(
      "{\"token_ids\": [0, 4294967295], \"text\": \"a\", \"source\": \"s\"}\n{\"token_ids\":[7]}\n", "a.jsonl");
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].ids, (std::vector<uint32_t>{0, 4294967295u}));
  EXPECT_EQ(documents[0].text, "a");
  EXPECT_EQ(documents[0].source, "s");
  EXPECT_EQ(documents[1].ids, std::vector<uint32_t>{7});
  EXPECT_FALSE(documents[1].is_chat);
  EXPECT_EQ(row_line(documents[0]), "{\"token_ids\":[0,4294967295],\"text\":\"a\",\"source\":\"s\"}\n");
  for (const char* bad : {"[]", "5", "\"5\"", "[4294967296]", "[-1]", "[1.0]", "[\"1\"]", "[null]", "[[1]]"}) {
    const std::string error = error_of("{\"token_ids\": " + std::string(bad) + "}", "a.jsonl");
    EXPECT_TRUE(error.starts_with("a.jsonl:1: \"token_ids\" ")) << bad << ": " << error;
  }
  EXPECT_EQ(error_of("{\"token_ids\": [1], \"source\": 5}", "a.jsonl"),
            "a.jsonl:1: \"source\" is not a string but number");
}

TEST(TextRows, TellsFilesOfRows) {
  const fs::path path = fs::temp_directory_path() / ("bw_rows_" + std::to_string(getpid()) + ".jsonl");
  for (const auto& [text, rows] : {std::pair{"\n \n{\"token_ids\": [1]}\nnonsense", true},
                                   {"{\"text\": \"a\"}\n{\"token_ids\": [1]}\n", false},
                                   {"{\"token_ids\": []}", false},
                                   {"{", false},
                                   {"", false}}) {
    write_file(path, text);
    EXPECT_EQ(holds_rows(path), rows) << text;
  }
  write_file(path, "{\"token_ids\": [1]}");
  fs::path other = path;
  other.replace_extension(".txt");
  fs::rename(path, other);
  EXPECT_FALSE(holds_rows(other));
  fs::remove(other);
  EXPECT_FALSE(holds_rows(path));
  EXPECT_FALSE(holds_rows(fs::temp_directory_path()));
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
