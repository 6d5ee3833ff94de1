#include "tokenizer/jinja/interpreter.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string_view>

#include "tokenizer/jinja/macro_arguments.h"
#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/scope.h"

namespace bw::tokenizer::jinja {

namespace {

constexpr size_t kMaxOutput = size_t{64} << 20;
constexpr size_t kMaxMacros = 10'000;
constexpr uint64_t kExprCost = 40;

enum class Flow { kNormal, kBreak, kContinue };

class Interpreter {
 public:
  Interpreter(const std::vector<std::pair<std::string, Value>>& variables, const std::tm& clock, uint64_t budget)
      : context_(budget) {
    context_.clock = clock;
    scope_ = std::make_shared<Scope>();
    for (const auto& [name, value] : variables) scope_->variables[name] = value;
    scope_ = std::make_shared<Scope>(Scope{scope_, {}});
  }
  // Macros and the scopes that hold them refer to each other.
  ~Interpreter() {
    for (const auto& scope : captured_) scope->variables.clear();
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run(const Block& body) {
    try {
      std::string out;
      out_ = &out;
      execute(body);
      return out;
    } catch (const Fault& fault) {
      throw RuntimeFault(fault.what(), place_);
    }
  }

 private:
  // A scope of its own below `parent` for as long as it lives.
  class ScopeGuard {
   public:
    ScopeGuard(Interpreter& owner, std::shared_ptr<Scope> parent) : owner_(owner), outer_(owner.scope_) {
      owner_.scope_ = std::make_shared<Scope>(Scope{std::move(parent), {}});
    }
    explicit ScopeGuard(Interpreter& owner) : ScopeGuard(owner, owner.scope_) {}
    ~ScopeGuard() { owner_.scope_ = outer_; }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Interpreter& owner_;
    std::shared_ptr<Scope> outer_;
  };

  // Sends output to a string of its own for as long as it lives.
  class Capture {
   public:
    explicit Capture(Interpreter& owner) : owner_(owner), outer_(owner.out_) { owner_.out_ = &text; }
    ~Capture() { owner_.out_ = outer_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    std::string text;

   private:
    Interpreter& owner_;
    std::string* outer_;
  };

  void print(std::string_view text) {
    context_.meter.charge(text.size());
    if (out_->size() + text.size() > kMaxOutput) throw Fault("the template writes too much");
    *out_ += text;
  }

  // ---- variables

  Value lookup(const std::string& name) {
    for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
      const auto found = scope->variables.find(name);
      if (found != scope->variables.end()) return found->second;
    }
    if (has_global(name)) return Value(std::make_shared<const Function>(Function{name, Value(), false}));
    return Value::undefined("'" + name + "' is undefined");
  }

  void assign(const Target& target, const Value& value) {
    place_ = target.place;
    if (target.kind == Target::Kind::kName) {
      scope_->variables[target.name] = value;
    } else if (target.kind == Target::Kind::kAttribute) {
      assign_attribute(target, value);
    } else {
      const std::vector<Value> items = iterate(value, context_);
      if (items.size() != target.parts.size()) {
        const bool few = items.size() < target.parts.size();
        throw Fault(few ? "not enough values to unpack (expected " + std::to_string(target.parts.size()) + ", got " +
                              std::to_string(items.size()) + ")"
                        : "too many values to unpack (expected " + std::to_string(target.parts.size()) + ")");
      }
      for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    }
  }

  void assign_attribute(const Target& target, const Value& value) {
    const Value object = lookup(target.name);
    if (!object.is<Namespace*>()) throw Fault("cannot assign attribute on non-namespace object");
    if (target.attribute.starts_with('_')) {
      throw Fault("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
                  target.attribute + "'.");
    }
    Dict& attributes = object.as<Namespace*>()->attributes;
    context_.meter.charge(attributes.entries.size());
    attributes.set(Value::string(target.attribute), value, context_.meter);
  }

  // ---- statements

  Flow execute(const Block& body) {
    DepthGuard guard(depth_);
    for (const NodePtr& node : body) {
      const Flow flow = execute(*node);
      if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
  }

  Flow execute(const Node& node) {
    context_.meter.charge(kExprCost);
    place_ = node.place;
    switch (node.kind) {
      case Node::Kind::kText:
        print(node.text);
        break;
      case Node::Kind::kOutput:
        for (const ExprPtr& value : node.values) print(to_text(evaluate(*value), context_.meter));
        break;
      case Node::Kind::kFor:
        return execute_for(node);
      case Node::Kind::kIf:
        return execute_if(node);
      case Node::Kind::kSet:
        assign(node.target, evaluate(*node.values[0]));
        break;
      case Node::Kind::kSetBlock:
        assign(node.target, filtered_body(node));
        break;
      case Node::Kind::kFilter:
        print(to_text(filtered_body(node), context_.meter));
        break;
      case Node::Kind::kWith:
        return execute_with(node);
      case Node::Kind::kMacro:
        scope_->variables[node.macro->name] = make_macro(*node.macro);
        break;
      case Node::Kind::kCall:
        execute_call(node);
        break;
      case Node::Kind::kScope: {
        ScopeGuard scope(*this);
        return execute(node.body);
      }
      case Node::Kind::kBreak:
        return Flow::kBreak;
      case Node::Kind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNormal;
  }

  Flow execute_if(const Node& node) {
    for (size_t i = 0; i < node.values.size(); ++i) {
      if (truth(evaluate(*node.values[i]))) return execute(node.branches[i]);
    }
    return execute(node.otherwise);
  }

  Flow execute_for(const Node& node) {
    auto loop = std::make_shared<Loop>();
    loop->items = iterate(evaluate(*node.values[0]), context_);
    ScopeGuard scope(*this);
    if (node.values[1]) filter_items(loop->items, node);
    if (loop->items.empty()) return execute(node.otherwise);
    // The nesting of what the loop holds, counted as a list's is.
    loop->nesting = Value::list(loop->items).nesting() + 1;
    for (size_t i = 0; i < loop->items.size(); ++i) {
      context_.meter.charge(kExprCost);
      loop->index0 = i;
      scope_->variables.clear();
      scope_->variables["loop"] = Value(loop);
      assign(node.target, loop->items[i]);
      if (execute(node.body) == Flow::kBreak) break;
    }
    return Flow::kNormal;
  }

  // Keeps the items for which the condition of the loop holds.
  void filter_items(std::vector<Value>& items, const Node& node) {
    std::vector<Value> kept;
    for (Value& item : items) {
      scope_->variables.clear();
      assign(node.target, item);
      if (truth(evaluate(*node.values[1]))) kept.push_back(std::move(item));
    }
    scope_->variables.clear();
    items = std::move(kept);
  }

  Flow execute_with(const Node& node) {
    std::vector<Value> values;
    for (const ExprPtr& value : node.values) values.push_back(evaluate(*value));
    ScopeGuard scope(*this);
    for (size_t i = 0; i < values.size(); ++i) assign(node.targets[i], values[i]);
    return execute(node.body);
  }

  // The body's text, through the filters of values[0] if there are any.
  Value filtered_body(const Node& node) {
    Capture capture(*this);
    {
      ScopeGuard scope(*this);
      execute(node.body);
    }
    Value text = Value::string(std::move(capture.text));
    return node.values[0] ? apply_filters(*node.values[0], text) : text;
  }

  Value apply_filters(const Expr& filter, const Value& text) {
    const Value input = filter.operands[0] ? apply_filters(*filter.operands[0], text) : text;
    const CallArguments arguments = evaluate_arguments(filter.arguments);
    place_ = filter.place;
    return apply_filter(filter.name, input, arguments, context_);
  }

  void execute_call(const Node& node) {
    const Expr& call = *node.values[0];
    const Value callee = evaluate(*call.operands[0]);
    CallArguments arguments = evaluate_arguments(call.arguments);
    arguments.named.emplace_back("caller", make_macro(*node.macro));
    place_ = call.place;
    print(to_text(invoke(callee, arguments), context_.meter));
  }

  // ---- macros

  Value make_macro(const MacroNode& node) {
    if (macros_.size() == kMaxMacros) throw Fault("the template defines too many macros");
    for (std::shared_ptr<Scope> scope = scope_; scope; scope = scope->parent) {
      if (!captured_.empty() && captured_.back() == scope) break;
      captured_.push_back(scope);
    }
    macros_.push_back({&node, scope_.get()});
    return Value(static_cast<const Macro*>(&macros_.back()));
  }

  // Shared ownership of a scope that a macro has captured.
  std::shared_ptr<Scope> owner_of(const Scope* scope) {
    const auto found =
        std::find_if(captured_.rbegin(), captured_.rend(), [&](const auto& s) { return s.get() == scope; });
    context_.meter.charge(static_cast<uint64_t>(found - captured_.rbegin()));
    return *found;
  }

  Value invoke_macro(const Macro& macro, CallArguments arguments) {
    DepthGuard guard(depth_);
    const MacroNode& node = *macro.node;
    ScopeGuard scope(*this, owner_of(macro.scope));
    const Place call_place = place_;
    bind_macro_arguments(
        node, std::move(arguments),
        [&](std::string_view name, Value value) { scope_->variables[name] = std::move(value); },
        [&](const Expr& fallback) { return evaluate(fallback); }, context_.meter);
    place_ = call_place;
    Capture capture(*this);
    execute(node.body);
    return Value::string(std::move(capture.text));
  }

  Value invoke(const Value& callee, const CallArguments& arguments) {
    if (callee.is<const Macro*>()) return invoke_macro(*callee.as<const Macro*>(), arguments);
    if (callee.is<std::shared_ptr<const Function>>()) {
      const Function& function = *callee.as<std::shared_ptr<const Function>>();
      if (!function.is_method) return call_global(function.name, arguments, context_);
      return call_method(function.self, function.name, arguments, context_);
    }
    if (callee.is_undefined()) throw Fault(*callee.as<Undefined>().reason);
    if (callee.is<std::shared_ptr<Loop>>()) {
      throw Fault("The loop must have the 'recursive' marker to be called recursively.");
    }
    throw Fault("'" + type_name(callee) + "' object is not callable");
  }

  // ---- expressions

  CallArguments evaluate_arguments(const Arguments& arguments) {
    CallArguments out;
    for (const ExprPtr& value : arguments.positional) out.positional.push_back(evaluate(*value));
    if (arguments.star) {
      for (Value& item : iterate(evaluate(*arguments.star), context_)) out.positional.push_back(std::move(item));
    }
    for (const auto& [name, value] : arguments.named) out.named.emplace_back(name, evaluate(*value));
    if (arguments.double_star) add_named(out, evaluate(*arguments.double_star));
    return out;
  }

  void add_named(CallArguments& out, const Value& mapping) {
    if (!mapping.as_dict()) throw Fault("argument after ** must be a mapping, not " + type_name(mapping));
    for (const auto& [key, value] : mapping.as_dict()->entries) {
      if (!key.is_string()) throw Fault("keywords must be strings");
      context_.meter.charge(out.named.size() + 1);
      const bool twice =
          std::any_of(out.named.begin(), out.named.end(), [&, &text = key.text()](auto& n) { return n.first == text; });
      if (twice) throw Fault("got multiple values for keyword argument '" + key.text() + "'");
      out.named.emplace_back(key.text(), value);
    }
  }

  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& expressions) {
    std::vector<Value> values;
    values.reserve(expressions.size());
    for (const ExprPtr& expression : expressions) values.push_back(evaluate(*expression));
    return values;
  }

  Value evaluate(const Expr& e) {
    DepthGuard guard(depth_);
    context_.meter.charge(kExprCost);
    place_ = e.place;
    switch (e.kind) {
      case Expr::Kind::kConstant:
        return e.value;
      case Expr::Kind::kName:
        return lookup(e.name);
      case Expr::Kind::kAttribute: {
        const Value object = evaluate(*e.operands[0]);
        place_ = e.place;
        return get_attribute(object, e.name, context_);
      }
      case Expr::Kind::kItem:
        return evaluate_item(e);
      case Expr::Kind::kSlice:
        throw Fault("a slice stands only in brackets");
      case Expr::Kind::kCall:
        return evaluate_call(e);
      case Expr::Kind::kFilter: {
        const Value input = evaluate(*e.operands[0]);
        const CallArguments arguments = evaluate_arguments(e.arguments);
        place_ = e.place;
        return apply_filter(e.name, input, arguments, context_);
      }
      case Expr::Kind::kTest: {
        const Value input = evaluate(*e.operands[0]);
        const CallArguments arguments = evaluate_arguments(e.arguments);
        place_ = e.place;
        return Value(apply_test(e.name, input, arguments, context_));
      }
      case Expr::Kind::kList:
        return Value::list(evaluate_all(e.operands));
      case Expr::Kind::kTuple:
        return Value::tuple(evaluate_all(e.operands));
      case Expr::Kind::kDict:
        return evaluate_dict(e);
      case Expr::Kind::kConcat:
        return evaluate_concat(e);
      default:
        return evaluate_operator(e);
    }
  }

  Value evaluate_operator(const Expr& e) {
    switch (e.kind) {
      case Expr::Kind::kBinary: {
        const Value a = evaluate(*e.operands[0]);
        const Value b = evaluate(*e.operands[1]);
        place_ = e.place;
        return binary(e.op, a, b, context_);
      }
      case Expr::Kind::kCompare:
        return evaluate_compare(e);
      case Expr::Kind::kAnd: {
        Value a = evaluate(*e.operands[0]);
        return truth(a) ? evaluate(*e.operands[1]) : a;
      }
      case Expr::Kind::kOr: {
        Value a = evaluate(*e.operands[0]);
        return truth(a) ? a : evaluate(*e.operands[1]);
      }
      case Expr::Kind::kNot:
        return Value(!truth(evaluate(*e.operands[0])));
      case Expr::Kind::kNegative:
        return negate(evaluate(*e.operands[0]));
      case Expr::Kind::kPositive:
        return negate(negate(evaluate(*e.operands[0])));
      default:
        break;
    }
    if (truth(evaluate(*e.operands[0]))) return evaluate(*e.operands[1]);
    if (e.operands[2]) return evaluate(*e.operands[2]);
    return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
  }

  Value evaluate_compare(const Expr& e) {
    Value left = evaluate(*e.operands[0]);
    for (size_t i = 0; i < e.ops.size(); ++i) {
      Value right = evaluate(*e.operands[i + 1]);
      place_ = e.place;
      if (!compare(e.ops[i], left, right, context_)) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  Value evaluate_item(const Expr& e) {
    const Value object = evaluate(*e.operands[0]);
    const Expr& key = *e.operands[1];
    if (key.kind != Expr::Kind::kSlice) {
      const Value index = evaluate(key);
      place_ = e.place;
      return get_item(object, index, context_);
    }
    const auto part = [&](size_t i) { return key.operands[i] ? evaluate(*key.operands[i]) : Value::none(); };
    const Value start = part(0), stop = part(1), step = part(2);
    place_ = e.place;
    return get_slice(object, start, stop, step, context_);
  }

  Value evaluate_call(const Expr& e) {
    const Value callee = evaluate(*e.operands[0]);
    const CallArguments arguments = evaluate_arguments(e.arguments);
    place_ = e.place;
    return invoke(callee, arguments);
  }

  Value evaluate_dict(const Expr& e) {
    Dict dict;
    for (size_t i = 0; i < e.operands.size(); i += 2) {
      Value key = evaluate(*e.operands[i]);
      Value value = evaluate(*e.operands[i + 1]);
      context_.meter.charge(dict.entries.size());
      dict.set(std::move(key), std::move(value), context_.meter);
    }
    return Value::dict(std::move(dict));
  }

  Value evaluate_concat(const Expr& e) {
    std::string text;
    for (const ExprPtr& operand : e.operands) {
      text += to_text(evaluate(*operand), context_.meter);
      if (text.size() > kMaxOutput) throw Fault("the template writes too much");
    }
    return Value::string(std::move(text));
  }

  Context context_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Scope>> captured_;
  std::deque<Macro> macros_;
  std::string* out_ = nullptr;
  Place place_;
  int depth_ = 0;
};

}  // namespace

std::string run_template(const Block& body, const std::vector<std::pair<std::string, Value>>& variables,
                         const std::tm& clock, uint64_t budget) {
  return Interpreter(variables, clock, budget).run(body);
}

}  // namespace bw::tokenizer::jinja
