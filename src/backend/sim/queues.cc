#include "backend/sim/queues.h"

#include <utility>

#include "backend/sim/event_log.h"

namespace bw::backend::sim {

Queues::Queues() {
  for (const Queue queue : {Queue::kCompute, Queue::kUpload, Queue::kDownload}) {
    threads_[index_of(queue)] = std::jthread([this, queue](const std::stop_token& stop) { loop(stop, queue); });
  }
}

Queues::~Queues() {
  for (std::jthread& thread : threads_) thread.request_stop();  // all, since they wait for each other
}

void Queues::push(Queue queue, Step step) {
  State& state = states_[index_of(queue)];
  {
    const std::lock_guard lock(mutex_);
    state.steps.push_back(std::move(step));
  }
  state.ready.notify_one();
}

void Queues::enqueue(Queue queue, Work work) { push(queue, std::move(work)); }

void Queues::record(const Event& event) { push(event.queue, Passed{event.ticket}); }

void Queues::wait(Queue queue, const Event& event) { push(queue, WaitFor{event}); }

bool Queues::has_passed(const Event& event) const { return states_[index_of(event.queue)].passed >= event.ticket; }

void Queues::await(const Event& event) {
  std::unique_lock lock(mutex_);
  event_passed_.wait(lock, [&] { return has_passed(event); });
  if (!failure_.error || event.clock[index_of(failure_.queue)] <= failure_.after) return;
  std::rethrow_exception(std::exchange(failure_, {}).error);
}

void Queues::loop(const std::stop_token& stop, Queue queue) {
  State& state = states_[index_of(queue)];
  std::unique_lock lock(mutex_);
  while (state.ready.wait(lock, stop, [&] { return !state.steps.empty(); })) {
    Step step = std::move(state.steps.front());
    state.steps.pop_front();
    if (auto* work = std::get_if<Work>(&step)) {
      run(lock, std::move(*work), queue, stop.stop_requested());
    } else if (const auto* passed = std::get_if<Passed>(&step)) {
      state.passed = passed->ticket;
      event_passed_.notify_all();
    } else {
      event_passed_.wait(lock, [&] { return has_passed(std::get<WaitFor>(step).event); });
    }
  }
}

void Queues::run(std::unique_lock<std::mutex>& lock, Work work, Queue queue, bool skip) {
  skip = skip || failure_.error;
  std::exception_ptr error;
  lock.unlock();
  try {
    if (!skip) work();
  } catch (...) {
    error = std::current_exception();
  }
  work = nullptr;  // before the next event says that its memory is free
  lock.lock();
  if (error && !failure_.error) failure_ = {error, queue, states_[index_of(queue)].passed};
}

}  // namespace bw::backend::sim
