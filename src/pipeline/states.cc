#include "pipeline/states.h"

#include <deque>

namespace bw::pipeline {

void States::add(const nn::RowBatch& batch, backend::Tensor h) {
  BW_CHECK(h.rows == batch.tokens());
  tokens_ += batch.tokens();
  entries_.push_back({batch, {std::move(h), {}}, {}, {}});
  if (!on_device_) bring_home(entries_.size() - 1);
}

void States::fetch(size_t i) {
  Entry& entry = entries_[i];
  if (entry.h.memory) entry.carry.h = device_.upload(std::move(entry.h));
  if (entry.x.memory) entry.carry.x = device_.upload(std::move(entry.x));
  entry.h = entry.x = {};
}

void States::bring_home(size_t i) {
  Entry& entry = entries_[i];
  entry.h = device_.download(std::move(entry.carry.h));
  if (!entry.carry.x.empty()) entry.x = device_.download(std::move(entry.carry.x));
  entry.carry = {};
}

void States::walk(States* other, const std::function<void(size_t)>& body) {
  const size_t n = entries_.size();
  std::deque<backend::Event> done;
  const auto for_both = [&](size_t i, void (States::*act)(size_t)) {
    if (on_device_ || i >= n) return;
    (this->*act)(i);
    if (other) (other->*act)(i);
  };
  for_both(0, &States::fetch);
  for (size_t i = 0; i < n; ++i) {
    for_both(i + 1, &States::fetch);
    body(i);
    if (on_device_) continue;
    for_both(i, &States::bring_home);
    done.push_back(device_.mark());
    if (done.size() < 3) continue;
    device_.wait(done.front(), "states");
    done.pop_front();
  }
}

void States::for_each(const std::function<void(const nn::RowBatch& batch, nn::Carry& carry)>& body) {
  walk(nullptr, [&](size_t i) { body(entries_[i].batch, entries_[i].carry); });
}

void States::for_each_with(
    States& other, const std::function<void(const nn::RowBatch& batch, nn::Carry& carry, nn::Carry& others)>& body) {
  BW_CHECK(other.count() == count() && other.on_device_ == on_device_);
  walk(&other, [&](size_t i) { body(entries_[i].batch, entries_[i].carry, other.entries_[i].carry); });
}

void States::save(io::PieceWriter& piece) {
  for_each([&](const nn::RowBatch&, nn::Carry& carry) {
    const backend::HostTensor h = device_.download(carry.h);
    device_.wait(h, "states");
    piece.write(h.raw());
  });
}

void States::restore(io::PieceReader& piece) {
  for_each([&](const nn::RowBatch&, nn::Carry& carry) {
    backend::HostTensor h = device_.stage(carry.h.rows, carry.h.cols);
    piece.read_values(h.raw());
    carry = {device_.upload(std::move(h)), {}};
  });
}

backend::Tensor States::take(size_t i) {
  Entry& entry = entries_[i];
  if (!on_device_) fetch(i);
  entry.carry.x = {};
  return std::move(entry.carry.h);
}

}  // namespace bw::pipeline
