// Fingerprints of data (XXH3, 128 bits). Not for security: they tell damaged or changed files from intact ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace bw {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void update(std::span<const std::byte> data);
  template <typename T>
  void update_values(std::span<const T> values) {
    update(std::as_bytes(values));
  }
  // 32 hexadecimal digits over all data so far.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bw
