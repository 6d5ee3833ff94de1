// Completion of commands, options and values in shells.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.h"
#include "option_list.h"

namespace bw::cli {
namespace {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(from)) {
      out += to;
      at += from.size();
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::vector<std::string> names_of(const std::vector<OptionInfo>& options) {
  std::vector<std::string> names;
  for (const OptionInfo& option : options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::string bash_value(const OptionInfo& option) {
  switch (option.kind) {
    case ValueKind::kFile:
      return "_bitwright_files -f";
    case ValueKind::kDirectory:
      return "_bitwright_files -d";
    case ValueKind::kChoice:
      return fmt::format("_bitwright_words '{}'", fmt::join(option.choices, " "));
    case ValueKind::kAnything:
    case ValueKind::kNone:
      break;
  }
  return ":";
}

constexpr const char* kBashBegin = R"(# bash completion for bitwright. Made by: bitwright completion bash
_bitwright_words() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

_bitwright_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen "$1" -- "$cur")
}

_bitwright() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command='' i
  # --option=value are three words here.
  if [[ $cur == = ]]; then
    cur=''
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [[ ${COMP_WORDS[i]} != -* ]]; then
      command=${COMP_WORDS[i]}
      break
    fi
  done
)";

std::string zsh_quoted(std::string_view text) { return "'" + replaced(text, "'", "'\\''") + "'"; }

std::string zsh_text(std::string_view text) {
  std::string out(text);
  for (const char* special : {"\\", "[", "]", ":"}) out = replaced(out, special, std::string("\\") + special);
  return out;
}

std::string zsh_value(const OptionInfo& option) {
  const std::string message = ":" + zsh_text(option.type) + ":";
  switch (option.kind) {
    case ValueKind::kFile:
      return message + "_files";
    case ValueKind::kDirectory:
      return message + "_files -/";
    case ValueKind::kChoice:
      return fmt::format("{}({})", message, fmt::join(option.choices, " "));
    case ValueKind::kAnything:
      return message;
    case ValueKind::kNone:
      break;
  }
  return {};
}

std::string zsh_option(const OptionInfo& option) {
  const std::string text = "[" + zsh_text(option.description) + "]" + zsh_value(option);
  std::string lines;
  for (const std::string& name : option.names) {
    std::string excluded = option.repeated ? "*" : fmt::format("({})", fmt::join(option.names, " "));
    lines += " \\\n        " + zsh_quoted(excluded + name + text);
  }
  return lines;
}

std::string fish_quoted(std::string_view text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string fish_value(const OptionInfo& option) {
  switch (option.kind) {
    case ValueKind::kFile:
      return " -r -F";
    case ValueKind::kDirectory:
      return " -x -a '(__fish_complete_directories)'";
    case ValueKind::kChoice:
      return fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
    case ValueKind::kAnything:
      return " -x";
    case ValueKind::kNone:
      break;
  }
  return {};
}

std::string fish_option(const OptionInfo& option, const std::string& condition) {
  std::string line = "complete -c bitwright -n " + condition;
  for (const std::string& name : option.names) {
    line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  return line + fish_value(option) + " -d " + fish_quoted(option.description) + "\n";
}

}  // namespace

std::string bash_completion(const std::vector<CommandInfo>& commands) {
  std::string names, script = kBashBegin;
  for (const CommandInfo& c : commands) names += c.name.empty() ? "" : c.name + " ";
  script += fmt::format("  if [[ -z $command ]]; then\n    _bitwright_words '{}{}'\n    return\n  fi\n", names,
                        fmt::join(names_of(commands.front().options), " "));
  script += "  case \"$command $prev\" in\n";
  for (const CommandInfo& c : commands) {
    for (const OptionInfo& option : c.options) {
      if (c.name.empty() || option.kind == ValueKind::kNone) continue;
      std::string patterns;
      for (const std::string& name : option.names) {
        patterns += fmt::format("{}'{} {}'", patterns.empty() ? "" : " | ", c.name, name);
      }
      script += fmt::format("    {})\n      {}\n      return\n      ;;\n", patterns, bash_value(option));
    }
  }
  script += "  esac\n  case $command in\n";
  for (const CommandInfo& c : commands) {
    if (c.name.empty()) continue;
    script += fmt::format("    {})\n      if [[ $cur == -* ]]; then\n        _bitwright_words '{}'\n", c.name,
                          fmt::join(names_of(c.options), " "));
    if (!c.arguments.empty()) script += fmt::format("      else\n        {}\n", bash_value(c.arguments.front()));
    script += "      fi\n      ;;\n";
  }
  return script + "  esac\n}\n\ncomplete -F _bitwright bitwright\n";
}

std::string zsh_completion(const std::vector<CommandInfo>& commands) {
  std::string script =
      "#compdef bitwright\n# Made by: bitwright completion zsh\n\n_bitwright() {\n  local -a commands\n";
  script += "  commands=(\n";
  for (const CommandInfo& c : commands) {
    if (!c.name.empty()) script += "    " + zsh_quoted(c.name + ":" + zsh_text(c.description)) + "\n";
  }
  script += "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    _arguments";
  for (const OptionInfo& option : commands.front().options) script += zsh_option(option);
  script += "\n    return\n  fi\n  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const CommandInfo& c : commands) {
    if (c.name.empty()) continue;
    script += fmt::format("    {})\n      _arguments -s", c.name);
    for (const OptionInfo& option : c.options) script += zsh_option(option);
    for (const OptionInfo& argument : c.arguments) script += " \\\n        " + zsh_quoted(zsh_value(argument));
    script += "\n      ;;\n";
  }
  // Sourced or autoloaded, the function is there; autoloaded, it is also to be run.
  return script +
         "  esac\n}\n\nif [[ $funcstack[1] == _bitwright ]]; then\n  _bitwright \"$@\"\nelse\n"
         "  compdef _bitwright bitwright\nfi\n";
}

std::string fish_completion(const std::vector<CommandInfo>& commands) {
  std::string script =
      "# fish completion for bitwright. Made by: bitwright completion fish\ncomplete -c bitwright -f\n";
  for (const OptionInfo& option : commands.front().options) script += fish_option(option, "__fish_use_subcommand");
  for (const CommandInfo& c : commands) {
    if (c.name.empty()) continue;
    script +=
        fmt::format("complete -c bitwright -n __fish_use_subcommand -a {} -d {}\n", c.name, fish_quoted(c.description));
    const std::string condition = fish_quoted("__fish_seen_subcommand_from " + c.name);
    for (const OptionInfo& option : c.options) script += fish_option(option, condition);
    for (const OptionInfo& argument : c.arguments) {
      if (argument.kind == ValueKind::kNone || argument.kind == ValueKind::kAnything) continue;
      const std::string value = argument.kind == ValueKind::kFile ? " -F" : fish_value(argument).substr(3);
      script += "complete -c bitwright -n " + condition + value + "\n";
    }
  }
  return script;
}

void add_completion(CLI::App& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  CLI::App* c =
      app.add_subcommand("completion", "Print what completes commands in a shell: source <(bitwright completion bash)");
  c->group("");
  one_of(*c->add_option("shell", *shell, "The shell")->required(), {"bash", "zsh", "fish"});
  c->callback([shell, &app, &action] {
    action = [shell, &app] {
      const std::vector<CommandInfo> commands = command_list(app);
      fmt::print("{}", *shell == "bash"  ? bash_completion(commands)
                       : *shell == "zsh" ? zsh_completion(commands)
                                         : fish_completion(commands));
      return std::string();
    };
  });
}

}  // namespace bw::cli
