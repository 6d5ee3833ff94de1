// Three threads that work through the queues of a device and wait for each other's events.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <variant>

#include "backend/tensor.h"

namespace bw::backend::sim {

// To be called from one thread. After an error all work is skipped, in every queue, until `await` has thrown it; events
// pass all the same. The destructor skips what is still queued.
class Queues {
 public:
  using Work = std::function<void()>;

  Queues();
  ~Queues();
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;

  // What `work` holds is let go as soon as it has run, or has been skipped.
  void enqueue(Queue queue, Work work);
  // The event stands for what is in its queue so far.
  void record(const Event& event);
  // `event` must have been recorded before.
  void wait(Queue queue, const Event& event);
  // Blocks until the event has passed, then throws the error of work before it, if there is one.
  void await(const Event& event);

 private:
  struct Passed {
    uint64_t ticket;
  };
  struct WaitFor {
    Event event;
  };
  using Step = std::variant<Work, Passed, WaitFor>;
  // Of one queue; all guarded by mutex_.
  struct State {
    std::deque<Step> steps;
    std::condition_variable_any ready;
    uint64_t passed = 0;  // ticket of the last event
  };
  struct Failure {
    std::exception_ptr error;
    Queue queue;
    uint64_t after;  // the last event of `queue` that had passed before
  };

  void push(Queue queue, Step step);
  void loop(const std::stop_token& stop, Queue queue);
  void run(std::unique_lock<std::mutex>& lock, Work work, Queue queue, bool skip);
  bool has_passed(const Event& event) const;

  std::mutex mutex_;
  std::array<State, kQueues> states_;
  std::condition_variable event_passed_;
  Failure failure_{};
  std::array<std::jthread, kQueues> threads_;  // last, so that they end before the rest
};

}  // namespace bw::backend::sim
