#include <csignal>

#include "commands.h"

namespace bw::cli {
namespace {

volatile std::sig_atomic_t caught = 0;

void note(int) { caught = 1; }

}  // namespace

void catch_interruptions() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction old {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_IGN) continue;  // as a shell starts programs in the background
    struct sigaction action {};
    action.sa_handler = note;
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    sigaction(signal, &action, nullptr);
  }
}

bool interrupted() { return caught != 0; }

}  // namespace bw::cli
