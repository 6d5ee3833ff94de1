// The commands and options that are registered, as data: manual pages and completion are made from them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace bw::cli {

// What can stand as the value of an option or argument; its type name tells: "FILE", "DIR", "a|b|c".
enum class ValueKind { kNone, kAnything, kFile, kDirectory, kChoice };

struct OptionInfo {
  std::vector<std::string> names;  // "-o", "--output"; of an argument one word: "model"
  ValueKind kind = ValueKind::kNone;
  std::string type;                  // "FILE"; empty for a flag
  std::vector<std::string> choices;  // of kChoice
  std::string description;           // one line
  std::string fallback;              // the value without it; empty: none, or told in the description
  bool required = false, repeated = false;
};

struct CommandInfo {
  std::string name;                   // "" of the program itself
  std::string description;            // one line
  std::vector<std::string> examples;  // command lines
  std::vector<OptionInfo> arguments, options;
};

// The program itself first, then its commands in order, without hidden ones.
std::vector<CommandInfo> command_list(const CLI::App& app);
// The names of the commands and of the options of one, hidden ones aside.
std::vector<std::string> command_names(const CLI::App& app);
std::vector<std::string> option_names(const CLI::App& command);

// Pages for man(1), in roff: of the program (name "") or a command.
std::string manual_page(const std::vector<CommandInfo>& commands, const CommandInfo& command);
// "bitwright", "bitwright-plan"
std::string page_name(const CommandInfo& command);
std::string bash_completion(const std::vector<CommandInfo>& commands);
std::string zsh_completion(const std::vector<CommandInfo>& commands);
std::string fish_completion(const std::vector<CommandInfo>& commands);

}  // namespace bw::cli
