#include "tokenizer/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "tokenizer/jinja/expression_parser.h"
#include "tokenizer/jinja/token_stream.h"

namespace bw::tokenizer::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view source) : stream_(tokenize(source)), expressions_(stream_) {}

  Block run() {
    Block body = parse_body({});
    if (!stream_.is(TokenKind::kEnd)) stream_.fail("unexpected " + TokenStream::describe(stream_.current()));
    return body;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  NodePtr make(Node::Kind kind, Place place) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->place = place;
    return node;
  }

  // Statements up to {% NAME with a name of `ends`, which is the current token then; to the end of the template if
  // there are none.
  Block parse_body(Ends ends) {
    if (++depth_ > kMaxTreeDepth / 4) stream_.fail("statements are nested too deeply");
    Block body;
    while (!stream_.is(TokenKind::kEnd)) {
      const Token& token = stream_.next();
      if (token.kind == TokenKind::kText) {
        body.push_back(make(Node::Kind::kText, token.place));
        body.back()->text = token.text;
      } else if (token.kind == TokenKind::kVariableBegin) {
        body.push_back(make(Node::Kind::kOutput, token.place));
        body.back()->values.push_back(expressions_.parse_tuple());
        stream_.expect(TokenKind::kVariableEnd, "'}}'");
      } else {
        const bool ends_here = std::any_of(ends.begin(), ends.end(), [&](auto name) { return stream_.is_name(name); });
        if (ends_here) return --depth_, std::move(body);
        body.push_back(parse_statement());
        stream_.expect(TokenKind::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() != 0) stream_.fail_expected("'{% " + std::string(*std::prev(ends.end())) + " %}'");
    return --depth_, std::move(body);
  }

  // "%}" statements, up to and without {% NAME; then goes past NAME and returns it.
  std::string parse_block(Block& body, Ends ends) {
    stream_.skip_operator(":");
    stream_.expect(TokenKind::kBlockEnd, "'%}'");
    body = parse_body(ends);
    return stream_.next().text;
  }

  NodePtr parse_statement() {
    const Token& token = stream_.current();
    if (token.kind != TokenKind::kName) stream_.fail_expected("the name of a statement");
    using Method = NodePtr (Parser::*)(Place);
    static constexpr std::pair<std::string_view, Method> kStatements[] = {
        {"for", &Parser::parse_for},     {"if", &Parser::parse_if},         {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro}, {"call", &Parser::parse_call},     {"filter", &Parser::parse_filter},
        {"with", &Parser::parse_with},   {"print", &Parser::parse_print},   {"generation", &Parser::parse_generation},
        {"break", &Parser::parse_jump},  {"continue", &Parser::parse_jump},
    };
    for (const auto& [name, method] : kStatements) {
      if (!stream_.is_name(name)) continue;
      if (method != &Parser::parse_jump) stream_.next();
      return (this->*method)(token.place);
    }
    stream_.fail("unknown or unsupported statement '" + token.text + "'");
  }

  // A name, literal-free: name, (a, b), or, with namespaces, name.attribute.
  Target parse_target_part(bool with_attribute) {
    Target target;
    target.place = stream_.current().place;
    if (stream_.skip_operator("(")) {
      target = parse_target(with_attribute);
      stream_.expect_operator(")");
      return target;
    }
    target.name = stream_.expect(TokenKind::kName, "a name to assign to").text;
    static constexpr std::string_view kReserved[] = {"true", "True", "false", "False", "none", "None"};
    if (std::find(std::begin(kReserved), std::end(kReserved), target.name) != std::end(kReserved)) {
      throw SyntaxFault("cannot assign to '" + target.name + "'", target.place);
    }
    if (with_attribute && stream_.skip_operator(".")) {
      target.kind = Target::Kind::kAttribute;
      target.attribute = stream_.expect(TokenKind::kName, "the name of an attribute").text;
    }
    return target;
  }

  Target parse_target(bool with_attribute) {
    if (++depth_ > kMaxTreeDepth / 4) stream_.fail("assignment is nested too deeply");
    Target first = parse_target_part(with_attribute);
    if (stream_.is_operator(",")) {
      Target tuple;
      tuple.kind = Target::Kind::kTuple;
      tuple.place = first.place;
      tuple.parts.push_back(std::move(first));
      while (stream_.skip_operator(",")) {
        if (!stream_.is(TokenKind::kName) && !stream_.is_operator("(")) break;
        if (stream_.is_name("in")) break;
        tuple.parts.push_back(parse_target_part(with_attribute));
      }
      first = std::move(tuple);
    }
    --depth_;
    return first;
  }

  NodePtr parse_for(Place place) {
    NodePtr node = make(Node::Kind::kFor, place);
    node->target = parse_target(false);
    stream_.expect_name("in");
    node->values.push_back(expressions_.parse_tuple(false, "recursive"));
    node->values.push_back(stream_.skip_name("if") ? expressions_.parse_expression() : nullptr);
    if (stream_.is_name("recursive")) stream_.fail("recursive loops are not supported");
    ++loops_;
    const std::string end = parse_block(node->body, {"else", "endfor"});
    --loops_;
    if (end == "else") parse_block(node->otherwise, {"endfor"});
    return node;
  }

  NodePtr parse_if(Place place) {
    NodePtr node = make(Node::Kind::kIf, place);
    std::string end = "elif";
    while (end == "elif") {
      node->values.push_back(expressions_.parse_tuple(false));
      node->branches.emplace_back();
      end = parse_block(node->branches.back(), {"elif", "else", "endif"});
    }
    if (end == "else") parse_block(node->otherwise, {"endif"});
    return node;
  }

  NodePtr parse_set(Place place) {
    NodePtr node = make(Node::Kind::kSet, place);
    node->target = parse_target(true);
    if (stream_.skip_operator("=")) {
      node->values.push_back(expressions_.parse_tuple());
      return node;
    }
    node->kind = Node::Kind::kSetBlock;
    node->values.push_back(expressions_.parse_filters(nullptr));
    parse_block(node->body, {"endset"});
    return node;
  }

  void parse_parameters(MacroNode& macro) {
    stream_.expect_operator("(");
    while (!stream_.is_operator(")")) {
      if (!macro.parameters.empty()) stream_.expect_operator(",");
      MacroNode::Parameter parameter;
      parameter.name = stream_.expect(TokenKind::kName, "the name of a parameter").text;
      if (stream_.skip_operator("=")) {
        parameter.fallback = expressions_.parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
        stream_.fail("non-default argument follows default argument");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    stream_.expect_operator(")");
  }

  // A body of its own: no break or continue of a loop around it.
  void parse_macro_body(MacroNode& macro, std::string_view end) {
    const int outer = std::exchange(loops_, 0);
    const ExpressionParser::SpecialNames before = expressions_.special_names();
    parse_block(macro.body, {end});
    const ExpressionParser::SpecialNames& after = expressions_.special_names();
    macro.uses_varargs = after.varargs != before.varargs;
    macro.uses_kwargs = after.kwargs != before.kwargs;
    macro.uses_caller = after.caller != before.caller;
    loops_ = outer;
  }

  NodePtr parse_macro(Place place) {
    NodePtr node = make(Node::Kind::kMacro, place);
    node->macro = std::make_unique<MacroNode>();
    node->macro->name = stream_.expect(TokenKind::kName, "the name of the macro").text;
    parse_parameters(*node->macro);
    parse_macro_body(*node->macro, "endmacro");
    return node;
  }

  NodePtr parse_call(Place place) {
    NodePtr node = make(Node::Kind::kCall, place);
    node->macro = std::make_unique<MacroNode>();
    node->macro->name = "caller";
    if (stream_.is_operator("(")) parse_parameters(*node->macro);
    node->values.push_back(expressions_.parse_expression());
    if (node->values[0]->kind != Expr::Kind::kCall) throw SyntaxFault("expected call", place);
    parse_macro_body(*node->macro, "endcall");
    return node;
  }

  NodePtr parse_filter(Place place) {
    NodePtr node = make(Node::Kind::kFilter, place);
    node->values.push_back(expressions_.parse_filters(nullptr, true));
    parse_block(node->body, {"endfilter"});
    return node;
  }

  NodePtr parse_with(Place place) {
    NodePtr node = make(Node::Kind::kWith, place);
    while (!stream_.is(TokenKind::kBlockEnd)) {
      if (!node->targets.empty()) stream_.expect_operator(",");
      node->targets.push_back(parse_target_part(false));
      stream_.expect_operator("=");
      node->values.push_back(expressions_.parse_expression());
    }
    parse_block(node->body, {"endwith"});
    return node;
  }

  NodePtr parse_print(Place place) {
    NodePtr node = make(Node::Kind::kOutput, place);
    while (!stream_.is(TokenKind::kBlockEnd)) {
      if (!node->values.empty()) stream_.expect_operator(",");
      node->values.push_back(expressions_.parse_expression());
    }
    return node;
  }

  NodePtr parse_generation(Place place) {
    NodePtr node = make(Node::Kind::kScope, place);
    const int outer = std::exchange(loops_, 0);
    parse_block(node->body, {"endgeneration"});
    loops_ = outer;
    return node;
  }

  NodePtr parse_jump(Place place) {
    const bool breaks = stream_.next().text == "break";
    if (loops_ == 0) throw SyntaxFault(breaks ? "'break' outside loop" : "'continue' outside loop", place);
    return make(breaks ? Node::Kind::kBreak : Node::Kind::kContinue, place);
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source) { return Parser(source).run(); }

}  // namespace bw::tokenizer::jinja
