// Options of commands that let a model write.
#include <fmt/format.h>

#include "commands.h"

namespace bw::cli {

void add_writing_options(CLI::App& command, WritingOptions& writing) {
  command.add_option("model", writing.model, "Model directory, original or EXL2")->required()->type_name("DIR");
  command.add_option("-n,--max-tokens", writing.max_tokens, "Tokens to write at most")
      ->check(whole_number(0, uint64_t{1} << 20))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--temperature", writing.temperature, "0: the most likely token each time")
      ->type_name("T")
      ->capture_default_str();
  command.add_option("--top-k", writing.top_k, "Draw from so many most likely tokens (0: all)")
      ->check(whole_number(0, UINT64_MAX))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--top-p", writing.top_p, "of them, from the most likely ones that make up this share")
      ->type_name("P")
      ->capture_default_str();
  command.add_option("--min-p", writing.min_p, "of them, from those at least so likely, times the most likely one")
      ->type_name("P")
      ->capture_default_str();
  command.add_option("--seed", writing.seed, "Seed of the draws")
      ->check(whole_number(0, UINT64_MAX))
      ->type_name("N")
      ->capture_default_str();
  command
      .add_option("--stop", writing.stop,
                  "End before this text; may be repeated (the model's end tokens end it in any case)")
      ->allow_extra_args(false)
      ->type_name("TEXT");
}

std::string_view ending_name(Ending ending) {
  switch (ending) {
    case Ending::kMaxTokens:
      return "max_tokens";
    case Ending::kEndToken:
      return "end_token";
    case Ending::kStopText:
      return "stop_text";
    case Ending::kContext:
      return "context";
    case Ending::kInterrupted:
      break;
  }
  return "interrupted";
}

}  // namespace bw::cli
