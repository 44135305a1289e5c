// Keeps SIGPIPE from a thread. Gloo writes to its sockets without MSG_NOSIGNAL, so the first write
// to a process that is gone would end this one.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace bp::cpu {

// Blocks the signal in the calling thread, and in the threads that it makes meanwhile. The
// destructor restores the mask, and takes a signal that came.
class BlockedPipeSignal {
 public:
  BlockedPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~BlockedPipeSignal() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec at_once{};
    while (sigtimedwait(&pipe_, nullptr, &at_once) == -1 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BlockedPipeSignal(const BlockedPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
};

}  // namespace bp::cpu
