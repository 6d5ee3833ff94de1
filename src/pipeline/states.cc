#include "pipeline/states.h"

#include <deque>

namespace bw::pipeline {

void States::add(const nn::RowBatch& batch, backend::Tensor h) {
  BW_CHECK(h.rows == batch.tokens());
  tokens_ += batch.tokens();
  entries_.push_back({batch, {std::move(h), {}}, {}, {}});
  if (!on_device_) bring_home(entries_.back());
}

void States::fetch(Entry& entry) {
  if (entry.h.memory) entry.carry.h = device_.upload(std::move(entry.h));
  if (entry.x.memory) entry.carry.x = device_.upload(std::move(entry.x));
  entry.h = entry.x = {};
}

void States::bring_home(Entry& entry) {
  entry.h = device_.download(std::move(entry.carry.h));
  if (!entry.carry.x.empty()) entry.x = device_.download(std::move(entry.carry.x));
  entry.carry = {};
}

void States::for_each(const std::function<void(const nn::RowBatch& batch, nn::Carry& carry)>& body) {
  std::deque<backend::Event> done;
  if (!on_device_ && !entries_.empty()) fetch(entries_[0]);
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (!on_device_ && i + 1 < entries_.size()) fetch(entries_[i + 1]);
    body(entry.batch, entry.carry);
    if (on_device_) continue;
    bring_home(entry);
    done.push_back(device_.mark());
    if (done.size() < 3) continue;
    device_.wait(done.front(), "states");
    done.pop_front();
  }
}

backend::Tensor States::take(size_t i) {
  Entry& entry = entries_[i];
  if (!on_device_) fetch(entry);
  entry.carry.x = {};
  return std::move(entry.carry.h);
}

}  // namespace bw::pipeline
