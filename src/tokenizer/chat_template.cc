#include "tokenizer/chat_template.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "bitwright/error.h"
#include "io/file_write.h"
#include "tokenizer/jinja/from_json.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/parser.h"

namespace bw::tokenizer {

struct ChatTemplate::Impl {
  std::string name;
  uint64_t source_bytes = 0;
  jinja::Block body;
  io::OrderedJson special_tokens = io::OrderedJson::object();
};

namespace {

constexpr size_t kMaxTemplateBytes = size_t{4} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{64} << 20;
// What a rendering may cost (see jinja::Meter): long conversations much, short ones little, whatever the template asks
// for. Real templates need some thousand units for a message, and about ten for each of its bytes.
constexpr uint64_t kLeastWork = 4'000'000, kMostWork = 200'000'000, kWorkPerByte = 256;

Error error_at(const std::string& name, jinja::Place place, const std::string& what) {
  constexpr size_t kMostShown = 1000;  // templates word errors as well, and repeat what they were given
  std::string line;
  for (const char c : what.substr(0, kMostShown)) line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  if (what.size() > kMostShown) line = replace_invalid_utf8(line) + "...";
  return Error(ErrorCode::kModel,
               name + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": " + line);
}

// The template that a "chat_template" entry holds: a string, or the one called "default" of a list of named ones.
std::string select_template(const io::OrderedJson& entry, const std::string& name) {
  if (entry.is_string()) return entry.get<std::string>();
  std::string names;
  if (entry.is_array()) {
    for (const auto& item : entry) {
      if (!item.is_object() || !item.contains("name") || !item["name"].is_string()) continue;
      const bool usable = item.contains("template") && item["template"].is_string();
      if (usable && (item["name"] == "default" || entry.size() == 1)) return item["template"].get<std::string>();
      names += (names.empty() ? "" : ", ") + item["name"].get<std::string>();
    }
  }
  throw Error(ErrorCode::kModel,
              name + ": \"chat_template\" is neither a string nor a list with a template named \"default\"" +
                  (names.empty() ? "" : " (found: " + names + ")"));
}

// A special token is a string or an object with "content".
std::optional<std::string> token_text(const io::OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return std::nullopt;
}

void add_special_tokens(io::OrderedJson& tokens, const io::OrderedJson& config) {
  if (!config.is_object()) return;
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token") || tokens.contains(key)) continue;
    if (auto text = token_text(value)) tokens[key] = *text;
  }
  if (config.contains("extra_special_tokens") && config["extra_special_tokens"].is_object()) {
    add_special_tokens(tokens, config["extra_special_tokens"]);
  }
}

// Two things that transformers does to every message: entries that are null are dropped, and what a model thought is
// given the names that templates read ("reasoning_content", and "thinking") if it came under one of the others.
io::OrderedJson normalize_message(const io::OrderedJson& message) {
  io::OrderedJson out = io::OrderedJson::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) out[key] = value;
  }
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    if (!out.contains(key)) continue;
    const io::OrderedJson reasoning = out[key];
    if (!out.contains("thinking")) {
      io::OrderedJson with = {{"thinking", reasoning}};
      with.update(out);
      out = std::move(with);
    }
    out["reasoning_content"] = reasoning;
    break;
  }
  return out;
}

// The time for strftime_now: "YYYY-MM-DD" or "YYYY-MM-DD HH:MM:SS" if given, else now.
std::tm make_clock(const io::OrderedJson& variables) {
  std::tm clock{};
  if (!variables.contains("strftime_now")) {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &clock);
    return clock;
  }
  const auto& text = variables["strftime_now"];
  const std::string date = text.is_string() ? text.get<std::string>() : "";
  const int found = std::sscanf(date.c_str(), "%4d-%2d-%2d %2d:%2d:%2d", &clock.tm_year, &clock.tm_mon, &clock.tm_mday,
                                &clock.tm_hour, &clock.tm_min, &clock.tm_sec);
  if (found != 3 && found != 6) {
    throw Error(ErrorCode::kUsage,
                "strftime_now: expected \"YYYY-MM-DD\" or \"YYYY-MM-DD HH:MM:SS\", found \"" + date + "\"");
  }
  clock.tm_year -= 1900;
  clock.tm_mon -= 1;
  timegm(&clock);  // fills in the day of the week and of the year
  return clock;
}

// About the bytes of the data.
uint64_t size_of(const io::OrderedJson& json) {
  uint64_t bytes = sizeof(json);
  if (json.is_string()) bytes += json.get_ref<const std::string&>().size();
  if (json.is_structured()) {
    for (const auto& [key, value] : json.items()) bytes += key.size() + size_of(value);
  }
  return bytes;
}

using Variables = std::vector<std::pair<std::string, jinja::Value>>;

void set_variable(Variables& variables, const std::string& name, jinja::Value value) {
  for (auto& [known, old] : variables) {
    if (known == name) return void(old = std::move(value));
  }
  variables.emplace_back(name, std::move(value));
}

Variables make_variables(const io::OrderedJson& special_tokens, const io::OrderedJson& messages,
                         bool add_generation_prompt, const io::OrderedJson& variables) {
  Variables out = {{"tools", jinja::Value::none()}, {"documents", jinja::Value::none()}};
  for (const auto& [key, value] : special_tokens.items()) set_variable(out, key, jinja::from_json(value));
  for (const auto& [key, value] : variables.items()) {
    if (key != "strftime_now") set_variable(out, key, jinja::from_json(value));
  }
  io::OrderedJson normalized = io::OrderedJson::array();
  for (const auto& message : messages) normalized.push_back(normalize_message(message));
  set_variable(out, "messages", jinja::from_json(normalized));
  set_variable(out, "add_generation_prompt", jinja::Value(add_generation_prompt));
  return out;
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(std::string_view source, std::string_view name) {
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->source_bytes = source.size();
  if (source.size() > kMaxTemplateBytes) {
    throw Error(ErrorCode::kModel, impl->name + ": chat template of " + std::to_string(source.size()) +
                                       " bytes, at most " + std::to_string(kMaxTemplateBytes) + " are read");
  }
  if (const auto bad = find_invalid_utf8(source)) {
    throw Error(ErrorCode::kModel, impl->name + ": not valid UTF-8 at byte " + std::to_string(*bad));
  }
  try {
    impl->body = jinja::parse_template(source);
  } catch (const jinja::SyntaxFault& fault) {
    throw error_at(impl->name, fault.place, fault.what());
  }
  return ChatTemplate(std::move(impl));
}

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& model_dir) {
  namespace fs = std::filesystem;
  const auto read_config = [&](const char* file) {
    const fs::path path = model_dir / file;
    return fs::exists(path) ? io::parse_ordered_json(io::read_file(path, kMaxConfigBytes), path.string())
                            : io::OrderedJson::object();
  };
  const fs::path config_path = model_dir / "tokenizer_config.json", template_path = model_dir / "chat_template.jinja";
  const io::OrderedJson config = read_config("tokenizer_config.json");
  std::optional<ChatTemplate> out;
  if (fs::exists(template_path)) {
    out = parse(io::read_file(template_path, kMaxTemplateBytes), template_path.string());
  } else if (config.is_object() && config.contains("chat_template") && !config["chat_template"].is_null()) {
    const std::string name = config_path.string() + " (chat_template)";
    out = parse(select_template(config["chat_template"], config_path.string()), name);
  } else {
    return std::nullopt;
  }
  add_special_tokens(out->impl_->special_tokens, config);
  add_special_tokens(out->impl_->special_tokens, read_config("special_tokens_map.json"));
  return out;
}

std::string ChatTemplate::render(const io::OrderedJson& messages, bool add_generation_prompt,
                                 const io::OrderedJson& variables) const {
  if (!messages.is_array()) throw Error(ErrorCode::kModel, impl_->name + ": messages must be a list");
  for (const auto& message : messages) {
    if (!message.is_object()) throw Error(ErrorCode::kModel, impl_->name + ": every message must be an object");
  }
  try {
    const std::tm clock = make_clock(variables);
    const uint64_t given = impl_->source_bytes + size_of(messages) + size_of(variables);
    return jinja::run_template(impl_->body,
                               make_variables(impl_->special_tokens, messages, add_generation_prompt, variables), clock,
                               std::min(kMostWork, kLeastWork + kWorkPerByte * given));
  } catch (const jinja::RuntimeFault& fault) {
    throw error_at(impl_->name, fault.place, fault.what());
  } catch (const jinja::Fault& fault) {
    throw Error(ErrorCode::kModel, impl_->name + ": " + fault.what());
  }
}

}  // namespace bw::tokenizer
