// The syntax tree of a template.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace bw::tokenizer::jinja {

// Counted from 1; columns in bytes.
struct Place {
  uint32_t line = 1, column = 1;
};

// Trees are no deeper than this: walking and destroying them recurses.
inline constexpr int kMaxTreeDepth = 200;

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;  // null if absent
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

struct Expr {
  enum class Kind : uint8_t {
    kConstant,   // value
    kName,       // name
    kAttribute,  // operands[0] . name
    kItem,       // operands[0] [ operands[1] ]
    kSlice,      // only as operands[1] of kItem: three operands, null if absent
    kCall,       // operands[0] ( arguments )
    kFilter,     // operands[0] | name ( arguments ); operands[0] is null in a filter block
    kTest,       // operands[0] is name ( arguments )
    kList,       // operands
    kTuple,      // operands
    kDict,       // operands: key, value, key, value ...
    kBinary,     // operands[0] op operands[1]
    kCompare,    // operands[0] ops[0] operands[1] ops[1] operands[2] ...
    kConcat,     // operands[0] ~ operands[1] ...
    kAnd,
    kOr,  // operands[0], operands[1]
    kNot,
    kNegative,
    kPositive,     // operands[0]
    kConditional,  // operands[1] if operands[0] else operands[2] (null if absent)
  };
  Kind kind{};
  Place place;
  int depth = 1;
  Op op{};
  std::vector<Op> ops;
  std::string name;
  Value value;
  std::vector<ExprPtr> operands;
  Arguments arguments;
};

// What can stand left of '=' or after 'for': a name, name.attribute (of a namespace), or several of them.
struct Target {
  enum class Kind : uint8_t { kName, kAttribute, kTuple };
  Kind kind{};
  Place place;
  std::string name, attribute;
  std::vector<Target> parts;
};

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Block = std::vector<NodePtr>;

// A macro, or the body of a call or generation block (name "caller").
struct MacroNode {
  struct Parameter {
    std::string name;
    ExprPtr fallback;  // null if absent
  };
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Node {
  enum class Kind : uint8_t {
    kText,      // text
    kOutput,    // values, printed one after the other
    kFor,       // target in values[0], values[1] = condition (null if absent); body, otherwise
    kIf,        // values[i]: the conditions of if and elif, with branches[i]; otherwise
    kSet,       // target = values[0]
    kSetBlock,  // target = body, filtered by values[0] (null if absent)
    kFilter,    // body filtered by values[0]
    kWith,      // targets[i] = values[i]; body
    kMacro,     // macro
    kCall,      // values[0] is the call, macro its caller
    kScope,     // body with variables of its own (a generation block)
    kBreak,
    kContinue,
  };
  Kind kind{};
  Place place;
  std::string text;
  Target target;
  std::vector<Target> targets;
  std::vector<ExprPtr> values;
  std::vector<Block> branches;
  Block body, otherwise;
  std::unique_ptr<MacroNode> macro;
};

}  // namespace bw::tokenizer::jinja
