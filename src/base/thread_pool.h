// A fixed set of threads for data-parallel loops.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace bw {

// Results must not depend on the number of threads: split work into tasks whose size does not depend on it.
// Thread-compatible: one loop at a time from one thread; loops started from inside a task run inline.
class ThreadPool {
 public:
  static constexpr size_t kMostThreads = 1024;
  // `threads` counts the calling thread; 0 means one per available core. Throws Error(kUsage) naming --threads for more
  // than kMostThreads, and for more than the system gives.
  explicit ThreadPool(size_t threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const;

  // Runs task(i, worker) for i in [0, n), in no order, with worker < threads(); returns when all have ended.
  // The first exception of a task is rethrown here; tasks not yet begun are then skipped.
  void parallel_for(size_t n, const std::function<void(size_t task, size_t worker)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bw
