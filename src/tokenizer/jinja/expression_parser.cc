#include "tokenizer/jinja/expression_parser.h"

#include <algorithm>

namespace bw::tokenizer::jinja {

// Bounds the recursion over brackets and prefix operators; finish() bounds the trees that loops build.
class ExpressionParser::DepthGuard {
 public:
  explicit DepthGuard(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMaxTreeDepth) {
      --parser_.depth_;
      parser_.stream_.fail("expression is nested too deeply");
    }
  }
  ~DepthGuard() { --parser_.depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  ExpressionParser& parser_;
};

ExprPtr ExpressionParser::make(Expr::Kind kind, Place place) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->place = place;
  return node;
}

// Sets the depth once all operands are there.
ExprPtr ExpressionParser::finish(ExprPtr node) {
  int deepest = 0;
  const auto see = [&](const ExprPtr& child) {
    if (child) deepest = std::max(deepest, child->depth);
  };
  for (const ExprPtr& child : node->operands) see(child);
  for (const ExprPtr& child : node->arguments.positional) see(child);
  for (const auto& [name, child] : node->arguments.named) see(child);
  see(node->arguments.star);
  see(node->arguments.double_star);
  node->depth = deepest + 1;
  if (node->depth > kMaxTreeDepth) throw SyntaxFault("expression is nested too deeply", node->place);
  return node;
}

ExprPtr ExpressionParser::unary(Expr::Kind kind, Place place, ExprPtr operand) {
  ExprPtr node = make(kind, place);
  node->operands.push_back(std::move(operand));
  return finish(std::move(node));
}

ExprPtr ExpressionParser::binary(Expr::Kind kind, Op op, Place place, ExprPtr left, ExprPtr right) {
  ExprPtr node = make(kind, place);
  node->op = op;
  node->operands.push_back(std::move(left));
  node->operands.push_back(std::move(right));
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_conditional() {
  DepthGuard guard(*this);
  ExprPtr value = parse_or();
  while (stream_.is_name("if")) {
    ExprPtr node = make(Expr::Kind::kConditional, stream_.next().place);
    node->operands.push_back(parse_or());
    node->operands.push_back(std::move(value));
    node->operands.push_back(stream_.skip_name("else") ? parse_conditional() : nullptr);
    value = finish(std::move(node));
  }
  return value;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  while (stream_.is_name("or")) {
    const Place place = stream_.next().place;
    left = binary(Expr::Kind::kOr, Op{}, place, std::move(left), parse_and());
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  while (stream_.is_name("and")) {
    const Place place = stream_.next().place;
    left = binary(Expr::Kind::kAnd, Op{}, place, std::move(left), parse_not());
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  if (!stream_.is_name("not")) return parse_compare();
  DepthGuard guard(*this);
  const Place place = stream_.next().place;
  return unary(Expr::Kind::kNot, place, parse_not());
}

// Goes past a comparison operator, if one stands here.
bool ExpressionParser::parse_compare_operator(Op& op) {
  static constexpr std::pair<std::string_view, Op> kOperators[] = {{"==", Op::kEqual},     {"!=", Op::kNotEqual},
                                                                   {"<", Op::kLess},       {">", Op::kGreater},
                                                                   {"<=", Op::kLessEqual}, {">=", Op::kGreaterEqual}};
  for (const auto& [text, value] : kOperators) {
    if (stream_.skip_operator(text)) return op = value, true;
  }
  if (stream_.skip_name("in")) return op = Op::kIn, true;
  const bool not_in = stream_.is_name("not") && stream_.look().kind == TokenKind::kName && stream_.look().text == "in";
  if (!not_in) return false;
  stream_.next();
  stream_.next();
  op = Op::kNotIn;
  return true;
}

ExprPtr ExpressionParser::parse_compare() {
  const Place place = stream_.current().place;
  ExprPtr first = parse_sum();
  Op op{};
  if (!parse_compare_operator(op)) return first;
  ExprPtr node = make(Expr::Kind::kCompare, place);
  node->operands.push_back(std::move(first));
  do {
    node->ops.push_back(op);
    node->operands.push_back(parse_sum());
  } while (parse_compare_operator(op));
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (stream_.is_operator("+") || stream_.is_operator("-")) {
    const Token& token = stream_.next();
    const Op op = token.text == "+" ? Op::kAdd : Op::kSubtract;
    left = binary(Expr::Kind::kBinary, op, token.place, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  ExprPtr first = parse_product();
  if (!stream_.is_operator("~")) return first;
  ExprPtr node = make(Expr::Kind::kConcat, stream_.current().place);
  node->operands.push_back(std::move(first));
  while (stream_.skip_operator("~")) node->operands.push_back(parse_product());
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, Op> kOperators[] = {
      {"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}};
  ExprPtr left = parse_power();
  for (;;) {
    const Token& token = stream_.current();
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& entry) { return stream_.is_operator(entry.first); });
    if (found == std::end(kOperators)) return left;
    stream_.next();
    left = binary(Expr::Kind::kBinary, found->second, token.place, std::move(left), parse_power());
  }
}

// Left to right, as Jinja has it.
ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (stream_.is_operator("**")) {
    const Place place = stream_.next().place;
    left = binary(Expr::Kind::kBinary, Op::kPower, place, std::move(left), parse_unary(true));
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  ExprPtr node;
  if (stream_.is_operator("-") || stream_.is_operator("+")) {
    DepthGuard guard(*this);
    const Token& token = stream_.next();
    node = unary(token.text == "-" ? Expr::Kind::kNegative : Expr::Kind::kPositive, token.place, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::parse_name() {
  const Token& token = stream_.next();
  const std::string& name = token.text;
  ExprPtr node = make(Expr::Kind::kConstant, token.place);
  if (name == "true" || name == "True") {
    node->value = Value(true);
  } else if (name == "false" || name == "False") {
    node->value = Value(false);
  } else if (name != "none" && name != "None") {
    node->kind = Expr::Kind::kName;
    node->name = name;
    special_names_.varargs += name == "varargs";
    special_names_.kwargs += name == "kwargs";
    special_names_.caller += name == "caller";
  }
  return node;
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = stream_.current();
  if (token.kind == TokenKind::kName) return parse_name();
  if (stream_.is_operator("[")) return parse_list();
  if (stream_.is_operator("{")) return parse_dict();
  if (stream_.skip_operator("(")) {
    ExprPtr node = parse_tuple(true, {}, true);
    stream_.expect_operator(")");
    return node;
  }
  ExprPtr node = make(Expr::Kind::kConstant, token.place);
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (stream_.is(TokenKind::kString)) text += stream_.next().text;
    node->value = Value::string(std::move(text));
  } else if (token.kind == TokenKind::kInteger) {
    node->value = Value(stream_.next().integer);
  } else if (token.kind == TokenKind::kFloat) {
    node->value = Value(stream_.next().real);
  } else {
    stream_.fail("unexpected " + TokenStream::describe(token));
  }
  return node;
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view end_name, bool in_parentheses) {
  DepthGuard guard(*this);
  const Place place = stream_.current().place;
  const auto at_end = [&] {
    return stream_.is(TokenKind::kVariableEnd) || stream_.is(TokenKind::kBlockEnd) || stream_.is_operator(")") ||
           (!end_name.empty() && stream_.is_name(end_name));
  };
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!at_end()) {
    items.push_back(with_conditional ? parse_conditional() : parse_or());
    if (!stream_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !in_parentheses) stream_.fail_expected("an expression");
  ExprPtr node = make(Expr::Kind::kTuple, place);
  node->operands = std::move(items);
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_list() {
  DepthGuard guard(*this);
  ExprPtr node = make(Expr::Kind::kList, stream_.next().place);
  while (!stream_.is_operator("]")) {
    node->operands.push_back(parse_expression());
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator("]");
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_dict() {
  DepthGuard guard(*this);
  ExprPtr node = make(Expr::Kind::kDict, stream_.next().place);
  while (!stream_.is_operator("}")) {
    node->operands.push_back(parse_expression());
    stream_.expect_operator(":");
    node->operands.push_back(parse_expression());
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator("}");
  return finish(std::move(node));
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr node) {
  for (;;) {
    if (stream_.is_operator(".") || stream_.is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (stream_.is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr node) {
  for (;;) {
    if (stream_.is_operator("|")) {
      node = parse_filters(std::move(node));
    } else if (stream_.is_name("is")) {
      node = parse_test(std::move(node));
    } else if (stream_.is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr node) {
  const Token& token = stream_.next();
  if (token.text == ".") {
    if (stream_.is(TokenKind::kName)) {
      ExprPtr attribute = unary(Expr::Kind::kAttribute, token.place, std::move(node));
      attribute->name = stream_.next().text;
      return attribute;
    }
    ExprPtr index = make(Expr::Kind::kConstant, token.place);
    index->value = Value(stream_.expect(TokenKind::kInteger, "a name or a number").integer);
    return binary(Expr::Kind::kItem, Op{}, token.place, std::move(node), std::move(index));
  }
  DepthGuard guard(*this);
  std::vector<ExprPtr> parts;
  while (!stream_.is_operator("]")) {
    if (!parts.empty()) stream_.expect_operator(",");
    parts.push_back(parse_subscript_part());
  }
  stream_.expect_operator("]");
  ExprPtr index;
  if (parts.size() == 1) {
    index = std::move(parts.front());
  } else {
    for (const ExprPtr& part : parts) {
      if (part->kind == Expr::Kind::kSlice) stream_.fail("slices of several dimensions are not supported");
    }
    index = make(Expr::Kind::kTuple, token.place);
    index->operands = std::move(parts);
    index = finish(std::move(index));
  }
  return binary(Expr::Kind::kItem, Op{}, token.place, std::move(node), std::move(index));
}

ExprPtr ExpressionParser::parse_subscript_part() {
  const Place place = stream_.current().place;
  ExprPtr start;
  if (!stream_.is_operator(":")) {
    start = parse_expression();
    if (!stream_.is_operator(":")) return start;
  }
  stream_.next();
  const auto bound = [&]() -> ExprPtr {
    const bool absent = stream_.is_operator(":") || stream_.is_operator("]") || stream_.is_operator(",");
    return absent ? nullptr : parse_expression();
  };
  ExprPtr node = make(Expr::Kind::kSlice, place);
  node->operands.push_back(std::move(start));
  node->operands.push_back(bound());
  node->operands.push_back(stream_.skip_operator(":") ? bound() : nullptr);
  return finish(std::move(node));
}

Arguments ExpressionParser::parse_arguments() {
  DepthGuard guard(*this);
  Arguments out;
  const Place place = stream_.current().place;
  const auto ensure = [&](bool holds) {
    if (!holds) throw SyntaxFault("invalid syntax for function call expression", place);
  };
  stream_.expect_operator("(");
  while (!stream_.is_operator(")")) {
    if (stream_.skip_operator("*")) {
      ensure(!out.star && !out.double_star);
      out.star = parse_expression();
    } else if (stream_.skip_operator("**")) {
      ensure(!out.double_star);
      out.double_star = parse_expression();
    } else if (stream_.is(TokenKind::kName) && stream_.look().kind == TokenKind::kOperator &&
               stream_.look().text == "=") {
      ensure(!out.double_star);
      std::string name = stream_.next().text;
      stream_.next();
      for (const auto& [other, value] : out.named) ensure(other != name);
      out.named.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!out.star && !out.double_star && out.named.empty());
      out.positional.push_back(parse_expression());
    }
    if (!stream_.skip_operator(",")) break;
  }
  stream_.expect_operator(")");
  return out;
}

ExprPtr ExpressionParser::parse_call(ExprPtr node) {
  ExprPtr call = make(Expr::Kind::kCall, stream_.current().place);
  call->operands.push_back(std::move(node));
  call->arguments = parse_arguments();
  return finish(std::move(call));
}

ExprPtr ExpressionParser::parse_filters(ExprPtr node, bool first_inline) {
  while (first_inline || stream_.skip_operator("|")) {
    first_inline = false;
    const Token& token = stream_.expect(TokenKind::kName, "the name of a filter");
    ExprPtr filter = make(Expr::Kind::kFilter, token.place);
    filter->name = token.text;
    filter->operands.push_back(std::move(node));
    if (stream_.is_operator("(")) filter->arguments = parse_arguments();
    node = finish(std::move(filter));
  }
  return node;
}

ExprPtr ExpressionParser::parse_test(ExprPtr node) {
  const Place place = stream_.next().place;
  const bool negated = stream_.skip_name("not");
  ExprPtr test = make(Expr::Kind::kTest, place);
  test->name = stream_.expect(TokenKind::kName, "the name of a test").text;
  test->operands.push_back(std::move(node));
  const bool value_follows =
      stream_.is(TokenKind::kString) || stream_.is(TokenKind::kInteger) || stream_.is(TokenKind::kFloat) ||
      stream_.is_operator("[") || stream_.is_operator("{") ||
      (stream_.is(TokenKind::kName) && !stream_.is_name("else") && !stream_.is_name("or") && !stream_.is_name("and"));
  if (stream_.is_operator("(")) {
    test->arguments = parse_arguments();
  } else if (value_follows) {
    if (stream_.is_name("is")) stream_.fail("You cannot chain multiple tests with is");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  return negated ? unary(Expr::Kind::kNot, place, std::move(test)) : std::move(test);
}

}  // namespace bw::tokenizer::jinja
