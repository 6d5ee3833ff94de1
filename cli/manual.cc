// Manual pages.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.h"
#include "option_list.h"

namespace bw::cli {
namespace {

// As it is to be read, at any place of a line.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      default:
        out += c;
    }
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

std::string synopsis(const CommandInfo& c) {
  if (c.name.empty()) return bold("bitwright") + " " + italic("COMMAND") + " ...\n";
  std::string line = bold("bitwright " + c.name);
  for (const OptionInfo& a : c.arguments) line += " " + italic(a.names.front());
  for (const OptionInfo& o : c.options) {
    if (o.required) line += " " + bold(o.names.front()) + " " + italic(o.type);
  }
  return line + " [" + italic("OPTION") + " ...]\n";
}

std::string paragraph(const OptionInfo& option) {
  std::string tag;
  for (const std::string& name : option.names) tag += (tag.empty() ? "" : ", ") + bold(name);
  if (!option.type.empty() && option.names.front().starts_with('-')) tag += " " + italic(option.type);
  std::string text = option.description + ".";
  if (!option.choices.empty()) text += fmt::format(" One of {}.", fmt::join(option.choices, ", "));
  if (!option.fallback.empty()) text += " Default: " + option.fallback + ".";
  if (option.repeated) text += " May be given more than once.";
  return ".TP\n" + tag + "\n" + roff(text) + "\n";
}

constexpr const char* kExitStatus = R"(.SH EXIT STATUS
.TP
0
Done.
.TP
2
An option or argument makes no sense.
.TP
3
The model, its data or a text is bad.
.TP
4
A number is not finite, or a matrix cannot be factored.
.TP
5
Input, output, disk or device memory.
.TP
6
An internal error.
.TP
130
Interrupted.
)";

constexpr const char* kEnvironment = R"(.SH ENVIRONMENT
.TP
.B NO_COLOR
If it is set and not empty, there are no colours. Elsewhere than on a terminal there are none anyway.
.TP
.B TERM
On a terminal that is \(lqdumb\(rq, progress is told in plain lines.
.TP
.BR LC_ALL ", " LC_CTYPE ", " LANG
The first that is set says whether the terminal shows UTF\-8.
)";

}  // namespace

std::string manual_page(const std::vector<CommandInfo>& commands, const CommandInfo& c) {
  std::string upper = page_name(c);
  for (char& letter : upper) letter = letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
  std::string page = fmt::format(".TH {} 1 \"\" \"Bitwright {}\" \"Bitwright manual\"\n", roff(upper), version());
  page += ".SH NAME\n" + roff(page_name(c)) + " \\- " + roff(c.description) + "\n";
  page += ".SH SYNOPSIS\n" + synopsis(c);
  if (c.name.empty()) {
    page += ".SH COMMANDS\n";
    for (const CommandInfo& other : commands) {
      if (!other.name.empty()) page += ".TP\n" + bold(other.name) + "\n" + roff(other.description) + ".\n";
    }
  }
  if (!c.arguments.empty()) page += ".SH ARGUMENTS\n";
  for (const OptionInfo& argument : c.arguments) page += paragraph(argument);
  page += ".SH OPTIONS\n";
  for (const OptionInfo& option : c.options) page += paragraph(option);
  if (!c.examples.empty()) {
    page += ".SH EXAMPLES\n.nf\n";
    for (const std::string& example : c.examples) page += roff(example) + "\n";
    page += ".fi\n";
  }
  page += kExitStatus;
  page += kEnvironment;
  page += ".SH SEE ALSO\n";
  std::string others;
  for (const CommandInfo& other : commands) {
    if (other.name != c.name) others += fmt::format("{}{}(1)", others.empty() ? "" : ",\n", bold(page_name(other)));
  }
  return page + others + "\n";
}

namespace {

struct State {
  std::string page;
  std::filesystem::path directory;
};

std::string run(const State& s, const CLI::App& app) {
  const std::vector<CommandInfo> commands = command_list(app);
  for (const CommandInfo& c : commands) {
    if (s.directory.empty() && c.name == s.page) fmt::print("{}", manual_page(commands, c));
    if (!s.directory.empty()) write_text(s.directory / (page_name(c) + ".1"), manual_page(commands, c));
  }
  return {};
}

}  // namespace

void add_man(CLI::App& app, Action& action) {
  auto s = std::make_shared<State>();
  CLI::App* c = app.add_subcommand("man", "Print a manual page: bitwright man quantize | man -l -");
  c->group("");
  auto* page = c->add_option("command", s->page, "The command; without one, the page of the program itself");
  const auto check = [&app](const std::string& name) {
    const std::vector<std::string> known = command_names(app);
    if (std::find(known.begin(), known.end(), name) != known.end()) return std::string();
    return fmt::format("'{}' is no command{}", name, did_you_mean(name, known));
  };
  page->check(CLI::Validator(check, ""));
  c->add_option("-o,--output", s->directory, "Directory to write all pages to, instead")
      ->type_name("DIR")
      ->excludes(page);
  c->callback([s, &app, &action] { action = [s, &app] { return run(*s, app); }; });
}

}  // namespace bw::cli
