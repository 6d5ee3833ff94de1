#include <cmath>

#include <fmt/format.h>

#include "bitwright/units.h"
#include "report/report.h"

namespace bw::report {
namespace {

// A YAML string in double quotes: JSON's strings are YAML's.
std::string quoted(const std::string& text) {
  return io::Json(text).dump(-1, ' ', false, io::Json::error_handler_t::replace);
}

// Text between bars of a Markdown table or in a line: what Markdown would take for markup is escaped.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\`*_[]<>|#").find(c) != std::string_view::npos) out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

// In backticks, however many the text has itself.
std::string code(std::string text) {
  std::string fence = "`";
  while (text.find(fence) != std::string::npos) fence += '`';
  for (char& c : text) c = c == '\n' ? ' ' : c;
  const bool apart = text.starts_with('`') || text.ends_with('`');
  return fence + (apart ? " " + text + " " : text) + fence;
}

std::string front_matter(const Report& r, const std::string& license) {
  std::string text = fmt::format("---\nbase_model: {}\nbase_model_relation: quantized\n", quoted(r.model));
  if (!license.empty()) text += fmt::format("license: {}\n", quoted(license));
  text +=
      "pipeline_tag: text-generation\nlibrary_name: exllamav2\nquantized_by: bitwright\ntags:\n- exl2\n- bitwright\n";
  return text + fmt::format("- {}\n---\n", quoted(fmt::format("{:.2f}bpw", r.bpw_linears)));
}

std::string figures(const Report& r) {
  std::string text =
      "| | bits per weight (linears) | head bits | size | KLD, predicted | KLD, measured | same most likely token | "
      "perplexity |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  text += fmt::format("| original | | | {} | 0 | 0 | 100 % | {:.3f} |\n", format_bytes(r.original_bytes),
                      r.measured.reference_perplexity.value);
  text += fmt::format("| this model | {:.3f} | {:.2f} | {} | {:.4f} | {:.4f} ± {:.4f} | {:.1f} % | {:.3f} |\n\n",
                      r.bpw_linears, r.bpw_head, format_bytes(r.bytes), r.predicted_kld, r.measured.kld.value,
                      r.measured.kld.error, 100 * r.measured.top1.value, r.measured.perplexity.value);
  text += fmt::format(
      "KLD, in nats per token, is the Kullback-Leibler divergence of this model's next-token distribution from the "
      "original's. *Predicted* is the sum of\nthe prices of all layouts, for text in general. *Measured* and what "
      "stands "
      "right of it are of {} tokens {}. Measure it on text of your own:\n\n"
      "```\nbitwright eval THIS_DIRECTORY --ref ORIGINAL --text YOUR_TEXT.txt\n```\n",
      r.measured.tokens,
      r.held_out ? "of the calibration text that were\nheld out of calibration: other kinds of text differ"
                 : "which the model\nhas been fitted to: other text comes out worse");
  return text;
}

std::string making(const Report& r) {
  std::string text = fmt::format(
      "## How it was made\n\nBitwright {}: every way of storing every linear was priced in nats from one "
      "forward and backward pass, the bits were spent where\nthey matter most, and weights were rounded with GPTQ "
      "(effort "
      "{}).\n\n- Calibration: {} rows of {} tokens, {}\n",
      plain(r.version), plain(r.effort), r.rows, r.length, plain(r.calibration));
  for (const CalibrationSource& s : r.sources) {
    text += fmt::format("  - {}: {:.0f} % of the tokens\n", code(s.name), 100 * s.share);
  }
  text += "- `report.html` shows bits and price of every linear and the command, `report.json` has the same as data\n";
  return text;
}

constexpr const char* kLoading =
    "## How to load it\n\n"
    "It is in EXL2 format, for [exllamav2](https://github.com/turboderp-org/exllamav2) and what is built on it, such "
    "as "
    "[TabbyAPI](https://github.com/theroyallab/tabbyAPI):\n\n"
    "```python\n"
    "from exllamav2 import ExLlamaV2, ExLlamaV2Cache, ExLlamaV2Config, ExLlamaV2Tokenizer\n"
    "from exllamav2.generator import ExLlamaV2DynamicGenerator\n\n"
    "config = ExLlamaV2Config(\"THIS_DIRECTORY\")\n"
    "model = ExLlamaV2(config)\n"
    "cache = ExLlamaV2Cache(model, lazy=True)\n"
    "model.load_autosplit(cache)\n"
    "tokenizer = ExLlamaV2Tokenizer(config)\n"
    "generator = ExLlamaV2DynamicGenerator(model=model, cache=cache, tokenizer=tokenizer)\n"
    "print(generator.generate(prompt=\"Once upon a time\", max_new_tokens=100))\n"
    "```\n\n"
    "Without a GPU: `bitwright generate THIS_DIRECTORY --prompt \"Once upon a time\"`.\n";

}  // namespace

std::string model_card(const Report& r, const std::string& license, const std::string& original_card) {
  std::string text = front_matter(r, license);
  text += fmt::format("\n# {}, {:.2f} bits per weight\n\nAn EXL2 quantization of {} ({}, {:.1f}M parameters).\n\n",
                      plain(r.model), r.bpw_linears, plain(r.model), plain(r.architecture),
                      static_cast<double>(r.parameters) / 1e6);
  text += figures(r) + "\n" + making(r) + "\n" + kLoading;
  if (!original_card.empty()) {
    text += fmt::format("\nThe original's own card is kept as [{}]({}).\n", plain(original_card), original_card);
  }
  return text;
}

}  // namespace bw::report
