#include "report/report.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "report/html.h"
#include "support/errors.h"

namespace bw::report {
namespace {

using test::expect_error;

// Two layers of two linears and a head, with names that every format must escape.
Report sample() {
  Report r;
  r.version = "0.1.0";
  r.model = "org/a <b> & \"c\" `d`\\ \xc3\xa9|";
  r.architecture = "LlamaForCausalLM";
  r.fingerprint = "f00d";
  r.command = "bitwright quantize 'my model' -o out --bpw 4";
  r.layers = 2;
  r.hidden = 64;
  r.vocabulary = 300;
  r.parameters = 123456;
  r.original_bytes = 400000;
  r.bytes = 100000;
  r.bpw_target = 4;
  r.bpw_linears = 3.9876;
  r.bpw_head = 6.125;
  r.predicted_kld = 0.1234;
  r.held_out = true;
  r.measured.has_reference = true;
  r.measured.tokens = 512;
  r.measured.kld = {0.0456, 0.0021};
  r.measured.top1 = {0.875, 0.01};
  r.measured.perplexity = {12.5, 0.2};
  r.measured.reference_perplexity = {11.25, 0.2};
  r.measured.kld_median = 0.01, r.measured.kld_p90 = 0.1, r.measured.kld_p99 = 0.5, r.measured.kld_p999 = 1,
  r.measured.kld_max = 2;
  for (size_t layer = 0; layer < 2; ++layer) {
    const std::string key = "model.layers." + std::to_string(layer);
    r.linears.push_back({key + ".self_attn.q_proj", "q_proj", layer, 64, 64, "4b64g64", 4.25, 0.01 + 0.01 * layer});
    r.linears.push_back({key + ".mlp.down_proj", "down_proj", layer, 128, 64, "f16", 16, 0});
  }
  r.linears.push_back({"lm_head", "lm_head", 2, 64, 300, "6b64g32", 6.125, 0.003});
  r.trace = {{1, false, 0.02, {0.021, 0.002}}, {2, false, 0.05, {0.055, 0.003}}, {2, true, 0.053, {0.06, 0.003}}};
  r.frontier = {{3.0, 0.5, ""}, {3.7376, 0.2, ""}, {3.9876, 0.1234, ""}, {4.2376, 0.08, ""}, {6, 0.01, ""}};
  r.uniform = {{4.2, 0.15, "4 bits, groups of 64"}};
  r.effort = "normal", r.device = "cpu", r.arithmetic = "bf16", r.threads = 2, r.seed = 7;
  r.calibration = "a_b.txt, c.txt", r.text_fingerprint = "beef", r.rows = 12, r.length = 64;
  r.sources = {{"a_b.txt", 1, 3, 5000, 8, 512, 2.0 / 3}, {"c.txt", 1, 1, 900, 4, 256, 1.0 / 3}};
  r.warnings = {"plan: <odd> & more"};
  StageTime stage;
  stage.stage = "quantize: GPTQ", stage.seconds = 1.5, stage.wait_seconds = 0.25, stage.waits = 3;
  r.stages = {stage};
  r.seconds = 2.5;
  r.peak_memory = 12345678;
  return r;
}

std::string json_of(const Report& r) { return to_json(r).dump(); }

TEST(ReportData, ParseGivesBackWhatWasWritten) {
  const Report r = sample();
  EXPECT_EQ(json_of(parse_report(io::parse_json(json_of(r), "test"), "test")), json_of(r));
}

TEST(ReportData, NumbersThatAreNoneSurviveAsNone) {
  Report r = sample();
  r.measured.kld.value = std::numeric_limits<double>::quiet_NaN();
  r.linears[0].price = INFINITY;
  const Report back = parse_report(io::parse_json(json_of(r), "test"), "test");
  EXPECT_TRUE(std::isnan(back.measured.kld.value));
  EXPECT_TRUE(std::isnan(back.linears[0].price));
  EXPECT_NE(html_page(back).find("</html>"), std::string::npos);
}

TEST(ReportData, EachKeyIsRequiredAndOfItsType) {
  const io::Json whole = io::parse_json(json_of(sample()), "test");
  for (const auto& [key, value] : whole.items()) {
    io::Json without = whole, other = whole;
    without.erase(key);
    other[key] = value.is_object() ? io::Json("no") : io::Json({{"no", 1}});
    for (const io::Json& damaged : {without, other}) {
      expect_error([&] { parse_report(damaged, "out/report.json"); }, ErrorCode::kModel, {"out/report.json: "});
    }
  }
  for (const char* text : {"[]", "1", "{}", R"({"format":"other"})"}) {
    expect_error([&] { parse_report(io::parse_json(text, "x"), "x"); }, ErrorCode::kModel, {"x: it is no report"});
  }
  io::Json negative = whole;
  negative["bytes"] = -1;
  expect_error([&] { parse_report(negative, "x"); }, ErrorCode::kModel, {"x: damaged: ", "'bytes'"});
}

size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

TEST(ReportPage, NeedsNothingElse) {
  for (const std::string& page : {html_page(sample()), html_comparison(std::vector<Report>{sample(), sample()})}) {
    for (const char* what : {"<script", "src=", "href=", "url(", "@import", "<link"}) {
      EXPECT_EQ(page.find(what), std::string::npos) << what;
    }
    EXPECT_EQ(count(page, "http"), count(page, "http://www.w3.org/2000/svg"));
    EXPECT_NE(page.find("name=\"viewport\""), std::string::npos);
    EXPECT_NE(page.find("prefers-color-scheme:dark"), std::string::npos);
  }
}

TEST(ReportPage, EveryPictureHasItsTableAndEveryTagItsEnd) {
  const std::string page = html_page(sample());
  EXPECT_EQ(count(page, "<svg"), 7u);
  EXPECT_EQ(count(page, "<details"), count(page, "<svg"));
  for (const char* tag :
       {"svg", "g", "table", "details", "section", "figure", "div", "td", "th", "tr", "title", "text"}) {
    const std::string open = std::string("<") + tag;
    EXPECT_EQ(count(page, open + ">") + count(page, open + " "), count(page, std::string("</") + tag + ">")) << tag;
  }
}

TEST(ReportPage, TellsEveryLinearAndEveryFigure) {
  const Report r = sample();
  const std::string page = html_page(r);
  for (const Linear& l : r.linears) {
    EXPECT_NE(page.find("<th scope=\"row\">" + l.key + "</th>"), std::string::npos) << l.key;
    EXPECT_NE(page.find(l.layout), std::string::npos);
  }
  for (const char* what :
       {"3.9876", "6.125", "0.1234", "0.0456 ± 0.0021", "87.5 %", "12.500 (11.250)", "25.0 %", "4 bits, groups of 64",
        "66.7 %", "quantize: GPTQ", "f00d", "beef", "12.3 MB", "-0.25 bits per weight: predicted KLD 0.2 (+62 %)",
        "+0.25 bits per weight: predicted KLD 0.08 (-35 %)"}) {
    EXPECT_NE(page.find(what), std::string::npos) << what;
  }
}

TEST(ReportPage, TextIsEscaped) {
  const std::string page = html_page(sample());
  EXPECT_NE(page.find("org/a &lt;b&gt; &amp; &#34;c&#34;"), std::string::npos);
  EXPECT_NE(page.find("plan: &lt;odd&gt; &amp; more"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_EQ(page.find("<odd>"), std::string::npos);
  EXPECT_EQ(escaped("a\xff"
                    "b"),
            "a\xef\xbf\xbd"
            "b");
}

TEST(ReportPage, AModelWithoutQuantizedLinearsHasAPage) {
  Report r = sample();
  r.frontier.clear();
  r.uniform.clear();
  r.sources.clear();
  r.stages.clear();
  r.predicted_kld = 0;
  for (Linear& l : r.linears) l.price = 0;
  const std::string page = html_page(r);
  EXPECT_EQ(page.find("nan"), std::string::npos);
  EXPECT_EQ(page.find("inf"), std::string::npos);
  EXPECT_EQ(count(page, "<svg"), 6u);
}

TEST(ModelCard, TellsItsFiguresAndWhereTheOriginalsIs) {
  const std::string card = model_card(sample(), "apache-2.0", "README.original.md");
  EXPECT_TRUE(card.starts_with("---\nbase_model: \"org/a <b> & \\\"c\\\" `d`\\\\ \xc3\xa9|\"\n")) << card;
  for (const char* what :
       {"license: \"apache-2.0\"\n", "base_model_relation: quantized\n", "- exl2\n", "- \"3.99bpw\"\n",
        "| this model | 3.988 | 6.12 | 100 kB | 0.1234 | 0.0456 ± 0.0021 | 87.5 % | 12.500 |",
        "12 rows of 64 tokens, a\\_b.txt, c.txt", "  - `c.txt`: 33 % of the tokens", "README.original.md"}) {
    EXPECT_NE(card.find(what), std::string::npos) << what << "\n" << card;
  }
  EXPECT_EQ(model_card(sample(), "", "").find("license:"), std::string::npos);
  EXPECT_EQ(model_card(sample(), "", "").find("original's own card"), std::string::npos);
}

TEST(ModelCard, DoesNotDependOnTheRun) {
  Report other = sample();
  other.seconds = 99;
  other.stages.clear();
  other.peak_memory = 1;
  other.command = "bitwright quantize elsewhere";
  other.warnings.clear();
  EXPECT_EQ(model_card(other, "", ""), model_card(sample(), "", ""));
}

}  // namespace
}  // namespace bw::report
