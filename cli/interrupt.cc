#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <unistd.h>

#include "commands.h"

namespace bw::cli {
namespace {

std::atomic<int> caught = 0;  // the signal

// Ends the program as if the signal had never been caught.
[[noreturn]] void die_of(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::raise(signal);
  std::abort();
}

void wait_for(sigset_t signals) {
  while (true) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (caught.exchange(signal) != 0) die_of(signal);
  }
}

constexpr char kLostPages[] =
    "error: a file that was being read has shrunk or cannot be read any more (a model that is still downloaded or was "
    "replaced, or a failing disk); make it whole and run the command again\n";

// The kernel's word for a page of a mapped file that is not there. What the thread was doing cannot go on.
void end_of_lost_page(int) {
  static std::atomic_flag said;
  while (said.test_and_set()) pause();  // another thread has met one, too
  if (isatty(STDERR_FILENO)) static_cast<void>(!write(STDERR_FILENO, "\r\x1b[K", 4));  // over the line of progress
  static_cast<void>(!write(STDERR_FILENO, kLostPages, sizeof(kLostPages) - 1));
  _exit(static_cast<int>(ErrorCode::kIo));
}

}  // namespace

void end_on_lost_pages() { std::signal(SIGBUS, end_of_lost_page); }

// No handler that returns may run on a thread that computes: code that oneDNN 2.6 makes for sgemm keeps data below its
// stack pointer, where a handler's frame comes to lie (the heap is damaged after a few of them). So the signals are
// blocked on all threads, which inherit that from this one, and a thread of their own waits for them.
void catch_interruptions() {
  sigset_t signals;
  sigemptyset(&signals);
  bool any = false;
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_IGN) continue;  // as a shell starts programs in the background
    sigaddset(&signals, signal);
    any = true;
  }
  if (!any) return;
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(wait_for, signals).detach();
}

bool interrupted() { return caught != 0; }

bool forget_interruption() {
  int expected = SIGINT;
  return caught.compare_exchange_strong(expected, 0);
}

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace bw::cli
