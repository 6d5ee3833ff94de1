#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/text.h"

namespace bw::tokenizer::jinja {
namespace {

[[noreturn]] void fail_overflow() { throw Fault("integer arithmetic beyond 64 bits is not supported"); }

std::string_view symbol(Op op) {
  static constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
  return kSymbols[static_cast<size_t>(op)];
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw Fault("integer division or modulo by zero");
  if (b == -1) {
    if (a == INT64_MIN) fail_overflow();
    return -a;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Fault("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return Value(result);
}

Value integer_arithmetic(Op op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case Op::kAdd:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow();
      return Value(result);
    case Op::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
      return Value(result);
    case Op::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
      return Value(result);
    case Op::kDivide:
      if (b == 0) throw Fault("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Op::kFloorDivide:
      return Value(floor_divide(a, b));
    case Op::kModulo:
      if (b == -1) return Value(int64_t{0});
      return Value(a - floor_divide(a, b) * b);
    default:
      return integer_power(a, b);
  }
}

double float_modulo(double a, double b) {
  if (b == 0) throw Fault("float modulo");
  const double r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) return r + b;
  return r == 0 ? std::copysign(0.0, b) : r;
}

// Of the quotient that leaves float_modulo as rest, so that a rounded a / b cannot lift it to the next integer.
double float_floor_divide(double a, double b) {
  if (b == 0) throw Fault("float floor division by zero");
  const double quotient = (a - float_modulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

Value float_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return Value(a + b);
    case Op::kSubtract:
      return Value(a - b);
    case Op::kMultiply:
      return Value(a * b);
    case Op::kDivide:
      if (b == 0) throw Fault("float division by zero");
      return Value(a / b);
    case Op::kFloorDivide:
      return Value(float_floor_divide(a, b));
    case Op::kModulo:
      return Value(float_modulo(a, b));
    default:
      break;
  }
  if (a == 0 && b < 0) throw Fault("0.0 cannot be raised to a negative power");
  if (a < 0 && b != std::floor(b)) throw Fault("complex numbers are not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) throw Fault("Numerical result out of range");
  return Value(result);
}

Value repeat(const Value& value, int64_t count, Context& context) {
  const size_t n = count < 0 ? 0 : static_cast<size_t>(count);
  const size_t size = value.is_string() ? value.text().size() : value.as_list()->items.size() * kItemCost;
  uint64_t cost = 0;
  if (__builtin_mul_overflow(uint64_t{size}, uint64_t{n}, &cost)) cost = UINT64_MAX;
  context.meter.charge(cost);
  if (size == 0 || n == 0)
    return value.is_string() ? Value::string("") : value.as_list()->is_tuple ? Value::tuple({}) : Value::list({});
  if (value.is_string()) {
    std::string out;
    out.reserve(size * n);
    for (size_t i = 0; i < n; ++i) out += value.text();
    return Value::string(std::move(out));
  }
  std::vector<Value> items;
  for (size_t i = 0; i < n; ++i)
    items.insert(items.end(), value.as_list()->items.begin(), value.as_list()->items.end());
  return value.as_list()->is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

Value concatenate(const Value& a, const Value& b, Context& context) {
  if (a.is_string()) {
    context.meter.charge(a.text().size() + b.text().size());
    return Value::string(a.text() + b.text());
  }
  std::vector<Value> items = a.as_list()->items;
  items.insert(items.end(), b.as_list()->items.begin(), b.as_list()->items.end());
  context.meter.charge(items.size() * kItemCost);
  return a.as_list()->is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items));
}

}  // namespace

Value binary(Op op, const Value& a, const Value& b, Context& context) {
  if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return float_arithmetic(op, a.real(), b.real());
  if (op == Op::kModulo && a.is_string()) return Value::string(format_percent(a.text(), b, context));
  if (a.is_undefined()) throw Fault(*a.as<Undefined>().reason);
  if (b.is_undefined()) throw Fault(*b.as<Undefined>().reason);
  const bool a_sequence = a.is_string() || a.as_list(), b_sequence = b.is_string() || b.as_list();
  if (op == Op::kAdd && a_sequence && type_name(a) == type_name(b)) return concatenate(a, b, context);
  if (op == Op::kMultiply && a_sequence && b.is_integral()) return repeat(a, b.integer(), context);
  if (op == Op::kMultiply && b_sequence && a.is_integral()) return repeat(b, a.integer(), context);
  throw Fault("unsupported operand type(s) for " + std::string(symbol(op)) + ": '" + type_name(a) + "' and '" +
              type_name(b) + "'");
}

bool compare(Op op, const Value& a, const Value& b, Context& context) {
  Meter& meter = context.meter;
  const bool has_nan = a.is_number() && b.is_number() && (std::isnan(a.real()) || std::isnan(b.real()));
  switch (op) {
    case Op::kEqual:
      return equals(a, b, meter);
    case Op::kNotEqual:
      return !equals(a, b, meter);
    case Op::kLess:
      return less(a, b, meter);
    case Op::kGreater:
      return less(b, a, meter);
    case Op::kLessEqual:
      return !has_nan && !less(b, a, meter);
    case Op::kGreaterEqual:
      return !has_nan && !less(a, b, meter);
    case Op::kIn:
      return contains(b, a, context);
    default:
      return !contains(b, a, context);
  }
}

bool contains(const Value& container, const Value& item, Context& context) {
  if (container.is_string()) {
    if (!item.is_string()) throw Fault("'in <string>' requires string as left operand, not " + type_name(item));
    context.meter.charge(search_cost(container.text(), item.text()));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) {
    if (!is_hashable(item)) throw Fault("unhashable type: '" + type_name(item) + "'");
    context.meter.charge(dict->entries.size());
    return dict->find(item, context.meter) != nullptr;
  }
  const auto is_item = [&](const Value& other) {
    return item.same_object(other) || equals(item, other, context.meter);
  };
  if (const List* list = container.as_list()) return std::any_of(list->items.begin(), list->items.end(), is_item);
  if (container.is<Namespace*>() || container.is<std::shared_ptr<Loop>>()) {
    throw Fault("argument of type '" + type_name(container) + "' is not iterable");
  }
  const std::vector<Value> items = iterate(container, context);
  return std::any_of(items.begin(), items.end(), is_item);
}

Value negate(const Value& value) {
  if (value.is_undefined()) throw Fault(*value.as<Undefined>().reason);
  if (value.is<double>()) return Value(-value.as<double>());
  if (!value.is_integral()) throw Fault("bad operand type for unary -: '" + type_name(value) + "'");
  if (value.integer() == INT64_MIN) fail_overflow();
  return Value(-value.integer());
}

int64_t length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return static_cast<int64_t>(count_code_points(value.text()));
  if (const List* list = value.as_list()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.as_dict()) return static_cast<int64_t>(dict->entries.size());
  if (value.is<Range>()) return value.as<Range>().size();
  if (value.is<std::shared_ptr<const View>>()) {
    return static_cast<int64_t>(value.as<std::shared_ptr<const View>>()->items.size());
  }
  if (value.is<std::shared_ptr<Loop>>()) return static_cast<int64_t>(value.as<std::shared_ptr<Loop>>()->items.size());
  throw Fault("object of type '" + type_name(value) + "' has no len()");
}

std::vector<Value> iterate(const Value& value, Context& context) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_string()) {
    context.meter.charge(value.text().size() * 2 * kItemCost);
    for (std::string& c : split_characters(value.text())) items.push_back(Value::string(std::move(c)));
  } else if (const List* list = value.as_list()) {
    context.meter.charge(list->items.size() * kItemCost);
    items = list->items;
  } else if (const Dict* dict = value.as_dict()) {
    context.meter.charge(dict->entries.size() * kItemCost);
    for (const auto& [key, item] : dict->entries) items.push_back(key);
  } else if (value.is<std::shared_ptr<Iterator>>()) {
    Iterator& it = *value.as<std::shared_ptr<Iterator>>();
    context.meter.charge((it.items.size() - it.next) * kItemCost);
    items.assign(it.items.begin() + static_cast<std::ptrdiff_t>(it.next), it.items.end());
    it.next = it.items.size();
  } else if (value.is<std::shared_ptr<const View>>()) {
    items = value.as<std::shared_ptr<const View>>()->items;
    context.meter.charge(items.size() * kItemCost);
  } else if (value.is<Range>()) {
    const Range& range = value.as<Range>();
    context.meter.charge(static_cast<uint64_t>(range.size()) * kItemCost);
    for (int64_t i = 0; i < range.size(); ++i) items.emplace_back(range.start + i * range.step);
  } else {
    throw Fault("'" + type_name(value) + "' object is not iterable");
  }
  return items;
}

}  // namespace bw::tokenizer::jinja
