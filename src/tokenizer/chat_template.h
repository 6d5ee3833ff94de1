// Chat templates: the subset of Jinja that Hugging Face chat templates use, rendered as transformers renders it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/json.h"

namespace bw::tokenizer {

class ChatTemplate {
 public:
  // Throws Error(kModel) with line and column for a syntax error or a construct that is not supported.
  static ChatTemplate parse(std::string_view source, std::string_view name);
  // DIR/chat_template.jinja, else "chat_template" of DIR/tokenizer_config.json (a string, or a list of named templates:
  // "default"); nullopt if the model has none. Special tokens (bos_token, eos_token, ...) come from
  // tokenizer_config.json (strings or objects with "content") and special_tokens_map.json.
  static std::optional<ChatTemplate> load(const std::filesystem::path& model_dir);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `messages`: [{"role": ..., "content": ...}, ...]; entries of a message that are null are dropped, as transformers
  // does. `variables`: further names the template sees (tools, enable_thinking ...). One is not for the template:
  // "strftime_now", as "YYYY-MM-DD" or "YYYY-MM-DD HH:MM:SS", is the time that strftime_now() tells; without it that is
  // the local time. raise_exception() in the template throws Error(kModel) with its text. Output and loop work are
  // bounded (Error, not a hang).
  std::string render(const io::OrderedJson& messages, bool add_generation_prompt,
                     const io::OrderedJson& variables = io::OrderedJson::object()) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace bw::tokenizer
