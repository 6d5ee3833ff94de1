#include "allocate/allocate.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace bw::allocate {
namespace {

using Items = std::span<const std::vector<Choice>>;

constexpr uint64_t kParts = 32;  // of the step that no longer fits: budgets planned for within it

// A step up an item's hull: from one choice to the next larger one.
struct Step {
  size_t item = 0, to = 0;
  uint64_t bits = 0;  // that it costs
  double slope = 0;   // price saved for each bit
};

// Indices of the choices on the lower convex hull of (bits, price), from the smallest size on; prices fall along it.
std::vector<size_t> hull_of(const std::vector<Choice>& choices) {
  std::vector<size_t> order(choices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return choices[a].bits != choices[b].bits ? choices[a].bits < choices[b].bits : choices[a].price < choices[b].price;
  });
  const auto slope = [&](size_t a, size_t b) {
    return (choices[a].price - choices[b].price) / static_cast<double>(choices[b].bits - choices[a].bits);
  };
  std::vector<size_t> hull;
  for (const size_t c : order) {
    if (!hull.empty() && !(choices[c].price < choices[hull.back()].price)) continue;
    while (!hull.empty() && choices[hull.back()].bits == choices[c].bits) hull.pop_back();
    while (hull.size() >= 2 && slope(hull[hull.size() - 2], hull.back()) <= slope(hull.back(), c)) hull.pop_back();
    hull.push_back(c);
  }
  return hull;
}

size_t smallest_choice(const std::vector<Choice>& choices) {
  const auto less = [](const Choice& a, const Choice& b) {
    return a.bits != b.bits ? a.bits < b.bits : a.price < b.price;
  };
  return static_cast<size_t>(std::min_element(choices.begin(), choices.end(), less) - choices.begin());
}

Plan plan_of(Items items, std::vector<size_t> chosen) {
  Plan plan{std::move(chosen), 0, 0};
  for (size_t i = 0; i < items.size(); ++i) {
    plan.bits += items[i][plan.chosen[i]].bits;
    plan.price += items[i][plan.chosen[i]].price;
  }
  return plan;
}

// All items' steps, the steepest first. Slopes fall along a hull, so the stable sort keeps an item's steps in order.
std::vector<Step> steps_of(Items items) {
  std::vector<Step> steps;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::vector<size_t> hull = hull_of(items[i]);
    for (size_t h = 1; h < hull.size(); ++h) {
      const Choice &from = items[i][hull[h - 1]], &to = items[i][hull[h]];
      steps.push_back(
          {i, hull[h], to.bits - from.bits, (from.price - to.price) / static_cast<double>(to.bits - from.bits)});
    }
  }
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.slope > b.slope; });
  return steps;
}

// Takes the steps in turn as far as they fit; an item whose step does not fit stays where it is.
Plan take_steps(Items items, const std::vector<Step>& steps, uint64_t budget) {
  Plan plan;
  for (const auto& choices : items) plan.chosen.push_back(smallest_choice(choices));
  plan = plan_of(items, std::move(plan.chosen));
  std::vector<bool> stopped(items.size());
  for (const Step& s : steps) {
    if (stopped[s.item]) continue;
    if (plan.bits + s.bits > budget) {
      stopped[s.item] = true;
      continue;
    }
    plan.chosen[s.item] = s.to;
    plan.bits += s.bits;
  }
  return plan_of(items, std::move(plan.chosen));
}

// Single changes that lower the price and fit, the one that gains most first.
void fill_up(Items items, uint64_t budget, Plan& plan) {
  while (true) {
    size_t best_item = items.size(), best_choice = 0;
    double best_gain = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      const Choice& now = items[i][plan.chosen[i]];
      for (size_t c = 0; c < items[i].size(); ++c) {
        const double gain = now.price - items[i][c].price;
        if (gain > best_gain && plan.bits - now.bits + items[i][c].bits <= budget) {
          best_item = i;
          best_choice = c;
          best_gain = gain;
        }
      }
    }
    if (best_item == items.size()) return;
    plan.chosen[best_item] = best_choice;
    plan = plan_of(items, std::move(plan.chosen));
  }
}

}  // namespace

uint64_t smallest_bits(Items items) {
  uint64_t sum = 0;
  for (const auto& choices : items) sum += choices[smallest_choice(choices)].bits;
  return sum;
}

uint64_t largest_bits(Items items) {
  uint64_t sum = 0;
  for (const auto& choices : items) {
    sum += std::max_element(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
             return a.bits < b.bits;
           })->bits;
  }
  return sum;
}

Plan allocate(Items items, uint64_t budget_bits, std::span<const std::vector<size_t>> alternatives) {
  BW_CHECK(std::none_of(items.begin(), items.end(), [](const auto& choices) { return choices.empty(); }));
  BW_CHECK(smallest_bits(items) <= budget_bits);
  const std::vector<Step> steps = steps_of(items);
  // The budgets at which steps taken in turn are used up exactly have optimal plans (Everett). Between two of them only
  // a few fixed budgets are planned for, and the best plan so far is kept: so a larger budget never gets a worse or
  // smaller plan.
  uint64_t whole = smallest_bits(items);
  size_t next = 0;
  while (next < steps.size() && whole + steps[next].bits <= budget_bits) whole += steps[next++].bits;
  Plan best = take_steps(items, steps, whole);
  for (uint64_t part = 1; next < steps.size() && part < kParts; ++part) {
    const uint64_t budget = whole + steps[next].bits * part / kParts;
    if (budget > budget_bits) break;
    Plan plan = take_steps(items, steps, budget);
    fill_up(items, budget, plan);
    if (plan.price < best.price && plan.bits >= best.bits) best = std::move(plan);
  }
  for (const std::vector<size_t>& alternative : alternatives) {
    Plan plan = plan_of(items, alternative);
    if (plan.bits <= budget_bits && plan.price < best.price) best = std::move(plan);
  }
  return best;
}

}  // namespace bw::allocate
