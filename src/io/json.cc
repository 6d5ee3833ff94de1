#include "io/json.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bitwright/error.h"
#include "io/file_write.h"
#include "io/printable.h"

namespace bw::io {
namespace {

constexpr size_t kMaxDepth = 512;
// An ordered object finds a key by walking all of them: without a limit, a file of a few MB could keep us busy for
// hours.
constexpr size_t kMaxOrderedKeys = 16384;

// What remains of the library's message without its prefix and the line and column, which we give as a byte offset.
std::string reason(std::string_view message) {
  for (const std::string_view mark : {"syntax error ", "] "}) {
    const size_t at = message.find(mark);
    if (at != std::string_view::npos) return printable(message.substr(at + mark.size()));
  }
  return printable(message);
}

// Builds the document from parser events. The library's own builder keeps the last of two equal keys and any depth.
template <typename J>
class Builder : public nlohmann::json_sax<J> {
 public:
  using typename nlohmann::json_sax<J>::number_integer_t;
  using typename nlohmann::json_sax<J>::number_unsigned_t;
  using typename nlohmann::json_sax<J>::number_float_t;
  using typename nlohmann::json_sax<J>::string_t;
  using typename nlohmann::json_sax<J>::binary_t;

  explicit Builder(std::string_view name) : name_(name) {}

  J take() { return std::move(root_); }

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override { return value(v); }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(std::move(v)); }
  bool binary(binary_t& v) override { return value(std::move(v)); }
  bool start_object(size_t) override { return open(J::object()); }
  bool start_array(size_t) override { return open(J::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& k) override {
    auto& object = open_.back()->template get_ref<typename J::object_t&>();
    if constexpr (std::is_same_v<J, OrderedJson>) {
      if (object.size() >= kMaxOrderedKeys) {
        throw Error(ErrorCode::kModel,
                    name_ + ": an object has more than " + std::to_string(kMaxOrderedKeys) + " keys");
      }
    }
    const auto [at, inserted] = object.emplace(k, nullptr);
    if (!inserted)
      throw Error(ErrorCode::kModel, name_ + ": the key '" + printable(k) + "' stands twice in one object");
    member_ = &at->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& error) override {
    throw Error(ErrorCode::kModel,
                name_ + ": not valid JSON at byte " + std::to_string(position) + ": " + reason(error.what()));
  }

 private:
  template <typename V>
  bool value(V&& v) {
    place(J(std::forward<V>(v)));
    return true;
  }
  bool open(J container) {
    if (open_.size() >= kMaxDepth) {
      throw Error(ErrorCode::kModel, name_ + ": JSON nested deeper than " + std::to_string(kMaxDepth) + " levels");
    }
    open_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  J* place(J v) {
    if (open_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& array = open_.back()->template get_ref<typename J::array_t&>();
      array.push_back(std::move(v));
      return &array.back();
    }
    *member_ = std::move(v);
    return member_;
  }

  std::string name_;
  J root_;
  std::vector<J*> open_;  // only the innermost one grows, so no element that these point to moves
  J* member_ = nullptr;   // value of the last key
};

template <typename J>
J parse(std::string_view text, std::string_view name) {
  // The library takes a zero byte for the end of the text.
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    throw Error(ErrorCode::kModel,
                std::string(name) + ": not valid JSON at byte " + std::to_string(zero + 1) + ": a zero byte");
  }
  Builder<J> builder(name);
  J::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace

Json parse_json(std::string_view text, std::string_view name) { return parse<Json>(text, name); }

OrderedJson parse_ordered_json(std::string_view text, std::string_view name) { return parse<OrderedJson>(text, name); }

Json load_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

OrderedJson load_ordered_json(const std::filesystem::path& path) {
  return parse_ordered_json(read_file(path), path.string());
}

}  // namespace bw::io
