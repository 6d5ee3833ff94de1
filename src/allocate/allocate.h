// Spending a size budget: one choice for every item so that the sum of prices is least (a multiple-choice knapsack).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace bw::allocate {

struct Choice {
  uint64_t bits = 0;
  double price = 0;
};

struct Plan {
  std::vector<size_t> chosen;  // per item, index of its choice
  uint64_t bits = 0;           // sum over the items
  double price = 0;
};

// Sum of the smallest (largest) choices: the reach of any plan.
uint64_t smallest_bits(std::span<const std::vector<Choice>> items);
uint64_t largest_bits(std::span<const std::vector<Choice>> items);

// Lagrangian solution on the convex hulls, then a fill-up of what is left of the budget by the single changes that gain
// most. `alternatives` are plans (indices per item) that the result must not be worse than, as far as they fit (uniform
// layouts). A larger budget never gives a higher price nor, alternatives apart, fewer bits. Every item has at least one
// choice; budget_bits >= smallest_bits. Deterministic: ties go to the lower index. Everett, "Generalized Lagrange
// multiplier method", Operations Research 1963; the remainder as in Sinha & Zoltners 1979.
Plan allocate(std::span<const std::vector<Choice>> items, uint64_t budget_bits,
              std::span<const std::vector<size_t>> alternatives = {});

}  // namespace bw::allocate
