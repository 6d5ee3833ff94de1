#include "io/piece_file.h"

#include <fstream>
#include <vector>

#include <gtest/gtest.h>

#include "bitwright/error.h"
#include "support/errors.h"
#include "support/temp_dir.h"

namespace bw::io {
namespace {

namespace fs = std::filesystem;

TEST(PieceFile, GivesBackWhatWasWritten) {
  const test::TempDir temp;
  const PieceDir dir(temp.path());
  const std::vector<float> floats = {1.5f, -2.0f, 0.0f};
  const std::vector<uint32_t> numbers = {7, 0xffffffffu};
  PieceWriter writer(dir, "a.piece", {{"layer", 3}, {"name", "ü"}});
  writer.write_values(std::span(floats));
  writer.write_values(std::span(numbers));
  EXPECT_EQ(dir.check("a.piece", "key"), PieceDir::State::kAbsent);
  writer.seal("key");
  ASSERT_EQ(dir.check("a.piece", "key"), PieceDir::State::kWhole);
  PieceReader reader(dir, "a.piece");
  EXPECT_EQ(reader.header()["layer"], 3);
  EXPECT_EQ(reader.header()["name"], "ü");
  std::vector<float> floats_back(3);
  std::vector<uint32_t> numbers_back(2);
  reader.read_values(std::span(floats_back));
  reader.read_values(std::span(numbers_back));
  EXPECT_EQ(floats_back, floats);
  EXPECT_EQ(numbers_back, numbers);
  test::expect_error([&] { reader.take(1); }, ErrorCode::kModel, {"a.piece", "ends too early"});
}

TEST(PieceFile, AFileWithoutAHeaderIsAnError) {
  const test::TempDir temp;
  const PieceDir dir(temp.path());
  using namespace std::string_literals;
  for (const std::string& text :
       {""s, "1234567"s, "\xff\xff\xff\xff\xff\xff\xff\xff{}"s, "\3\0\0\0\0\0\0\0{}"s, "\2\0\0\0\0\0\0\0{x"s}) {
    std::ofstream(dir.file("a.piece"), std::ios::binary) << text;
    test::expect_error([&] { PieceReader reader(dir, "a.piece"); }, ErrorCode::kModel, {"a.piece"});
  }
}

TEST(PieceFile, NumbersOfAHeaderAreWholeAndBounded) {
  const test::TempDir temp;
  const PieceDir dir(temp.path());
  const auto read = [&](const Json& header) {
    PieceWriter(dir, "a.piece", header).seal("key");
    return PieceReader(dir, "a.piece").number("done", 7);
  };
  EXPECT_EQ(read({{"done", 0}}), 0u);
  EXPECT_EQ(read({{"done", 7}}), 7u);
  for (const Json& wrong : {Json(8), Json(-1), Json(1.5), Json(1e300), Json("1"), Json(true), Json(nullptr)}) {
    test::expect_error([&] { read({{"done", wrong}}); }, ErrorCode::kModel, {"a.piece", "'done'"});
  }
  for (const Json& header : {Json::object(), Json::array(), Json(nullptr), Json("done")}) {
    test::expect_error([&] { read(header); }, ErrorCode::kModel, {"a.piece", "'done'"});
  }
}

TEST(PieceFile, WhatCannotBeUnderstoodIsToldFromWhatCanAndFromFailure) {
  const test::TempDir temp;
  const PieceDir dir(temp.path());
  PieceWriter(dir, "a.piece", Json::array({1})).seal("key");
  EXPECT_TRUE(read_piece(dir, "a.piece", [](PieceReader& piece) { return piece.header().at(0) == 1; }));
  EXPECT_FALSE(read_piece(dir, "a.piece", [](PieceReader&) { return false; }));
  EXPECT_FALSE(read_piece(dir, "a.piece", [](PieceReader& piece) { return piece.header().at("x") == 1; }));
  EXPECT_FALSE(read_piece(dir, "a.piece", [](PieceReader& piece) { return piece.take(1).empty(); }));
  const auto fails = [](PieceReader&) -> bool { throw Error(ErrorCode::kIo, "the disk is gone"); };
  test::expect_error([&] { read_piece(dir, "a.piece", fails); }, ErrorCode::kIo, {"the disk is gone"});
  test::expect_error([&] { read_piece(dir, "b.piece", fails); }, ErrorCode::kIo, {"b.piece"});
}

// A piece takes the place of another: what is there if the program is killed at any step of that.
TEST(PieceFile, OfTwoThatReplaceEachOtherOneIsWholeAtEveryMoment) {
  const test::TempDir temp;
  const PieceDir dir(temp.path());
  const auto file = dir.file("a.piece"), seal = fs::path(file) += ".seal", next = fs::path(seal) += ".next";
  const auto write = [&](int number) { PieceWriter(dir, "a.piece", {{"number", number}}).seal("key"); };
  write(1);
  const std::string old_piece = read_file(file, 1000), old_seal = read_file(seal, 1000);
  write(2);
  EXPECT_FALSE(fs::exists(next));
  const std::string new_piece = read_file(file, 1000), new_seal = read_file(seal, 1000);
  const auto expect = [&](const std::string& piece, const std::string& sealed, size_t number) {
    write_file(file, piece);
    sealed.empty() ? static_cast<void>(fs::remove(seal)) : write_file(seal, sealed);
    write_file(next, new_seal);
    ASSERT_EQ(dir.check("a.piece", "key"), PieceDir::State::kWhole);
    EXPECT_EQ(PieceReader(dir, "a.piece").number("number", 9), number);
  };
  expect(old_piece, old_seal, 1);  // the new seal is announced
  expect(new_piece, old_seal, 2);  // the new piece is in its place
  expect(new_piece, "", 2);        // the same of the first one of its name
  fs::remove(file);
  EXPECT_EQ(dir.check("a.piece", "key"), PieceDir::State::kAbsent);  // announced, and nothing more
  write_file(file, old_piece + "x");
  EXPECT_EQ(dir.check("a.piece", "key"), PieceDir::State::kAbsent);
  write(2);
  write_file(next, new_seal);
  dir.clear();
  EXPECT_TRUE(fs::is_empty(temp.path()));
}

}  // namespace
}  // namespace bw::io
