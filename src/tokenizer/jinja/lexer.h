// Splits a template into tokens, with Jinja's white space control (trim_blocks and lstrip_blocks on).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/ast.h"

namespace bw::tokenizer::jinja {

enum class TokenKind : uint8_t {
  kText,  // template data, white space already trimmed
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // text is its spelling
  kEnd
};

struct Token {
  TokenKind kind{};
  std::string text;
  int64_t integer = 0;
  double real = 0;
  Place place;
};

// A syntax error and where it is.
struct SyntaxFault : Fault {
  SyntaxFault(const std::string& what, Place where) : Fault(what), place(where) {}
  Place place;
};

// `source` is valid UTF-8. Throws SyntaxFault. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace bw::tokenizer::jinja
