#include "tokenizer/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/ast.h"

namespace bw::tokenizer::jinja {
namespace {

constexpr uint64_t kCompareCost = 30;

int nesting_of(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.nesting());
  if (deepest >= kMaxNesting) throw Fault("values are nested too deeply");
  return deepest + 1;
}

Value make_list(std::vector<Value> items, bool is_tuple) {
  const int nesting = nesting_of(items);
  const bool hashable = is_tuple && std::all_of(items.begin(), items.end(), is_hashable);
  return Value(std::make_shared<const List>(List{std::move(items), is_tuple, hashable, nesting}));
}

// Integers beyond 2^53 must not be compared as doubles.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  }
  return a.real() < b.real() ? -1 : a.real() > b.real();
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Meter& meter) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equals(a[i], b[i], meter)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Meter& meter) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    meter.charge(b.entries.size());
    const Value* other = b.find(key, meter);
    if (!other || !equals(value, *other, meter)) return false;
  }
  return true;
}

}  // namespace

int64_t Range::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value Value::undefined(std::string reason) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(reason))});
}

Value Value::list(std::vector<Value> items) { return make_list(std::move(items), false); }
Value Value::tuple(std::vector<Value> items) { return make_list(std::move(items), true); }

Value Value::iterator(std::vector<Value> items, std::string_view type) {
  const int nesting = nesting_of(items);
  return Value(std::make_shared<Iterator>(Iterator{std::move(items), 0, std::string(type), nesting}));
}

Value Value::dict(Dict dict) {
  int deepest = 0;
  for (const auto& [key, value] : dict.entries) deepest = std::max({deepest, key.nesting(), value.nesting()});
  if (deepest >= kMaxNesting) throw Fault("values are nested too deeply");
  dict.nesting = deepest + 1;
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

const List* Value::as_list() const {
  const auto* list = std::get_if<std::shared_ptr<const List>>(&data_);
  return list ? list->get() : nullptr;
}

const Dict* Value::as_dict() const {
  const auto* dict = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return dict ? dict->get() : nullptr;
}

int Value::nesting() const {
  if (const List* list = as_list()) return list->nesting;
  if (const Dict* dict = as_dict()) return dict->nesting;
  if (is<std::shared_ptr<Iterator>>()) return as<std::shared_ptr<Iterator>>()->nesting;
  if (is<std::shared_ptr<const View>>()) return as<std::shared_ptr<const View>>()->nesting;
  if (is<std::shared_ptr<Loop>>()) return as<std::shared_ptr<Loop>>()->nesting;
  if (is<std::shared_ptr<const Function>>()) return as<std::shared_ptr<const Function>>()->self.nesting() + 1;
  return 0;
}

const void* Value::identity() const {
  return std::visit(
      [](const auto& data) -> const void* {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_pointer_v<T>) return data;
        if constexpr (requires { data.get(); }) return data.get();
        return &data;
      },
      data_);
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key, Meter& meter) const {
  if (key.is_string()) {
    meter.charge(entries.size() * (key.text().size() / 64));
    return find(std::string_view(key.text()));
  }
  for (const auto& [name, value] : entries) {
    if (!name.is_string() && equals(name, key, meter)) return &value;
  }
  return nullptr;
}

void Dict::set(Value key, Value value, Meter& meter) {
  if (!is_hashable(key)) throw Fault("unhashable type: '" + type_name(key) + "'");
  if (const Value* old = find(key, meter)) {
    const_cast<Value&>(*old) = std::move(value);
  } else {
    entries.emplace_back(std::move(key), std::move(value));
  }
}

std::string type_name(const Value& value) {
  struct Names {
    std::string operator()(const Undefined&) const { return "Undefined"; }
    std::string operator()(std::nullptr_t) const { return "NoneType"; }
    std::string operator()(bool) const { return "bool"; }
    std::string operator()(int64_t) const { return "int"; }
    std::string operator()(double) const { return "float"; }
    std::string operator()(const Value::String&) const { return "str"; }
    std::string operator()(const std::shared_ptr<const List>& list) const { return list->is_tuple ? "tuple" : "list"; }
    std::string operator()(const std::shared_ptr<const Dict>&) const { return "dict"; }
    std::string operator()(const std::shared_ptr<Iterator>& it) const { return it->type; }
    std::string operator()(const std::shared_ptr<const View>& view) const { return view->type; }
    std::string operator()(const Range&) const { return "range"; }
    std::string operator()(Namespace*) const { return "Namespace"; }
    std::string operator()(const Macro*) const { return "Macro"; }
    std::string operator()(const std::shared_ptr<const Function>&) const { return "function"; }
    std::string operator()(const std::shared_ptr<Loop>&) const { return "LoopContext"; }
  };
  return value.visit(Names{});
}

bool is_hashable(const Value& value) {
  if (const List* list = value.as_list()) return list->hashable;
  return !value.as_dict() && !value.is<std::shared_ptr<const View>>();
}

bool truth(const Value& value) {
  struct Truth {
    bool operator()(const Undefined&) const { return false; }
    bool operator()(std::nullptr_t) const { return false; }
    bool operator()(bool b) const { return b; }
    bool operator()(int64_t i) const { return i != 0; }
    bool operator()(double d) const { return d != 0; }
    bool operator()(const Value::String& s) const { return !s->empty(); }
    bool operator()(const std::shared_ptr<const List>& list) const { return !list->items.empty(); }
    bool operator()(const std::shared_ptr<const Dict>& dict) const { return !dict->entries.empty(); }
    bool operator()(const std::shared_ptr<Iterator>&) const { return true; }
    bool operator()(const std::shared_ptr<const View>& view) const { return !view->items.empty(); }
    bool operator()(const Range& range) const { return range.size() != 0; }
    bool operator()(Namespace*) const { return true; }
    bool operator()(const Macro*) const { return true; }
    bool operator()(const std::shared_ptr<const Function>&) const { return true; }
    bool operator()(const std::shared_ptr<Loop>& loop) const { return !loop->items.empty(); }
  };
  return value.visit(Truth{});
}

bool equals(const Value& a, const Value& b, Meter& meter) {
  meter.charge(kCompareCost);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0 && a.real() == b.real();
  if (a.is_string() && b.is_string()) {
    meter.charge(a.text().size() / 16);
    return a.text() == b.text();
  }
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.as_list() && b.as_list()) {
    if (a.as_list() == b.as_list()) return true;  // as Python: what is the same object is equal, NaN in it or not
    return a.as_list()->is_tuple == b.as_list()->is_tuple && equal_items(a.as_list()->items, b.as_list()->items, meter);
  }
  if (a.as_dict() && b.as_dict()) return a.as_dict() == b.as_dict() || equal_dicts(*a.as_dict(), *b.as_dict(), meter);
  if (a.is<Range>() && b.is<Range>()) {
    const Range &x = a.as<Range>(), &y = b.as<Range>();
    return x.size() == y.size() && (x.size() == 0 || (x.start == y.start && (x.size() == 1 || x.step == y.step)));
  }
  return a.same_object(b);
}

bool less(const Value& a, const Value& b, Meter& meter) {
  meter.charge(kCompareCost);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) < 0;
  if (a.is_string() && b.is_string()) {
    meter.charge(std::min(a.text().size(), b.text().size()) / 16);
    return a.text() < b.text();  // bytes of UTF-8 are ordered as code points are
  }
  const List *x = a.as_list(), *y = b.as_list();
  if (x && y && x->is_tuple == y->is_tuple) {
    const size_t n = std::min(x->items.size(), y->items.size());
    for (size_t i = 0; i < n; ++i) {
      if (!equals(x->items[i], y->items[i], meter)) return less(x->items[i], y->items[i], meter);
    }
    return x->items.size() < y->items.size();
  }
  if (a.is_undefined()) throw Fault(*a.as<Undefined>().reason);
  if (b.is_undefined()) throw Fault(*b.as<Undefined>().reason);
  throw Fault("'<' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) + "'");
}

}  // namespace bw::tokenizer::jinja
