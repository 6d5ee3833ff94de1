// Reading tokenizer.json: a stream reader that keeps the large lists (vocabulary, merges) out of the JSON tree, and
// typed access to the fields of the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"
#include "tokenizer/vocab.h"

namespace bw::tokenizer {

// Throws Error(kModel). Errors inside a tokenizer do not name the file; Tokenizer::from_json adds it.
[[noreturn]] void bad_tokenizer(const std::string& what, const std::string& hint = {});
// A piece of untrusted text for a message: in double quotes, one line, cut if long.
std::string shown(std::string_view text);

struct TokenizerFile {
  io::Json json;                                            // all but the lists below, which are null in it
  Vocab vocab;                                              // model.vocab as an object (BPE)
  std::vector<std::pair<std::string, double>> pieces;       // model.vocab as an array of [token, score] (Unigram)
  std::vector<std::pair<std::string, std::string>> merges;  // model.merges, both spellings
};
TokenizerFile parse_tokenizer_file(std::string_view text);

// Fields of `object`. A field of the wrong type is an error that says `where`; null counts as absent.
bool bool_field(const io::Json& object, const char* key, bool absent, const std::string& where);
uint64_t uint_field(const io::Json& object, const char* key, uint64_t absent, const std::string& where);
std::string string_field(const io::Json& object, const char* key, const std::string& absent, const std::string& where);
std::string require_string(const io::Json& object, const char* key, const std::string& where);
// An empty array if absent.
const io::Json& array_field(const io::Json& object, const char* key, const std::string& where);
// The "type" of a component.
std::string component_type(const io::Json& object, const std::string& where);

}  // namespace bw::tokenizer
