// What both halves of the parser share: a cursor over tokens.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/jinja/lexer.h"

namespace bw::tokenizer::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& next() {
    const Token& token = tokens_[at_];
    if (token.kind != TokenKind::kEnd) ++at_;
    return token;
  }

  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_operator(std::string_view text) const { return is(TokenKind::kOperator) && current().text == text; }
  bool is_name(std::string_view text) const { return is(TokenKind::kName) && current().text == text; }
  bool skip_operator(std::string_view text) { return is_operator(text) && (next(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (next(), true); }

  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_expected("'" + std::string(text) + "'");
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) fail_expected("'" + std::string(text) + "'");
  }
  const Token& expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) fail_expected(std::string(what));
    return next();
  }

  [[noreturn]] void fail(const std::string& what) const { throw SyntaxFault(what, current().place); }
  [[noreturn]] void fail_expected(const std::string& what) const {
    fail("expected " + what + ", found " + describe(current()));
  }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kEnd:
        return "the end of the template";
      case TokenKind::kVariableEnd:
        return "the end of a print statement";
      case TokenKind::kBlockEnd:
        return "the end of a statement";
      case TokenKind::kName:
      case TokenKind::kOperator:
        return "'" + token.text + "'";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return "a number";
      default:
        return "template text";
    }
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace bw::tokenizer::jinja
