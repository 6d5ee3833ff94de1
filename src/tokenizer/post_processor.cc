#include "tokenizer/post_processor.h"

#include "tokenizer/tokenizer_json.h"

namespace bw::tokenizer {
namespace {

constexpr int kMaxNesting = 16;

uint32_t checked_id(const io::Json& id, const std::string& where) {
  if (!id.is_number_unsigned() || id.get<uint64_t>() > kMaxTokenId)
    bad_tokenizer(where + ": not an id: " + shown(id.dump()));
  return id.get<uint32_t>();
}

// Puts `outer` around what is there.
void wrap(PostProcessor& inner, PostProcessor outer) {
  inner.prefix.insert(inner.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
  inner.suffix.insert(inner.suffix.end(), outer.suffix.begin(), outer.suffix.end());
}

PostProcessor parse_template(const io::Json& json, const std::string& where) {
  PostProcessor result;
  bool behind = false;  // the text has been seen
  for (const io::Json& item : array_field(json, "single", where)) {
    if (item.is_object() && item.contains("Sequence")) {
      if (behind) bad_tokenizer(where + ": \"single\" holds the text twice");
      behind = true;
      continue;
    }
    if (!item.is_object() || !item.contains("SpecialToken"))
      bad_tokenizer(where + ": an item of \"single\" is not known");
    const std::string name = require_string(item["SpecialToken"], "id", where);
    const auto tokens = json.find("special_tokens");
    if (tokens == json.end() || !tokens->is_object() || !tokens->contains(name)) {
      bad_tokenizer(where + ": " + shown(name) + " is not in special_tokens");
    }
    for (const io::Json& id : array_field((*tokens)[name], "ids", where)) {
      (behind ? result.suffix : result.prefix).push_back(checked_id(id, where));
    }
  }
  if (!behind) bad_tokenizer(where + ": \"single\" does not hold the text");
  return result;
}

// [token, id]
uint32_t pair_id(const io::Json& json, const char* key, const std::string& where) {
  const io::Json& pair = array_field(json, key, where);
  if (pair.size() != 2) bad_tokenizer(where + ": \"" + key + "\" must be [token, id]");
  return checked_id(pair[1], where);
}

void parse_into(const io::Json& json, int depth, PostProcessor& result) {
  const std::string type = component_type(json, "post_processor");
  const std::string where = "post_processor " + type;
  if (type == "Sequence") {
    if (depth >= kMaxNesting) bad_tokenizer("post_processor: sequences nested too deep");
    for (const io::Json& item : array_field(json, "processors", where)) parse_into(item, depth + 1, result);
  } else if (type == "TemplateProcessing") {
    wrap(result, parse_template(json, where));
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    wrap(result, {{pair_id(json, "cls", where)}, {pair_id(json, "sep", where)}});
  } else if (type != "ByteLevel") {  // which changes offsets only
    bad_tokenizer("post_processor " + shown(type) + " is not supported");
  }
}

}  // namespace

PostProcessor parse_post_processor(const io::Json& json) {
  PostProcessor result;
  if (!json.is_null()) parse_into(json, 0, result);
  return result;
}

}  // namespace bw::tokenizer
