#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sched.h>

#include "bitwright/error.h"

namespace bw {
namespace {

thread_local bool inside_task = false;
thread_local size_t current_worker = 0;

size_t available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::vector<std::thread> workers;
  const std::function<void(size_t, size_t)>* task = nullptr;
  size_t n = 0;
  std::atomic<size_t> next{0};
  size_t running = 0;
  size_t generation = 0;
  bool stop = false;
  std::exception_ptr error;

  // Stops and joins the workers; their number stays known.
  void end() {
    {
      std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    for (std::thread& w : workers) w.join();
  }

  void run_tasks(size_t worker) {
    inside_task = true;
    current_worker = worker;
    while (true) {
      const size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= n) break;
      try {
        (*task)(i, worker);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next.store(n, std::memory_order_relaxed);
      }
    }
    inside_task = false;
  }

  void work(size_t worker) {
    size_t seen = 0;
    while (true) {
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stop || generation != seen; });
        if (stop) return;
        seen = generation;
      }
      run_tasks(worker);
      std::lock_guard lock(mutex);
      if (--running == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(size_t threads) : state_(std::make_unique<State>()) {
  if (threads == 0) threads = std::min(available_cores(), kMostThreads);
  if (threads > kMostThreads) {
    throw Error(ErrorCode::kUsage, fmt::format("--threads {}: at most {} are possible", threads, kMostThreads));
  }
  try {
    for (size_t i = 1; i < threads; ++i) state_->workers.emplace_back([this, i] { state_->work(i); });
  } catch (const std::system_error&) {
    state_->end();
    throw Error(
        ErrorCode::kUsage,
        fmt::format("--threads {}: the system gives no more than {} threads", threads, state_->workers.size() + 1),
        "ask for fewer");
  } catch (...) {  // no memory for one more
    state_->end();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->end(); }

size_t ThreadPool::threads() const { return state_->workers.size() + 1; }

void ThreadPool::parallel_for(size_t n, const std::function<void(size_t, size_t)>& task) {
  if (n == 0) return;
  State& s = *state_;
  if (inside_task || n == 1 || s.workers.empty()) {  // nested: the other threads are busy already
    for (size_t i = 0; i < n; ++i) task(i, current_worker);
    return;
  }
  {
    std::lock_guard lock(s.mutex);
    s.task = &task;
    s.n = n;
    s.next.store(0, std::memory_order_relaxed);
    s.running = s.workers.size();
    s.error = nullptr;
    ++s.generation;
  }
  s.wake.notify_all();
  s.run_tasks(0);
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.running == 0; });
  if (s.error) std::rethrow_exception(s.error);
}

}  // namespace bw
