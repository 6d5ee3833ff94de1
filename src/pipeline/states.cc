#include "pipeline/states.h"

#include <deque>
#include <utility>

namespace bw::pipeline {

States::States(backend::Backend& device, StatesPlace place) : device_(device), place_(std::move(place)) {
  BW_CHECK(!place_.on_device || place_.scratch.empty());
  if (!place_.scratch.empty()) file_ = std::make_unique<io::ScratchFile>(place_.scratch);
}

void States::add(const nn::RowBatch& batch, backend::Tensor h) {
  BW_CHECK(h.rows == batch.tokens());
  tokens_ += batch.tokens();
  bytes_ += h.rows * h.cols * sizeof(float);
  entries_.push_back({batch, {std::move(h), {}}, {}, {}});
  if (!place_.on_device) bring_home(entries_.size() - 1);
}

void States::fetch(size_t i) {
  Entry& entry = entries_[i];
  entry.carry = {fetch(entry.h), fetch(entry.x)};
}

void States::bring_home(size_t i) {
  Entry& entry = entries_[i];
  bring_home(std::move(entry.carry.h), entry.h);
  bring_home(std::move(entry.carry.x), entry.x);
  entry.carry = {};
}

backend::Tensor States::fetch(Home& home) {
  if (home.rows == 0) return {};
  backend::HostTensor values = std::move(home.values);
  if (file_) {
    values = device_.stage(home.rows, home.cols);
    file_->read(home.at, values.raw());
  }
  home.values = {};
  home.rows = home.cols = 0;
  return device_.upload(std::move(values));
}

void States::bring_home(backend::Tensor values, Home& home) {
  if (values.empty()) return;
  home.rows = values.rows;
  home.cols = values.cols;
  home.values = device_.download(std::move(values));
  if (!file_) return;
  device_.wait(home.values, "states");
  const std::span<const std::byte> bytes = std::as_const(home.values).raw();
  if (bytes.size() > home.room_bytes) {  // inputs of sites are not all of one width
    home.at = std::exchange(file_bytes_, file_bytes_ + bytes.size());
    home.room_bytes = bytes.size();
  }
  file_->write(home.at, bytes);
  home.values = {};
}

void States::walk(States* other, const std::function<void(size_t)>& body) {
  const size_t n = entries_.size();
  std::deque<backend::Event> done;
  const auto for_both = [&](size_t i, void (States::*act)(size_t)) {
    if (place_.on_device || i >= n) return;
    (this->*act)(i);
    if (other) (other->*act)(i);
  };
  for_both(0, &States::fetch);
  for (size_t i = 0; i < n; ++i) {
    for_both(i + 1, &States::fetch);
    body(i);
    if (place_.on_device) continue;
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
  BW_CHECK(other.count() == count() && other.place_.on_device == place_.on_device);
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
  if (!place_.on_device) fetch(i);
  entry.carry.x = {};
  return std::move(entry.carry.h);
}

}  // namespace bw::pipeline
