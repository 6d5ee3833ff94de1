// Snippets of templates against the outputs of Python's jinja2 (tools/make_chat_template_fixtures.py), and the limits
// of the engine.
#include <gtest/gtest.h>

#include <string>

#include "bitwright/error.h"
#include "io/file_write.h"
#include "io/json.h"
#include "tokenizer/chat_template.h"

namespace bw::tokenizer {
namespace {

using io::OrderedJson;

std::string render(std::string_view source, const OrderedJson& variables = OrderedJson::object()) {
  return ChatTemplate::parse(source, "test").render(OrderedJson::array(), false, variables);
}

std::string error_of(std::string_view source, const OrderedJson& variables = OrderedJson::object()) {
  try {
    return "no error: " + render(source, variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kModel);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
}

TEST(Jinja, SnippetsEqualJinja2) {
  const OrderedJson fixture = io::load_ordered_json(std::string(BW_FIXTURES) + "/chat_template/snippets.json");
  OrderedJson variables = fixture["variables"];
  variables["strftime_now"] = fixture["clock"];
  size_t compared = 0, failed = 0;
  for (const auto& entry : fixture["snippets"]) {
    const auto source = entry["t"].get<std::string>();
    const bool expect_error = entry.contains("e") || entry.contains("refused");
    std::string found;
    bool threw = false;
    try {
      found = render(source, variables);
    } catch (const Error& error) {
      threw = true;
      found = error.what();
    }
    ++compared;
    const bool same = expect_error ? threw : !threw && found == entry["o"].get<std::string>();
    if (same) continue;
    ADD_FAILURE() << source << "\n  expected: " << (expect_error ? "an error" : entry["o"].dump())
                  << "\n  found:    " << (threw ? "error " : "") << found;
    if (++failed == 60) break;
  }
  EXPECT_GT(compared, 4000u);
}

TEST(Jinja, SyntaxErrorsHaveAPlace) {
  EXPECT_EQ(error_of("a\n  {{ 1 + }}"), "test:2:10: unexpected the end of a print statement");
  EXPECT_EQ(error_of("{% for x in y %}\nabc"), "test:2:4: expected '{% endfor %}', found the end of the template");
  EXPECT_EQ(error_of("{% include 'x' %}"), "test:1:4: unknown or unsupported statement 'include'");
  EXPECT_THROW(ChatTemplate::parse("{{ 'a\xff' }}", "test"), Error);
}

TEST(Jinja, RuntimeErrorsHaveAPlace) {
  EXPECT_EQ(error_of("{{ 1 }}\n{{ raise_exception('bad\nroles') }}"), "test:2:19: bad roles");
  EXPECT_EQ(error_of("{{ nothing.here }}"), "test:1:11: 'nothing' is undefined");
  EXPECT_EQ(error_of("{{ {'a': 1}.b.c }}"), "test:1:14: 'dict object' has no attribute 'b'");
}

TEST(Jinja, RecursionIsBounded) {
  EXPECT_NE(error_of("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}").find("recursion"), std::string::npos);
  std::string deep(100'000, '(');
  EXPECT_NE(error_of("{{ " + deep).find("nested too deeply"), std::string::npos);
  std::string chain = "1";
  for (int i = 0; i < 50'000; ++i) chain += "+1";
  EXPECT_NE(error_of("{{ " + chain + " }}").find("nested too deeply"), std::string::npos);
  for (const char* unit : {"-", "not ", "[", "{1:", "x[", "f(", "1 if 1 else ", "a.b|c(", "(a,"}) {
    std::string source = "{{ ";
    for (int i = 0; i < 20'000; ++i) source += unit;
    EXPECT_EQ(error_of(source).substr(0, 5), "test:") << unit;
  }
  std::string blocks;
  for (int i = 0; i < 10'000; ++i) blocks += "{% if 1 %}";
  EXPECT_NE(error_of(blocks).find("nested too deeply"), std::string::npos);
  std::string targets = "{% for " + std::string(50'000, '(');
  EXPECT_NE(error_of(targets).find("nested too deeply"), std::string::npos);
}

TEST(Jinja, NestedValuesAreBounded) {
  const std::string loop = "{% set ns = namespace(v=0) %}{% for i in range(99999) %}";
  EXPECT_NE(error_of(loop + "{% set ns.v = [ns.v] %}{% endfor %}").find("nested too deeply"), std::string::npos);
  EXPECT_NE(error_of(loop + "{% set ns.v = {'a': ns.v}.items() %}{% endfor %}").find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(error_of(loop + "{% set ns.v = [ns.v]|reverse %}{% endfor %}").find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}").find("nested too deeply"),
            std::string::npos);
  // A chain of namespaces is freed without recursion.
  EXPECT_EQ(render(loop + "{% set ns.v = namespace(v=ns.v) %}{% endfor %}ok"), "ok");
  EXPECT_EQ(render("{% macro m() %}{% endmacro %}{% set ns = namespace(m=m) %}{% set ns.n = ns %}ok"), "ok");
}

TEST(Jinja, WorkAndMemoryAreBounded) {
  const std::string loop = "{% for a in range(99999) %}";
  EXPECT_NE(error_of(loop + loop + loop + "{% endfor %}{% endfor %}{% endfor %}").find("too much"), std::string::npos);
  EXPECT_NE(error_of(loop + "{{ 'x' * 100000 }}{% endfor %}").find("too much"), std::string::npos);
  for (const char* source :
       {"{{ 'ab' * 9223372036854775807 }}", "{{ [1] * 9223372036854775807 }}",
        "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}", "{{ 'a'.center(9000000000) }}",
        "{{ 'a'|indent(9000000000) }}", "{{ [1]|tojson(indent=9000000000) }}", "{{ '%9999999999d' % 1 }}",
        "{{ '{:9999999999}'.format(1) }}", "{{ range(99999)|list * 99999 }}", "{{ ('a' * 100000000)|list|length }}",
        "{{ 10 ** 100 }}", "{{ 9223372036854775807 + 1 }}", "{{ 9223372036854775808 }}", "{{ 'x'.zfill(9000000000) }}",
        "{{ strftime_now('%9999999999Y') }}",
        "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"}) {
    EXPECT_EQ(error_of(source).substr(0, 5), "test:") << source;
  }
}

TEST(Jinja, StrftimeNowTellsTheTime) {
  EXPECT_EQ(render("{{ strftime_now('%d %B %Y, %A %H:%M') }}", {{"strftime_now", "2031-02-03 04:05:06"}}),
            "03 February 2031, Monday 04:05");
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d') }}", {{"strftime_now", "2024-02-29"}}), "2024-02-29");
  EXPECT_EQ(render("{{ strftime_now('%Y')|length }}"), "4");
  EXPECT_THROW(render("", {{"strftime_now", "yesterday"}}), Error);
}

// Every prefix and every template with one byte dropped: an answer or an Error, never a crash.
TEST(Jinja, DamagedTemplatesAreRefusedOrRendered) {
  const std::string source =
      "{%- macro m(a, b='x') -%}{{ a ~ b|upper }}{%- endmacro -%}\n{% for k, v in {'a': [1, 2.5], \"b\": "
      "(none,)}.items() if k %}"
      "{% set ns = namespace(n=1) %}{{ m(v[0:1][::-1], b=k) }}{# c #}{% raw %}{{ {% endraw %}{% if not loop.last and v "
      "is iterable %},"
      "{% elif 1 < 2 <= 3 %};{% else %}{% break %}{% endif %}{% endfor %}{{ '\\u00e9%s' % (1e3,) }}";
  EXPECT_FALSE(render(source).empty());
  for (size_t i = 0; i < source.size(); ++i) {
    for (const std::string& damaged :
         {source.substr(0, i), source.substr(0, i) + source.substr(i + 1), source.substr(i)}) {
      try {
        render(damaged);
      } catch (const Error&) {
      }
    }
  }
}

}  // namespace
}  // namespace bw::tokenizer
