// Checks of source text: what a file includes, what it calls, how long its functions are. They read text, not C++: good
// enough to catch slips, and cheap. Each check returns one line a violation, "NAME:LINE: what is wrong".
#pragma once

#include <algorithm>
#include <cctype>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace bw::layout {

struct SourceFile {
  std::string name;  // relative to the project, '/' between parts
  std::string text;
};

using Violations = std::vector<std::string>;

inline std::string violation(const SourceFile& file, size_t line, const std::string& what) {
  return file.name + ":" + std::to_string(line) + ": " + what;
}

inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Names of the layers, lowest first, as CMakeLists.txt declares them with bw_layer().
inline std::vector<std::string> layers_of(const std::string& cmake_lists) {
  static const std::regex kLayer(R"(\nbw_layer\((\w+))");
  std::vector<std::string> layers;
  for (std::sregex_iterator i(cmake_lists.begin(), cmake_lists.end(), kLayer), end; i != end; ++i)
    layers.push_back((*i)[1]);
  return layers;
}

// Where the comment or literal that begins at `at` ends (one past it); `at` if none begins there.
inline size_t end_of_comment_or_literal(std::string_view text, size_t at) {
  const auto past = [&](std::string_view closing, size_t from) {
    const size_t end = text.find(closing, from);
    return end == std::string_view::npos ? text.size() : end + closing.size();
  };
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("//")) return std::min(text.find('\n', at), text.size());
  if (rest.starts_with("/*")) return past("*/", at + 2);
  if (rest.starts_with("R\"")) {
    const size_t open = text.find('(', at);
    if (open == std::string_view::npos) return text.size();
    return past(std::string(")").append(text.substr(at + 2, open - at - 2)).append("\""), open);
  }
  const char quote = text[at];
  const bool digit_separator = quote == '\'' && at > 0 && std::isxdigit(static_cast<unsigned char>(text[at - 1]));
  if ((quote != '"' && quote != '\'') || digit_separator) return at;
  size_t end = at + 1;
  while (end < text.size() && text[end] != quote && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

// The text with comments and literals blanked; line ends stay where they are.
inline std::string blank_comments_and_literals(std::string_view text) {
  std::string out(text);
  for (size_t at = 0; at < text.size();) {
    const size_t end = end_of_comment_or_literal(text, at);
    for (size_t i = at; i < end; ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
    at = std::max(end, at + 1);
  }
  return out;
}

struct Include {
  size_t line;
  std::string path;
};

// What a file includes in double quotes.
inline std::vector<Include> quoted_includes(const SourceFile& file) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*"([^"]*)".*)re");
  std::vector<Include> includes;
  const std::vector<std::string> lines = lines_of(file.text);
  std::smatch match;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (std::regex_match(lines[i], match, kInclude)) includes.push_back({i + 1, match[1]});
  }
  return includes;
}

inline std::string first_part(const std::string& path) { return path.substr(0, path.find('/')); }

// A file of src/ may include the public headers, its own layer and the layers below it, each by its path under src/;
// headers of other projects stand in angle brackets.
inline Violations check_layering(const SourceFile& file, const std::vector<std::string>& layers) {
  const auto rank = [&](const std::string& layer) {
    return std::find(layers.begin(), layers.end(), layer) - layers.begin();
  };
  const auto unknown = static_cast<std::ptrdiff_t>(layers.size());
  const std::string own = first_part(file.name.substr(std::string("src/").size()));
  if (rank(own) == unknown) return {violation(file, 1, "src/" + own + " is not a layer of CMakeLists.txt")};
  Violations found;
  for (const Include& include : quoted_includes(file)) {
    const std::string layer = first_part(include.path);
    if (layer == "bitwright" || layer == "hwy") continue;  // Highway wants its headers in quotes
    if (rank(layer) == unknown) {
      found.push_back(violation(file, include.line, "\"" + include.path + "\" names no layer"));
    } else if (rank(layer) > rank(own)) {
      found.push_back(violation(file, include.line, own + " includes \"" + include.path + "\" of a layer above it"));
    }
  }
  return found;
}

// Of the project, a public header includes public headers only; a file of cli/ those and its own folder.
inline Violations check_public_only(const SourceFile& file) {
  Violations found;
  for (const Include& include : quoted_includes(file)) {
    const std::string folder = first_part(include.path);
    const bool own = file.name.starts_with("cli/") && (folder == "cli" || folder == include.path);
    if (folder == "bitwright" || own) continue;
    found.push_back(violation(file, include.line, "\"" + include.path + "\" is not public"));
  }
  return found;
}

// Nothing in the library prints, exits or aborts.
inline Violations check_silent(const SourceFile& file) {
  static const std::regex kLoud(
      R"(\b(cout|cerr|clog|stdout|stderr)\b|\b(printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|exit|_exit|_Exit|quick_exit|abort|terminate|assert)\s*\(|\bfmt::print\b)");
  Violations found;
  const std::vector<std::string> lines = lines_of(blank_comments_and_literals(file.text));
  std::smatch match;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (std::regex_search(lines[i], match, kLoud)) found.push_back(violation(file, i + 1, "uses " + match.str()));
  }
  return found;
}

inline Violations check_file_length(const SourceFile& file, size_t limit) {
  const size_t count = lines_of(file.text).size();
  if (count <= limit) return {};
  return {violation(file, count, std::to_string(count) + " lines; the limit is " + std::to_string(limit))};
}

// True if `head`, the text between the end of the last statement and a '{', begins a function's body: it has a
// parameter list, and is no type, namespace or initialiser.
inline bool begins_function(std::string head) {
  static const std::regex kTemplate(R"(\btemplate\s*<)"), kOperator(R"(\boperator\s*[^\s\w(]+)"),
      kScope(R"(\b(namespace|class|struct|union|enum)\b)");
  std::smatch match;
  while (std::regex_search(head, match, kTemplate)) {
    size_t end = match.position() + match.length();
    for (int depth = 1; depth > 0 && end < head.size(); ++end) depth += (head[end] == '<') - (head[end] == '>');
    head.erase(match.position(), end - match.position());
  }
  const size_t open = head.find('(');
  if (open == std::string::npos) return false;
  const std::string before = std::regex_replace(head.substr(0, open), kOperator, "operator");
  return before.find('=') == std::string::npos && !std::regex_search(before, kScope);
}

// Counts the lines of function definitions, from the line where the declaration begins; lambdas and local types count
// as lines of the function that holds them.
inline Violations check_function_length(const SourceFile& file, size_t limit) {
  static const std::regex kDirective(R"(^\s*#.*)");
  Violations found;
  std::string head;
  size_t head_line = 0, depth = 0, body_depth = 0;  // body_depth 0: outside of functions
  const std::vector<std::string> lines = lines_of(blank_comments_and_literals(file.text));
  for (size_t i = 0; i < lines.size(); ++i) {
    if (std::regex_match(lines[i], kDirective)) continue;
    for (const char c : lines[i] + " ") {
      const bool blank = c == ' ' || c == '\t';
      if (head.empty() && !blank) head_line = i + 1;
      if (!blank || !head.empty()) head += c;
      if (c == '{') {
        ++depth;
        if (body_depth == 0 && begins_function(head)) body_depth = depth;
      } else if (c == '}') {
        if (body_depth == depth && body_depth != 0) {
          body_depth = 0;
          const size_t count = i + 1 - head_line + 1;
          if (count > limit)
            found.push_back(violation(file, head_line, "a function of " + std::to_string(count) + " lines"));
        }
        depth -= depth > 0;
      }
      if (body_depth == 0 && (c == '{' || c == '}' || c == ';')) head.clear();
    }
  }
  return found;
}

// No absolute path of the machine on which the file was written.
inline Violations check_machine_paths(const SourceFile& file) {
  static constexpr std::string_view kFolders[] = {"tmp/w", "work", "root",
                                                  "home"};  // without '/': this file is checked too
  const auto in_a_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; };
  const auto before_a_slash = [&](char c) {
    return in_a_name(c) || c == '.' || c == '}' || c == ')' || c == '/' || c == '*';
  };
  Violations found;
  const std::vector<std::string> lines = lines_of(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const std::string_view folder : kFolders) {
      const std::string path = std::string("/").append(folder);
      for (size_t at = lines[i].find(path); at != std::string::npos; at = lines[i].find(path, at + 1)) {
        const size_t end = at + path.size();
        const bool relative = at > 0 && before_a_slash(lines[i][at - 1]);
        const bool longer = end < lines[i].size() && in_a_name(lines[i][end]);
        if (!relative && !longer) found.push_back(violation(file, i + 1, "names " + path));
      }
    }
  }
  return found;
}

}  // namespace bw::layout
