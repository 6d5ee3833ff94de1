#include "backend/sim/hazard_checker.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "bitwright/error.h"

namespace bw::backend::sim {
namespace {

void merge(Clock& into, const Clock& other) {
  for (size_t q = 0; q < kQueues; ++q) into[q] = std::max(into[q], other[q]);
}

std::string called(size_t queue, std::string_view name) {
  if (queue == index_of(Queue::kUpload)) return "an upload";
  if (queue == index_of(Queue::kDownload)) return "a download";
  return fmt::format("'{}'", name);
}

}  // namespace

void HazardChecker::begin(Queue queue, std::string_view name) {
  queue_ = queue;
  name_ = name;
  Clock& known = known_[index_of(queue)];
  merge(known, host_);  // the host had seen that much before it enqueued this
  ++known[index_of(queue)];
}

void HazardChecker::check(const std::array<History::Use, kQueues>& others, std::string_view verb,
                          std::string_view other_verb) const {
  const Clock& known = known_[index_of(queue_)];
  for (size_t q = 0; q < kQueues; ++q) {
    if (others[q].sequence <= known[q]) continue;
    throw Error(ErrorCode::kInternal,
                fmt::format("{} {} memory that {} still {}; no event orders them", called(index_of(queue_), name_),
                            verb, called(q, others[q].name), other_verb));
  }
}

void HazardChecker::use(History& memory, Access access) {
  const bool writes = access == Access::kWrite;
  const std::string_view verb = writes ? "writes" : "reads";
  check(memory.writes, verb, "writes");
  if (writes) check(memory.reads, verb, "reads");
  (writes ? memory.writes : memory.reads)[index_of(queue_)] = {known_[index_of(queue_)][index_of(queue_)], name_};
}

void HazardChecker::wait(Queue queue, const Event& event) { merge(known_[index_of(queue)], events_.at(event)); }

void HazardChecker::await(const Event& event) { merge(host_, events_.at(event)); }

}  // namespace bw::backend::sim
