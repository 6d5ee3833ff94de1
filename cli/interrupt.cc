#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "commands.h"

namespace bw::cli {
namespace {

std::atomic<bool> caught = false;

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
  int signal = 0;
  sigwait(&signals, &signal);
  caught = true;
  sigwait(&signals, &signal);
  die_of(signal);
}

}  // namespace

// No handler may run on a thread that computes: code that oneDNN 2.6 makes for sgemm keeps data below its stack
// pointer, where a handler's frame comes to lie (the heap is damaged after a few of them). So the signals are blocked
// on all threads, which inherit that from this one, and a thread of their own waits for them.
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

bool interrupted() { return caught; }

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace bw::cli
