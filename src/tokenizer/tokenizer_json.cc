#include "tokenizer/tokenizer_json.h"

#include <cmath>

#include "bitwright/error.h"
#include "io/printable.h"

namespace bw::tokenizer {
namespace {

using io::Json;

constexpr size_t kMaxDepth = 512;

// nlohmann's SAX interface: builds the tree, except below model.vocab and model.merges.
class Reader : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(TokenizerFile& file) : file_(file) {}

  bool null() override { return value(Json()); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(int64_t v) override { return in_piece() ? score(static_cast<double>(v)) : value(v); }
  bool number_unsigned(uint64_t v) override {
    if (list_ == List::kVocabObject) return file_.vocab.add(key_, v), true;
    return in_piece() ? score(static_cast<double>(v)) : value(v);
  }
  bool number_float(double v, const std::string&) override { return in_piece() ? score(v) : value(v); }
  bool string(std::string& v) override {
    if (list_ == List::kMerges && list_depth_ == 1) return merge_line(v);
    if ((list_ == List::kMerges || list_ == List::kVocabArray) && list_depth_ == 2) {
      if (parts_.size() >= 2) bad_item();
      parts_.push_back(std::move(v));
      return true;
    }
    return value(std::move(v));
  }
  bool binary(Json::binary_t&) override { return false; }

  bool start_object(size_t) override {
    if (list_ != List::kNone) bad_item();
    if (in_model() && key_ == "vocab") return open_list(List::kVocabObject);
    return open(Json::object());
  }
  bool key(std::string& v) override {
    if (list_ == List::kNone && stack_.back()->contains(v)) bad_tokenizer("the key " + shown(v) + " stands twice");
    key_ = std::move(v);
    return true;
  }
  bool end_object() override { return close(); }

  bool start_array(size_t) override {
    if (list_ == List::kMerges || list_ == List::kVocabArray) {
      if (list_depth_ != 1) bad_item();
      ++list_depth_;
      parts_.clear();
      has_score_ = false;
      return true;
    }
    if (list_ != List::kNone) bad_item();
    if (in_model() && key_ == "vocab") return open_list(List::kVocabArray);
    if (in_model() && key_ == "merges") return open_list(List::kMerges);
    return open(Json::array());
  }
  bool end_array() override {
    if (list_depth_ == 2) {
      --list_depth_;
      return end_item();
    }
    return close();
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    const std::string_view message = e.what();
    const size_t reason = message.find("parse error");
    bad_tokenizer("not valid JSON at byte " + std::to_string(position) + ": " +
                      io::printable(message.substr(reason == std::string_view::npos ? 0 : reason)),
                  "is the file complete?");
  }

 private:
  enum class List { kNone, kVocabObject, kVocabArray, kMerges };

  // Behind the token of an item of a Unigram vocabulary.
  bool in_piece() const { return list_ == List::kVocabArray && list_depth_ == 2 && parts_.size() == 1; }
  // Directly inside the object "model" of the root.
  bool in_model() const {
    return stack_.size() == 2 && model_ != nullptr && stack_.back() == model_ && model_->is_object();
  }

  Json* place(Json v) {
    if (stack_.empty()) {
      file_.json = std::move(v);
      return &file_.json;
    }
    Json& parent = *stack_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(v));
    parent.push_back(std::move(v));
    return &parent.back();
  }
  bool value(Json v) {
    if (list_ != List::kNone) bad_item();
    place(std::move(v));
    return true;
  }
  bool open(Json container) {
    if (stack_.size() >= kMaxDepth) bad_tokenizer("nested deeper than " + std::to_string(kMaxDepth) + " levels");
    const bool is_model = stack_.size() == 1 && stack_.back()->is_object() && key_ == "model";
    stack_.push_back(place(std::move(container)));
    if (is_model) model_ = stack_.back();
    return true;
  }
  bool open_list(List list) {
    if (stack_.back()->contains(key_)) bad_tokenizer("the key " + shown(key_) + " stands twice");
    place(Json());
    list_ = list;
    list_depth_ = 1;
    return true;
  }
  bool close() {
    if (list_ != List::kNone) {
      list_ = List::kNone;
      list_depth_ = 0;
    } else {
      stack_.pop_back();
    }
    return true;
  }
  [[noreturn]] void bad_item() const {
    if (list_ == List::kMerges) {
      bad_tokenizer("model.merges: item " + std::to_string(file_.merges.size()) +
                    " is neither \"A B\" nor [\"A\", \"B\"]");
    }
    bad_tokenizer(list_ == List::kVocabArray
                      ? "model.vocab: item " + std::to_string(file_.pieces.size()) + " is not [token, score]"
                      : "model.vocab: the value of " + shown(key_) + " is not an id");
  }
  bool score(double v) {
    if (has_score_ || !std::isfinite(v)) bad_item();
    score_ = v;
    has_score_ = true;
    return true;
  }
  bool merge_line(const std::string& line) {
    if (line.starts_with("#version")) return true;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) bad_item();
    file_.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    return true;
  }
  bool end_item() {
    if (list_ == List::kMerges) {
      if (parts_.size() != 2) bad_item();
      file_.merges.emplace_back(std::move(parts_[0]), std::move(parts_[1]));
    } else {
      if (parts_.size() != 1 || !has_score_) bad_item();
      file_.pieces.emplace_back(std::move(parts_[0]), score_);
    }
    return true;
  }

  TokenizerFile& file_;
  std::vector<Json*> stack_;  // open containers; a parent does not grow while its child is open
  const Json* model_ = nullptr;
  std::string key_;
  List list_ = List::kNone;
  int list_depth_ = 0;
  std::vector<std::string> parts_;
  double score_ = 0;
  bool has_score_ = false;
};

const Json* find_field(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

[[noreturn]] void wrong_type(const std::string& where, const char* key, const char* expected, const Json& found) {
  bad_tokenizer(where + ": \"" + key + "\" must be " + expected + ", found " + found.type_name());
}

}  // namespace

void bad_tokenizer(const std::string& what, const std::string& hint) { throw Error(ErrorCode::kModel, what, hint); }

std::string shown(std::string_view text) { return '"' + io::printable(text) + '"'; }

TokenizerFile parse_tokenizer_file(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  TokenizerFile file;
  Reader reader(file);
  if (!Json::sax_parse(text.begin(), text.end(), &reader)) bad_tokenizer("not valid JSON");
  if (!file.json.is_object()) bad_tokenizer("expected a JSON object, found " + std::string(file.json.type_name()));
  return file;
}

bool bool_field(const Json& object, const char* key, bool absent, const std::string& where) {
  const Json* field = find_field(object, key);
  if (field == nullptr) return absent;
  if (!field->is_boolean()) wrong_type(where, key, "true or false", *field);
  return field->get<bool>();
}

uint64_t uint_field(const Json& object, const char* key, uint64_t absent, const std::string& where) {
  const Json* field = find_field(object, key);
  if (field == nullptr) return absent;
  if (!field->is_number_unsigned()) wrong_type(where, key, "a whole number >= 0", *field);
  return field->get<uint64_t>();
}

std::string string_field(const Json& object, const char* key, const std::string& absent, const std::string& where) {
  const Json* field = find_field(object, key);
  if (field == nullptr) return absent;
  if (!field->is_string()) wrong_type(where, key, "a string", *field);
  return field->get<std::string>();
}

std::string require_string(const Json& object, const char* key, const std::string& where) {
  const Json* field = find_field(object, key);
  if (field == nullptr) bad_tokenizer(where + ": \"" + key + "\" is missing");
  if (!field->is_string()) wrong_type(where, key, "a string", *field);
  return field->get<std::string>();
}

const Json& array_field(const Json& object, const char* key, const std::string& where) {
  static const Json empty = Json::array();
  const Json* field = find_field(object, key);
  if (field == nullptr) return empty;
  if (!field->is_array()) wrong_type(where, key, "an array", *field);
  return *field;
}

std::string component_type(const Json& object, const std::string& where) {
  if (!object.is_object()) bad_tokenizer(where + ": expected an object, found " + std::string(object.type_name()));
  return require_string(object, "type", where);
}

}  // namespace bw::tokenizer
