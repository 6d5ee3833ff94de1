#include "option_list.h"

#include <algorithm>
#include <sstream>

namespace bw::cli {
namespace {

bool is_hidden(const CLI::App& command) { return command.get_group().empty(); }

// Type names of values that are words to choose from have no capitals: "fast|normal|best".
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> choices;
  const bool capitals = std::any_of(type.begin(), type.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  if (capitals || type.find('|') == std::string::npos) return choices;
  std::istringstream words(type);
  for (std::string word; std::getline(words, word, '|');) choices.push_back(word);
  return choices;
}

ValueKind kind_of(const OptionInfo& option) {
  if (!option.choices.empty()) return ValueKind::kChoice;
  if (option.type == "DIR") return ValueKind::kDirectory;
  if (option.type.starts_with("FILE") || option.type.starts_with("PATH") || option.type == "DIR|FILE") {
    return ValueKind::kFile;
  }
  return ValueKind::kAnything;
}

OptionInfo info_of(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  if (info.names.empty()) info.names.push_back(option.get_single_name());
  info.description = option.get_description();
  info.required = option.get_required();
  if (option.get_items_expected_max() == 0) return info;
  info.type = option.get_type_name();
  info.choices = choices_of(info.type);
  info.kind = kind_of(info);
  info.fallback = option.get_default_str();
  info.repeated = option.get_items_expected_max() > 1;
  return info;
}

CommandInfo info_of(const CLI::App& command, std::string name) {
  CommandInfo info;
  info.name = std::move(name);
  info.description = command.get_description();
  std::istringstream footer(command.get_footer());
  for (std::string line; std::getline(footer, line);) {
    if (line.starts_with("  ")) info.examples.push_back(line.substr(2));
  }
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? info.arguments : info.options).push_back(info_of(*option));
  }
  return info;
}

}  // namespace

std::vector<CommandInfo> command_list(const CLI::App& app) {
  std::vector<CommandInfo> commands = {info_of(app, "")};
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (!is_hidden(*command)) commands.push_back(info_of(*command, command->get_name()));
  }
  return commands;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (!is_hidden(*command)) names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty() || option->get_positional()) continue;
    const std::vector<std::string> more = info_of(*option).names;
    names.insert(names.end(), more.begin(), more.end());
  }
  return names;
}

std::string page_name(const CommandInfo& command) {
  return command.name.empty() ? "bitwright" : "bitwright-" + command.name;
}

}  // namespace bw::cli
