#include "tokenizer/decoder.h"

#include <algorithm>
#include <optional>

#include "tokenizer/tokenizer_json.h"
#include "tokenizer/unicode.h"

namespace bw::tokenizer {
namespace {

constexpr int kMaxNesting = 16;
using Tokens = std::vector<std::string>;

void parse_into(const io::Json& json, int depth, std::vector<DecoderStep>& steps) {
  const std::string type = component_type(json, "decoder");
  const std::string where = "decoder " + type;
  if (type == "Sequence") {
    if (depth >= kMaxNesting) bad_tokenizer("decoder: sequences nested too deep");
    for (const io::Json& item : array_field(json, "decoders", where)) parse_into(item, depth + 1, steps);
  } else if (type == "ByteLevel") {
    steps.emplace_back(UnspellBytes{});
  } else if (type == "Replace") {
    steps.emplace_back(ReplaceInTokens{parse_pattern(json, where), require_string(json, "content", where)});
  } else if (type == "ByteFallback") {
    steps.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps.emplace_back(Fuse{});
  } else if (type == "Strip") {
    StripTokens strip{string_field(json, "content", " ", where), uint_field(json, "start", 0, where),
                      uint_field(json, "stop", 0, where)};
    if (strip.content.empty()) bad_tokenizer(where + ": \"content\" is empty");
    steps.emplace_back(std::move(strip));
  } else if (type == "Metaspace") {
    steps.emplace_back(parse_metaspace(json, where));
  } else if (type == "BPEDecoder") {
    steps.emplace_back(WordEnds{string_field(json, "suffix", "</w>", where)});
  } else {
    bad_tokenizer("decoder " + shown(type) + " is not supported");
  }
}

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

// The byte that a token like <0x0A> stands for.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned byte = 0;
  for (const char c : token.substr(3, 2)) {
    const char* const digits = "0123456789abcdef";
    const char lower = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    const char* const digit = std::find(digits, digits + 16, lower);
    if (digit == digits + 16) return std::nullopt;
    byte = byte * 16 + static_cast<unsigned>(digit - digits);
  }
  return static_cast<char>(byte);
}

struct Apply {
  Tokens& tokens;
  size_t most;  // bytes that all of them may grow to

  void operator()(UnspellBytes) const {
    std::string bytes;
    for (const std::string& token : tokens) {
      const size_t begin = bytes.size();
      std::string_view rest = token;
      while (!rest.empty()) {
        const CodePoint c = first_code_point(rest);
        const auto byte = spelled_byte(c.value);
        if (!byte) break;
        bytes += static_cast<char>(*byte);
        rest.remove_prefix(c.length);
      }
      if (!rest.empty()) bytes.replace(begin, std::string::npos, token);  // not in the alphabet: an added token
    }
    std::string storage;
    const std::string_view text = valid_utf8(bytes, storage);
    tokens = {std::string(text)};
  }
  void operator()(const ReplaceInTokens& step) const {
    size_t left = most;
    for (std::string& token : tokens) {
      token = replace_all(step.pattern, token, step.content, left);
      left -= token.size();
    }
  }
  void operator()(ByteFallback) const {
    Tokens result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      std::string storage;
      if (valid_utf8(bytes, storage).data() == bytes.data()) {
        result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");  // one for every byte of the run
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = fallback_byte(token)) {
        bytes += *byte;
      } else {
        flush();
        result.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(result);
  }
  void operator()(Fuse) const { tokens = {joined(tokens)}; }
  void operator()(const StripTokens& step) const {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (size_t i = 0; i < step.start && rest.starts_with(step.content); ++i) rest.remove_prefix(step.content.size());
      for (size_t i = 0; i < step.stop && rest.ends_with(step.content); ++i) rest.remove_suffix(step.content.size());
      token = std::string(rest);
    }
  }
  void operator()(const Metaspace& step) const {
    for (size_t i = 0; i < tokens.size(); ++i) {
      // The replacement at the very start was prepended by the pre-tokenizer.
      const bool drop = i == 0 && step.prepend != PrependScheme::kNever;
      tokens[i] = replace_all(step.replacement, tokens[i], drop ? "" : " ", most);
    }
  }
  void operator()(const WordEnds& step) const {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(step.suffix, tokens[i], i + 1 == tokens.size() ? "" : " ", most);
    }
  }
};

}  // namespace

Decoder parse_decoder(const io::Json& json) {
  Decoder decoder;
  if (json.is_null()) return decoder;
  decoder.present = true;
  parse_into(json, 0, decoder.steps);
  return decoder;
}

std::string decode_tokens(const Decoder& decoder, std::vector<std::string> tokens) {
  if (!decoder.present) {
    std::string text;
    for (size_t i = 0; i < tokens.size(); ++i) text.append(i == 0 ? "" : " ").append(tokens[i]);
    return text;
  }
  size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  for (const DecoderStep& step : decoder.steps) std::visit(Apply{tokens, most_bytes(bytes)}, step);
  return joined(tokens);
}

}  // namespace bw::tokenizer
