// Splitting row-wise work into tasks.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/thread_pool.h"

namespace bw::backend::cpu {

inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

// Runs body(first_row, count) over `rows` rows in tasks of about 32k elements: long enough to be worth waking a thread
// for.
template <typename Body>
void parallel_rows(ThreadPool& pool, size_t rows, size_t cols, const Body& body) {
  const size_t per_task = std::max<size_t>(1, (size_t{1} << 15) / std::max<size_t>(1, cols));
  pool.parallel_for(ceil_div(rows, per_task), [&](size_t task, size_t) {
    const size_t first = task * per_task;
    body(first, std::min(per_task, rows - first));
  });
}

}  // namespace bw::backend::cpu
