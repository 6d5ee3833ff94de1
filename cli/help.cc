// --help in the width of the terminal.
#include <algorithm>
#include <memory>
#include <sstream>

#include <unistd.h>

#include "commands.h"
#include "terminal.h"

namespace bw::cli {
namespace {

constexpr size_t kColumnsOfPipes = 110;

std::string wrapped(const std::string& text, size_t columns) {
  std::istringstream words(text);
  std::string out;
  size_t used = 0;
  for (std::string word; words >> word;) {
    const size_t width = width_of(word);
    if (used > 0) out += used + 1 + width > columns ? '\n' : ' ';
    used = used > 0 && used + 1 + width <= columns ? used + 1 + width : width;
    out += word;
  }
  return out;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    // Where there is no room beside the names, descriptions stand below them.
    column_width(columns_ < 60 ? 8 : columns_ < 100 ? 28 : 34);
    room_ = columns_ - std::min(columns_ - 1, get_column_width());
  }
  std::string make_description(const CLI::App* command) const override {
    return wrapped(CLI::Formatter::make_description(command), columns_) + "\n";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option), room_);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, command->get_name(), wrapped(command->get_description(), room_), get_column_width());
    return out.str();
  }

 private:
  size_t columns_ = isatty(STDOUT_FILENO) != 0 ? columns_of(STDOUT_FILENO) : kColumnsOfPipes;
  size_t room_ = 0;  // of descriptions
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<HelpFormatter>(); }

}  // namespace bw::cli
