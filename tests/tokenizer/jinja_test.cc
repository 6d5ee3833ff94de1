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

TEST(Jinja, AnObjectEqualsItselfWithoutBeingGoneThrough) {
  // 75 keys that share a tuple of 8192 items, each compared with all: as long as that of a few items.
  std::string keys;
  for (int i = 0; i < 75; ++i) keys += "(ns.t, " + std::to_string(i) + "): 1, ";
  const std::string text =
      "{% set ns = namespace(t=(0, 1)) %}{% for i in range(12) %}{% set ns.t = ns.t + ns.t %}"
      "{% endfor %}{{ {" +
      keys + "} | length }}";
  EXPECT_EQ(render(text), "75");
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
  const std::string start = "{% set ns = namespace(v=0) %}", loop = start + "{% for i in range(999) %}";
  EXPECT_NE(error_of(loop + "{% set ns.v = [ns.v] %}{% endfor %}").find("nested too deeply"), std::string::npos);
  EXPECT_NE(error_of(loop + "{% set ns.v = {'a': ns.v}.items() %}{% endfor %}").find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(error_of(loop + "{% set ns.v = [ns.v]|reverse %}{% endfor %}").find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}").find("nested too deeply"),
            std::string::npos);
  // A chain of namespaces is freed without recursion. (The text allows for the work of making it.)
  EXPECT_EQ(render(start + "{% for i in range(99999) %}{% set ns.v = namespace(v=ns.v) %}{% endfor %}ok",
                   {{"text", std::string(1'000'000, ' ')}}),
            "ok");
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

// What each of these does was free: 2^60 brackets, comparisons of megabytes, ranges beyond 64 bits.
TEST(Jinja, NothingIsFree) {
  const auto doubled = [](const std::string& start, const std::string& step, int times, const std::string& use) {
    return "{% set ns = namespace(v=" + start + ") %}{% for i in range(" + std::to_string(times) +
           ") %}{% set ns.v = " + step + " %}{% endfor %}" + use;
  };
  const std::string text = "{% set a = 'a' * 500000 %}{% set b = 'a' * 250000 + 'b' %}{% for i in range(40000) %}";
  for (const std::string& source : {
           doubled("[]", "[ns.v, ns.v]", 60, "{{ ns.v }}"),
           text + "{% set x = b in a %}{% endfor %}",
           text + "{% set x = a.find(b) %}{% endfor %}",
           text + "{% set x = 'b'.strip(a) %}{% endfor %}",
           text + "{% set x = {}[a] %}{% endfor %}",
           text + "{% set x = {a: 1}[a] %}{% endfor %}",
           text + "{% set x = a | int %}{% endfor %}",
           std::string("{{ range(1000) | list | tojson(separators=('a' * 100000, 'b')) }}"),
           std::string("{{ ('\n' * 3000000) | indent }}"),
           std::string("{{ [1, 2] | sort(attribute=',' * 3000000) }}"),
           std::string("{{ ('a' * 500000).startswith((('a' * 499999 + 'b'),) * 10000) }}"),
       }) {
    EXPECT_NE(error_of(source).find("too much work"), std::string::npos) << source;
  }
  EXPECT_EQ(render(doubled("(1,)", "(ns.v, ns.v)", 60, "{{ {ns.v: 1} | length }}")), "1");
  EXPECT_NE(error_of(doubled("range(0, 1099511627776, 1099511627776)", "ns.v[::2]", 60, "")).find("too large"),
            std::string::npos);
}

TEST(Jinja, NumbersAtTheirEnds) {
  EXPECT_EQ(render("{{ 'ab'.center(-9223372036854775807 - 1) ~ 'ab'.zfill(-9223372036854775807 - 1) }}"), "abab");
  EXPECT_NE(error_of("{{ 9223372036854775807 | round(-1) }}").find("64 bits"), std::string::npos);
  EXPECT_NE(error_of("{{ (-9223372036854775807) | round(-1) }}").find("64 bits"), std::string::npos);
  EXPECT_EQ(render("{{ 9223372036854775804 | round(-1) }} {{ -25 | round(-1) }} {{ 35 | round(-1) }}"),
            "9223372036854775800 -20 40");
  EXPECT_NE(error_of("{{ '{\u0663}'.format(1) }}").find("out of range"), std::string::npos);
}

TEST(Jinja, ErrorsAreShortAndPlain) {
  const std::string error = error_of("{{ raise_exception('\u00e9\n\x1b' * 5000) }}");
  EXPECT_LT(error.size(), 1100u);
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
}

// Keys that are not strings take as long to compare as they are large.
TEST(Jinja, LongKeysAreWork) {
  std::string source =
      "{% set ns = namespace(t=(0, 1)) %}{% for i in range(12) %}{% set ns.t = ns.t + ns.t %}{% endfor %}{{ {";
  for (int i = 0; i < 400; ++i) source += "(ns.t, " + std::to_string(i) + "): 1, ";
  EXPECT_NE(error_of(source + "} | length }}").find("too much work"), std::string::npos);
}

// A long conversation has more work than a short one is allowed.
TEST(Jinja, WorkGrowsWithTheConversation) {
  const ChatTemplate chat = ChatTemplate::parse(
      "{% for m in messages %}{% for i in range(50) %}{% set x = m.content | trim %}{% endfor %}{% endfor %}", "test");
  const auto render_messages = [&](size_t n, const std::string& content) {
    io::OrderedJson messages = io::OrderedJson::array();
    for (size_t i = 0; i < n; ++i) messages.push_back({{"role", "user"}, {"content", content}});
    return chat.render(messages, false);
  };
  EXPECT_EQ(render_messages(1, "hi"), "");
  EXPECT_EQ(render_messages(1000, "hi"), "");
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
