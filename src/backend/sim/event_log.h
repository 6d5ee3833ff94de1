// What was so when an event was recorded.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "backend/tensor.h"

namespace bw::backend::sim {

inline size_t index_of(Queue queue) { return static_cast<size_t>(queue); }

// Nothing is ever forgotten: the host may wait for any event at any time.
template <typename T>
class EventLog {
 public:
  // Tickets rise in each queue.
  void record(const Event& event, const T& value) { entries_[index_of(event.queue)].push_back({event.ticket, value}); }
  const T& at(const Event& event) const {
    const auto& entries = entries_[index_of(event.queue)];
    const auto found = std::lower_bound(entries.begin(), entries.end(), event.ticket,
                                        [](const Entry& e, uint64_t ticket) { return e.ticket < ticket; });
    BW_CHECK(found != entries.end() && found->ticket == event.ticket);  // waited for, but never recorded?
    return found->value;
  }

 private:
  struct Entry {
    uint64_t ticket;
    T value;
  };
  std::array<std::vector<Entry>, kQueues> entries_;
};

}  // namespace bw::backend::sim
