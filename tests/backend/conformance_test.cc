// Every operation on every device: against references, and between devices that must give the same bytes.
#include <cctype>
#include <map>

#include "backend/cases/all.h"
#include "backend/cases/place.h"
#include "backend/testing.h"

namespace bw::backend::conformance {
namespace {

// A case and what it must give, which is worked out once for all devices.
struct Prepared {
  Case c;
  Expectation expectation;
};

const std::vector<Prepared>& prepared_cases(size_t op) {
  static std::map<size_t, std::vector<Prepared>> all;
  const auto [at, fresh] = all.try_emplace(op);
  if (fresh) {
    for (Case& c : cases_of(op)) {
      Expectation expectation = c.reference(c.operands);
      at->second.push_back({std::move(c), std::move(expectation)});
    }
  }
  return at->second;
}

// "rms norm" -> "RmsNorm"
std::string op_title(size_t op) {
  std::string title;
  bool begins = true;
  const std::string_view name = op_names().at(op);
  for (const char c : name) {
    if (c != ' ') title += begins ? static_cast<char>(std::toupper(c)) : c;
    begins = c == ' ';
  }
  return title;
}

struct Outcome {
  Operands after;
  std::vector<std::vector<std::byte>> memory;  // of all operands, with what lies beside their rows
  std::string fault;                           // writes where none may be
};

// Operands that an operation only reads must be what they were.
std::string check_untouched(const Op& op, std::span<const Tensor> tensors, const Operands& before,
                            const Operands& after) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    bool written = false;
    std::visit(
        [&](const auto& o) {
          o.operands([&](const Tensor& t, Access access) {
            written |= access == Access::kWrite && t.memory == tensors[i].memory;
          });
        },
        op);
    if (!written && before[i].bytes != after[i].bytes) return fmt::format("operand {} has changed", i);
  }
  return {};
}

Outcome run(Backend& device, const Case& c) {
  const Placed placed(device, c.operands);
  Op op = c.op(device, placed.tensors());
  device.enqueue(op);
  Outcome outcome;
  outcome.memory = placed.read();
  outcome.after = placed.operands_in(outcome.memory, outcome.fault);
  if (outcome.fault.empty()) outcome.fault = check_untouched(op, placed.tensors(), c.operands, outcome.after);
  return outcome;
}

void expect_as_specified(Backend& device, size_t op, bool with_large = true) {
  for (const Prepared& p : prepared_cases(op)) {
    if (p.c.large && !with_large) continue;
    SCOPED_TRACE(p.c.name);
    const Outcome outcome = run(device, p.c);
    EXPECT_EQ(outcome.fault, "");
    EXPECT_EQ(p.expectation(outcome.after), "");
  }
}

class Conformance : public testing::TestWithParam<std::tuple<TestDevice, size_t>> {
 protected:
  // Made once for all operations: some devices take long to start.
  static Backend& device(const TestDevice& entry) {
    std::unique_ptr<Backend>& made = devices()[entry.name];
    if (!made) made = entry.make();
    return *made;
  }
  static void TearDownTestSuite() { devices().clear(); }

 private:
  static std::map<std::string, std::unique_ptr<Backend>>& devices() {
    static std::map<std::string, std::unique_ptr<Backend>> all;
    return all;
  }
};

TEST_P(Conformance, DoesWhatItsDescriptionSays) {
  const auto& [entry, op] = GetParam();
  if (const std::string reason = why_skipped(entry); !reason.empty()) GTEST_SKIP() << reason;
  ASSERT_FALSE(prepared_cases(op).empty()) << "no cases of '" << op_names()[op] << "': add them to cases/all.h";
  Backend& under_test = device(entry);
  if (entry.name == "cpu") {
    for_each_simd_target([&, index = op] { expect_as_specified(under_test, index); });
  } else {
    expect_as_specified(under_test, op, !entry.played);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Conformance,
                         testing::Combine(testing::ValuesIn(test_devices()), testing::Range(size_t{0}, kOps)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + op_title(std::get<1>(test.param));
                         });

class SameBytes : public testing::TestWithParam<size_t> {};

void expect_same_bytes(Backend& one, Backend& other, const Case& c) {
  const Outcome a = run(one, c), b = run(other, c);
  for (size_t i = 0; i < a.memory.size(); ++i) EXPECT_EQ(a.memory[i] == b.memory[i], true) << "operand " << i;
}

// Sizes that are cut into many tasks; their references would take too long.
std::vector<Case> large_cases(size_t op) {
  std::vector<Case> cases;
  for (const Precision p : {Precision::kF32, Precision::kBF16}) {
    for (const size_t m : {40, 700, 2300}) {  // few rows, and enough for whole rows as tasks
      if (op == index_of<op::Linear>()) cases.push_back(linear_case({m, 520, 300}, p, true, false));
      if (op == index_of<op::Gemm>()) cases.push_back(gemm_case({m, 520, 300}, false, true, {1.0f, 0.0f}, p));
      if (op == index_of<op::AccumulateGram>()) cases.push_back(gram_case(m, 300, true, p));
    }
  }
  if (op == index_of<op::Attention>()) cases.push_back(attention_case({2, 333, 6, 2, 32, 0, 0}));
  if (op == index_of<op::AttentionGradient>()) {
    cases.push_back(attention_gradient_case({2, 333, 6, 2, 32, 0, 0}));
  }
  if (op == index_of<op::RoundGroup>()) {
    cases.push_back(round_group_case(random_weights(128, 1056, 1, 0.05f), 64, 3, usual_scale_max(0.05f, 3)));
  }
  if (op == index_of<op::RefineGroup>()) cases.push_back(refine_group_case({64, 1056, 3}, 1));
  return cases;
}

void expect_same_bytes_on_all_cases(Backend& one, Backend& other, size_t op) {
  for (const Prepared& p : prepared_cases(op)) {
    SCOPED_TRACE(p.c.name);
    expect_same_bytes(one, other, p.c);
  }
  for (const Case& c : large_cases(op)) {
    SCOPED_TRACE(c.name);
    expect_same_bytes(one, other, c);
  }
}

TEST_P(SameBytes, AtAnyNumberOfThreads) {
  const auto one = make_cpu_backend(1);
  for (const size_t threads : {2, 3}) {
    SCOPED_TRACE(testing::Message() << threads << " threads");
    expect_same_bytes_on_all_cases(*one, *make_cpu_backend(threads), GetParam());
  }
}

TEST_P(SameBytes, OnTheTestDevice) {
  expect_same_bytes_on_all_cases(*make_cpu_backend(2), *make_backend({.name = "sim", .threads = 2}), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Operations, SameBytes, testing::Range(size_t{0}, kOps),
                         [](const auto& test) { return op_title(test.param); });

TEST(ConformanceCases, AreOfTheOperationThatTheyAreListedUnder) {
  const auto device = make_cpu_backend(1);
  for (size_t op = 0; op < kOps; ++op) {
    for (const Prepared& p : prepared_cases(op)) {
      const Placed placed(*device, p.c.operands);
      const size_t made = p.c.op(*device, placed.tensors()).index();
      // A weight shows what it holds only in a product.
      ASSERT_EQ(made, op == index_of<op::PackWeight>() ? index_of<op::Linear>() : op) << p.c.name;
    }
  }
}

}  // namespace
}  // namespace bw::backend::conformance
