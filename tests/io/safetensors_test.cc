#include "io/safetensors.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/half.h"
#include "base/rng.h"
#include "io/file_write.h"
#include "support/errors.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace bw::io {
namespace {

using test::expect_error;
using test::TempDir;

// A file image of a header (its length put before it) and `data` bytes of zeros.
std::string image_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\0');
}

SafetensorsHeader parse(const std::string& image, const std::string& name = "f.safetensors") {
  return parse_safetensors(std::as_bytes(std::span(image.data(), image.size())), image.size(), name);
}

TEST(ParseSafetensors, ReadsAHeader) {
  const std::string image = image_of(
      R"({"b":{"dtype":"F16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"I8","shape":[0,7],"data_offsets":[4,4]}}  )",
      12 + 4);
  const SafetensorsHeader header = parse(image);
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.data_begin, image.size() - 16);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].elements(), 1u);
  EXPECT_EQ(header.tensors[1].name, "e");
  EXPECT_EQ(header.tensors[1].elements(), 0u);
  EXPECT_EQ(header.tensors[2].type, TensorType::kF16);
  EXPECT_EQ(header.tensors[2].offset, header.data_begin + 4);
  EXPECT_EQ(header.tensors[2].bytes, 12u);
  EXPECT_TRUE(parse(image_of("{}", 0)).tensors.empty());
}

struct BadHeader {
  const char* header;
  size_t data;
  const char* word;
};

class RefusesHeader : public testing::TestWithParam<BadHeader> {};

TEST_P(RefusesHeader, InOneLine) {
  const std::string image = image_of(GetParam().header, GetParam().data);
  expect_error([&] { parse(image); }, ErrorCode::kModel, {"f.safetensors: ", GetParam().word});
}

INSTANTIATE_TEST_SUITE_P(
    ParseSafetensors, RefusesHeader,
    testing::Values(
        BadHeader{"", 0, "not valid JSON"}, BadHeader{"[]", 0, "not a JSON object"},
        BadHeader{"{\"a\":", 0, "not valid JSON"},
        BadHeader{"{\"a\":7}", 0, "tensor a: its entry in the header is not an object"},
        BadHeader{R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "'dtype' is not a string"},
        BadHeader{R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "tensor a: unknown dtype \"F33\""},
        BadHeader{R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "'shape' is not a list"},
        BadHeader{R"({"a":{"dtype":"F32","shape":{"x":1},"data_offsets":[0,4]}})", 4, "'shape' is not a list"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "holds -1, not a count"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "holds 1.5, not a count"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,4]}})", 4, "not valid JSON"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}})", 4, "not valid JSON"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4, "not a count"},
        BadHeader{R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "not a count"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]}})", 4,
                  "does not fit in 64 bits"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0, "does not fit"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0, "does not fit"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1]}})", 4, "'data_offsets' is not a list"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "is not [begin, end]"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "is not [begin, end]"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8, "span 8 bytes, but F32 [1] takes 4"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4, "its header promises"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}})", 4,
                  "its header promises 18446744073709551615"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "tensor a: a gap of 4 bytes"},
        BadHeader{
            R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
            6, "tensor b: its data overlap"},
        BadHeader{
            R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
            8, "'a' stands twice"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 7, "3 bytes after the data"},
        BadHeader{R"({"__metadata__":[]})", 0, "'__metadata__' is not an object"},
        BadHeader{R"({"__metadata__":{"a":1}})", 0, "'__metadata__' holds 1"}));

TEST(ParseSafetensors, RefusesHeaderLengths) {
  for (const uint64_t length : {uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7, uint64_t{100000001}}) {
    const std::string image = std::string(reinterpret_cast<const char*>(&length), 8) + "{}";
    expect_error([&] { parse(image); }, ErrorCode::kModel,
                 {"f.safetensors: ", std::to_string(length), "at most 100000000"});
  }
  const std::string image = image_of("{}", 0);
  for (size_t n = 0; n < image.size(); ++n) {
    expect_error([&] { parse(image.substr(0, n)); }, ErrorCode::kModel, {"f.safetensors: ", "incomplete download?"});
  }
}

TEST(ParseSafetensors, RefusesAMillionBrackets) {
  expect_error([] { parse(image_of(std::string(1000000, '['), 0)); }, ErrorCode::kModel, {"nested deeper"});
  expect_error([] { parse(image_of("{\"a\":" + std::string(1000000, '['), 0)); }, ErrorCode::kModel, {"nested deeper"});
  std::string shape = "1";
  for (int i = 0; i < 1000; ++i) shape += ",1";
  expect_error([&] { parse(image_of(R"({"a":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]}})", 1)); },
               ErrorCode::kModel, {"tensor a: 'shape' has 1001 numbers"});
}

TEST(ParseSafetensors, AHostileNameStaysOnOneLine) {
  expect_error([] { parse(image_of(R"({"a\nb\u0007":{"dtype":"F33"}})", 0)); }, ErrorCode::kModel,
               {"tensor a?b?: unknown dtype"});
}

// Every damage of a byte or two is either harmless or an Error: never a crash, never another exception.
TEST(ParseSafetensors, SurvivesDamage) {
  const std::string good = image_of(
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},"v":{"dtype":"I32","shape":[2],"data_offsets":[12,20]}})",
      20);
  EXPECT_EQ(parse(good).tensors.size(), 2u);
  Rng rng(3);
  size_t refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (uint32_t n = 1 + rng.below(3); n > 0; --n) {
      const size_t at = rng.below(static_cast<uint32_t>(bad.size()));
      switch (rng.below(3)) {
        case 0:
          bad[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          bad.erase(at, 1 + rng.below(4));
          break;
        default:
          bad.insert(at, 1, "0123456789[]{},:\""[rng.below(17)]);
          break;
      }
    }
    try {
      const SafetensorsHeader header = parse(bad);
      for (const TensorEntry& t : header.tensors) ASSERT_LE(t.offset + t.bytes, bad.size());
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kModel);
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000u);
}

TEST(TensorTypes, NamesAndSizesGoBothWays) {
  for (const char* name : {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I16", "I8", "U64", "U32",
                           "U16", "U8", "BOOL"}) {
    ASSERT_TRUE(type_from_name(name)) << name;
    EXPECT_EQ(type_name(*type_from_name(name)), name);
  }
  EXPECT_FALSE(type_from_name("f32"));
  EXPECT_EQ(element_size(TensorType::kBF16), 2u);
  EXPECT_EQ(element_size(TensorType::kI64), 8u);
}

TEST(ConvertToFloat, IsRightForEveryHalf) {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  std::vector<float> half(bits.size()), brain(bits.size());
  convert_to_float(TensorType::kF16, std::as_bytes(std::span(bits)), half);
  convert_to_float(TensorType::kBF16, std::as_bytes(std::span(bits)), brain);
  for (size_t i = 0; i < bits.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(half[i]), std::bit_cast<uint32_t>(to_float(Half{bits[i]}))) << i;
    EXPECT_EQ(std::bit_cast<uint32_t>(brain[i]), static_cast<uint32_t>(i) << 16) << i;
  }
}

TEST(ConvertToFloat, TakesAnyAddressAndLength) {
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kF64}) {
    for (const size_t n : {0, 1, 2, 3, 7, 8, 9, 31, 33}) {
      std::vector<float> expected(n), found(n);
      std::vector<std::byte> bytes(1 + n * element_size(type));
      for (size_t i = 0; i < n; ++i) {
        expected[i] = static_cast<float>(i) * 0.25f - 3.0f;
        std::byte* to = bytes.data() + 1 + i * element_size(type);
        const auto put = [&](auto v) { std::memcpy(to, &v, sizeof(v)); };
        if (type == TensorType::kF32) put(expected[i]);
        if (type == TensorType::kF16) put(to_half(expected[i]));
        if (type == TensorType::kBF16) put(to_bfloat16(expected[i]));
        if (type == TensorType::kF64) put(static_cast<double>(expected[i]));
      }
      convert_to_float(type, std::span(bytes).subspan(1), found);
      EXPECT_EQ(found, expected) << type_name(type) << " " << n;
    }
  }
}

TEST(ConvertToFloat, RefusesOtherTypes) {
  std::vector<std::byte> bytes(4);
  std::vector<float> out(4);
  expect_error([&] { convert_to_float(TensorType::kI8, bytes, out); }, ErrorCode::kModel, {"I8"});
  expect_error([&] { convert_to_float(TensorType::kF32, bytes, out); }, ErrorCode::kInternal, {});
  const TensorEntry entry{"layers.0.x", TensorType::kU8, {4}, 0, 4};
  expect_error([&] { read_floats({&entry, bytes}, out); }, ErrorCode::kModel, {"layers.0.x", "U8"});
}

TEST(WriteSafetensors, WhatIsWrittenIsRead) {
  const TempDir dir;
  const std::vector<test::TinyTensor> tensors = {{"half", {3}, {1, 2, 3}},
                                                 {"word", {2, 1}, {70000, -5}},
                                                 {"é\"", {0, 4}, {}},
                                                 {"short", {5}, {1, 2, 3, 4, 5}},
                                                 {"one", {}, {9}}};
  const std::vector<TensorType> types = {TensorType::kF16, TensorType::kI32, TensorType::kF32, TensorType::kI16,
                                         TensorType::kU8};
  test::save_tensors(dir / "a.safetensors", tensors, types);
  std::vector<TensorPlan> plans;
  for (size_t i = 0; i < tensors.size(); ++i) plans.push_back({tensors[i].name, types[i], tensors[i].shape});
  EXPECT_EQ(std::filesystem::file_size(dir / "a.safetensors"), safetensors_size(plans));

  const ShardSet set(dir / "a.safetensors");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorData t = set.require(tensors[i].name, tensors[i].shape);
    EXPECT_EQ(t.type(), types[i]);
    EXPECT_EQ(t.entry->offset % element_size(types[i]), 0u) << "readers view the data in place";
    const std::vector<std::byte> expected = test::to_bytes(types[i], tensors[i].values);
    ASSERT_EQ(t.bytes.size(), expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), t.bytes.begin()));
  }
  const std::string image = read_file(dir / "a.safetensors");
  EXPECT_EQ(parse(image).data_begin % 8, 0u);
  EXPECT_EQ(parse(image).metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(WriteSafetensors, AsksOnceForEachAndRefusesAWrongSize) {
  const TempDir dir;
  const std::vector<TensorPlan> plans = {
      {"a", TensorType::kI16, {2}}, {"b", TensorType::kF32, {1}}, {"c", TensorType::kI16, {2}}};
  std::vector<size_t> asked;
  const std::vector<std::byte> four(4), five(5);
  write_safetensors(dir / "x", plans, [&](size_t i) {
    asked.push_back(i);
    return std::span<const std::byte>(four);
  });
  EXPECT_EQ(asked, (std::vector<size_t>{1, 0, 2}));
  expect_error([&] { write_safetensors(dir / "y", plans, [&](size_t i) { return std::span(i == 2 ? five : four); }); },
               ErrorCode::kInternal, {"y: tensor c", "4 bytes were planned, 5 came"});
  EXPECT_FALSE(std::filesystem::exists(dir / "y"));
  write_safetensors(dir / "z", {}, {});
  EXPECT_TRUE(ShardSet(dir / "z").entries().empty());
}

TEST(ReadSafetensors, ReadsFilesOfTheReferenceLibrary) {
  const ShardSet set(std::filesystem::path(BW_FIXTURES) / "models" / "llama" / "golden.safetensors");
  const TensorData logits = set.require("logits");
  ASSERT_EQ(logits.shape().size(), 2u);
  std::vector<float> values(logits.entry->elements());
  read_floats(logits, values);
  double sum = 0, squares = 0;
  for (const float v : values) {
    sum += v;
    squares += double{v} * v;
  }
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(std::sqrt(squares / n - sum * sum / n / n), 3.0, 0.05);  // the spread that the script scales to
}

}  // namespace
}  // namespace bw::io
