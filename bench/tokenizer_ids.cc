// Encodes and decodes texts for tools/check_tokenizer.py:
//   bench_tokenizer_ids TOKENIZER_JSON < TEXTS > RESULTS
// TEXTS is a sequence of (u32 length, bytes); RESULTS, for each, (u32 count, u32 ids with special tokens added, u32
// length, decoded bytes with special tokens kept), all little-endian.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "io/file_map.h"
#include "tokenizer/tokenizer.h"

namespace {

void write_u32(uint32_t value) { std::fwrite(&value, sizeof value, 1, stdout); }

void run(const char* path) {
  const bw::io::FileMap file(path);
  const auto bytes = file.bytes();
  const auto tokenizer =
      bw::tokenizer::Tokenizer::from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
  uint32_t length = 0;
  std::string text;
  while (std::fread(&length, sizeof length, 1, stdin) == 1) {
    text.resize(length);
    if (std::fread(text.data(), 1, length, stdin) != length) return;
    const std::vector<uint32_t> ids =
        tokenizer.encode(text, {.add_special_tokens = true, .parse_special_tokens = true});
    write_u32(static_cast<uint32_t>(ids.size()));
    std::fwrite(ids.data(), sizeof(uint32_t), ids.size(), stdout);
    const std::string decoded = tokenizer.decode(ids, false);
    write_u32(static_cast<uint32_t>(decoded.size()));
    std::fwrite(decoded.data(), 1, decoded.size(), stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: bench_tokenizer_ids TOKENIZER_JSON < TEXTS > RESULTS\n");
    return 2;
  }
  try {
    run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_tokenizer_ids: %s\n", error.what());
    return 1;
  }
  return 0;
}
