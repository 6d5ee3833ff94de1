// Its longjmp refuses to change stacks.
#undef _FORTIFY_SOURCE

#include "backend/fake_cuda/fibers.h"

#include <ucontext.h>

#include <cstdint>
#include <stdexcept>
#include <utility>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace fake_cuda {
namespace {

constexpr size_t kStackBytes = 128 << 10;

#ifdef __SANITIZE_ADDRESS__
void start_switch(void** saved, const void* bottom, size_t size) {
  __sanitizer_start_switch_fiber(saved, bottom, size);
}
void finish_switch(void* saved, const void** bottom, size_t* size) {
  __sanitizer_finish_switch_fiber(saved, bottom, size);
}
#else
void start_switch(void**, const void*, size_t) {}
void finish_switch(void*, const void**, size_t*) {}
#endif

}  // namespace

struct Fibers::Fiber {
  Fibers* owner;
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  ucontext_t begin{};  // used once: changing contexts costs a system call, unlike a jump
  jmp_buf place{};     // where it has left
  bool begun = false;
  size_t thread = 0;
  void* fake_stack = nullptr;
};

// makecontext passes ints: a pointer goes in two.
void Fibers::enter(unsigned high, unsigned low) {
  auto* fiber = reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low);
  Fibers& owner = *fiber->owner;
  finish_switch(nullptr, &owner.home_bottom_, &owner.home_size_);
  owner.loop(*fiber);
}

// Runs threads until one waits (inside its body) or none are left, again and again.
void Fibers::loop(Fiber& fiber) {
  while (true) {
    while (next_ < count_) {
      fiber.thread = next_++;
      (*body_)(fiber.thread);
      ++ended_;
    }
    idle_.push_back(&fiber);
    leave(fiber);
  }
}

void Fibers::resume(Fiber& fiber) {
  current_ = &fiber;
  start_switch(&home_fake_stack_, fiber.stack.get(), kStackBytes);
  if (_setjmp(home_) == 0) {
    if (std::exchange(fiber.begun, true)) _longjmp(fiber.place, 1);
    setcontext(&fiber.begin);
  }
  finish_switch(home_fake_stack_, nullptr, nullptr);
  current_ = nullptr;
}

void Fibers::leave(Fiber& fiber) {
  start_switch(&fiber.fake_stack, home_bottom_, home_size_);
  if (_setjmp(fiber.place) == 0) _longjmp(home_, 1);
  finish_switch(fiber.fake_stack, &home_bottom_, &home_size_);
}

Fibers::Fibers() = default;
Fibers::~Fibers() = default;

Fibers::Fiber& Fibers::idle() {
  if (idle_.empty()) return fresh();
  Fiber& fiber = *idle_.back();
  idle_.pop_back();
  return fiber;
}

Fibers::Fiber& Fibers::fresh() {
  all_.push_back(std::make_unique<Fiber>());
  Fiber& fiber = *all_.back();
  fiber.owner = this;
  getcontext(&fiber.begin);
  fiber.begin.uc_stack.ss_sp = fiber.stack.get();
  fiber.begin.uc_stack.ss_size = kStackBytes;
  fiber.begin.uc_link = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(&fiber);
  makecontext(&fiber.begin, reinterpret_cast<void (*)()>(&Fibers::enter), 2, static_cast<unsigned>(address >> 32),
              static_cast<unsigned>(address));
  return fiber;
}

void Fibers::barrier() {
  Fiber& fiber = *current_;
  waiting_.push_back(&fiber);
  leave(fiber);
}

void Fibers::run(size_t count, const std::function<void(size_t)>& body) {
  body_ = &body;
  count_ = count;
  next_ = ended_ = 0;
  while (true) {
    while (next_ < count_) resume(idle());
    if (waiting_.empty()) return;
    if (ended_ != 0) throw std::logic_error("some threads of a block ended while others wait at a barrier");
    const std::vector<Fiber*> ready = std::exchange(waiting_, {});
    for (Fiber* fiber : ready) {
      resumed_(fiber->thread);
      resume(*fiber);
    }
  }
}

}  // namespace fake_cuda
