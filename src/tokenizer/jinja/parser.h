// Tokens to a syntax tree, with Jinja's grammar and precedences.
#pragma once

#include <string_view>

#include "tokenizer/jinja/ast.h"

namespace bw::tokenizer::jinja {

// `source` is valid UTF-8. Throws SyntaxFault (lexer.h), also for statements that chat templates do not use (include,
// block ...) and for templates that are nested more deeply than kMaxTreeDepth.
Block parse_template(std::string_view source);

}  // namespace bw::tokenizer::jinja
