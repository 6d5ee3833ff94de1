// Runs the threads of one block so that they can wait for each other.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace fake_cuda {

// Runs `count` threads on as many stacks as there are threads that wait. Threads that never wait share one.
class Fibers {
 public:
  Fibers();
  ~Fibers();
  // body(i) for i < count; returns when all have ended. Throws std::logic_error if some end while others wait, as
  // CUDA's barrier does not allow.
  void run(size_t count, const std::function<void(size_t)>& body);
  // From within a body: returns when all have called it. `resumed`(i) is called before thread i goes on.
  void barrier();
  void on_resume(std::function<void(size_t)> resumed) { resumed_ = std::move(resumed); }

 private:
  struct Fiber;
  static void enter(unsigned high, unsigned low);
  void loop(Fiber& fiber);
  void resume(Fiber& fiber);
  void leave(Fiber& fiber);
  Fiber& idle();
  Fiber& fresh();

  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> idle_, waiting_;
  Fiber* current_ = nullptr;
  jmp_buf home_{};
  const std::function<void(size_t)>* body_ = nullptr;
  std::function<void(size_t)> resumed_;
  size_t count_ = 0, next_ = 0, ended_ = 0;
  // For the address sanitizer, which must know of every change of stack.
  void* home_fake_stack_ = nullptr;
  const void* home_bottom_ = nullptr;
  size_t home_size_ = 0;
};

}  // namespace fake_cuda
