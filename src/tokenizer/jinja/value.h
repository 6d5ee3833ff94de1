// Values of a template: what Python has, as far as chat templates can see it.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace bw::tokenizer::jinja {

// Something that makes Jinja or Python raise; the interpreter adds the place and turns it into bw::Error.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Counts the work of one rendering, so that no template can run, or allocate, without end.
class Meter {
 public:
  explicit Meter(uint64_t budget) : left_(budget) {}

  // One unit is about a byte copied or a fortieth of an expression evaluated. Throws Fault when the budget is spent.
  void charge(uint64_t units) {
    if (units > left_) throw Fault("the template does too much work");
    left_ -= units;
  }

 private:
  uint64_t left_;
};

class Value;
struct Scope;
struct MacroNode;
struct Loop;

// A missing value. Printing it gives nothing; using it raises `reason`.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};

// How deep containers may be nested: printing, comparing and destroying them recurse.
inline constexpr int kMaxNesting = 200;

struct List;
struct Dict;
struct Iterator;
struct View;
struct Namespace;
struct Macro;
struct Function;

struct Range {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
};

class Value {
 public:
  using String = std::shared_ptr<const std::string>;
  using Data = std::variant<Undefined, std::nullptr_t, bool, int64_t, double, String, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Iterator>, std::shared_ptr<const View>, Range,
                            Namespace*, const Macro*, std::shared_ptr<const Function>, std::shared_ptr<Loop>>;

  Value() : data_(nullptr) {}
  template <typename T>
  explicit Value(T data) : data_(std::move(data)) {}

  static Value none() { return Value(nullptr); }
  static Value undefined(std::string reason);
  static Value string(std::string text) { return Value(std::make_shared<const std::string>(std::move(text))); }
  // Throw Fault if the nesting becomes deeper than kMaxNesting.
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value iterator(std::vector<Value> items, std::string_view type = "generator");
  static Value dict(Dict entries);

  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  template <typename T>
  const T& as() const {
    return std::get<T>(data_);
  }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<std::nullptr_t>(); }
  bool is_string() const { return is<String>(); }
  // bool is an int in Python.
  bool is_integral() const { return is<int64_t>() || is<bool>(); }
  bool is_number() const { return is_integral() || is<double>(); }
  int64_t integer() const { return is<bool>() ? int64_t{as<bool>()} : as<int64_t>(); }
  double real() const { return is<double>() ? as<double>() : static_cast<double>(integer()); }
  const std::string& text() const { return *as<String>(); }
  // Null if it is of another kind.
  const List* as_list() const;
  const Dict* as_dict() const;
  int nesting() const;
  // Python's `is`, for values that have an identity.
  bool same_object(const Value& other) const {
    return data_.index() == other.data_.index() && identity() == other.identity();
  }
  template <typename Visitor>
  decltype(auto) visit(Visitor&& visitor) const {
    return std::visit(std::forward<Visitor>(visitor), data_);
  }

 private:
  const void* identity() const;
  Data data_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  bool hashable = false;  // kept as nesting is: items may hold one another a thousand times over
  int nesting = 1;
};

// In order of insertion, with the keys that Python would take (strings, numbers, None, tuples).
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int nesting = 1;

  // Null if absent. They look at every entry: charge entries.size() for what an untrusted template can repeat; `meter`
  // is charged for keys that take long to compare.
  const Value* find(const Value& key, Meter& meter) const;
  const Value* find(std::string_view key) const;
  // Throws Fault for a key that Python cannot hash.
  void set(Value key, Value value, Meter& meter);
};

// What Python calls an iterator: it can be read once.
struct Iterator {
  std::vector<Value> items;
  size_t next = 0;
  std::string type;
  int nesting = 1;
};

// dict.keys(), dict.values(), dict.items().
struct View {
  std::string type;
  std::vector<Value> items;
  int nesting = 1;
};

// Belongs to the interpreter (a template can make it hold itself).
struct Namespace {
  Dict attributes;
};

// Belongs to the interpreter, as the scope that it was made in does.
struct Macro {
  const MacroNode* node = nullptr;
  Scope* scope = nullptr;
};

// A global function, or a method with the value it belongs to.
struct Function {
  std::string name;
  Value self;
  bool is_method = false;
};

// The `loop` variable.
struct Loop {
  std::vector<Value> items;
  size_t index0 = 0;
  std::vector<Value> changed;
  bool has_changed = false;
  int nesting = 1;
};

// Names as Python's messages have them ("str", "dict", ...).
std::string type_name(const Value& value);
bool is_hashable(const Value& value);
bool truth(const Value& value);
// Python's == .
bool equals(const Value& a, const Value& b, Meter& meter);
// Python's < ; Fault for kinds that have no order.
bool less(const Value& a, const Value& b, Meter& meter);
// str(value) and repr(value).
std::string to_text(const Value& value, Meter& meter);
std::string to_repr(const Value& value, Meter& meter);
std::string float_repr(double value);

}  // namespace bw::tokenizer::jinja
