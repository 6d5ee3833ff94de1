// Expressions of the Jinja grammar.
#pragma once

#include <string_view>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/token_stream.h"

namespace bw::tokenizer::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  ExprPtr parse_expression() { return parse_conditional(); }
  // Expressions with commas between them are one tuple. `end_name`: a name that also ends it ("" for none).
  ExprPtr parse_tuple(bool with_conditional = true, std::string_view end_name = {}, bool in_parentheses = false);
  // `node` may be null (filter blocks); filters follow as "| name" or, with `first_inline`, as "name" for the first.
  ExprPtr parse_filters(ExprPtr node, bool first_inline = false);

  // How often these names have been read so far: a macro takes further arguments only if its body names them.
  struct SpecialNames {
    int varargs = 0, kwargs = 0, caller = 0;
  };
  const SpecialNames& special_names() const { return special_names_; }

 private:
  class DepthGuard;
  ExprPtr make(Expr::Kind kind, Place place);
  ExprPtr finish(ExprPtr node);
  ExprPtr unary(Expr::Kind kind, Place place, ExprPtr operand);
  ExprPtr binary(Expr::Kind kind, Op op, Place place, ExprPtr left, ExprPtr right);

  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  bool parse_compare_operator(Op& op);
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_subscript_part();
  ExprPtr parse_call(ExprPtr node);
  ExprPtr parse_test(ExprPtr node);
  Arguments parse_arguments();

  TokenStream& stream_;
  SpecialNames special_names_;
  int depth_ = 0;  // of the recursion
};

}  // namespace bw::tokenizer::jinja
