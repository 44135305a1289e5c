// Keeps the program's signal handlers. The compiler inside cuDNN puts handlers of its own for
// SIGINT, SIGTERM and SIGXFSZ in their place and leaves them there (seen with cuDNN 9.19): the
// program's Ctrl-C would end in them.
#pragma once

#include <signal.h>

#include <array>
#include <mutex>

namespace bp::cuda {

// Handlers that are replaced while the object lives come back at its end. Threads wait for each
// other, so that none takes the compiler's handlers for the program's. A program that changes one
// of these handlers in the meantime gets its old one.
class KeptSignalHandlers {
 public:
  KeptSignalHandlers() : lock_(mutex()) {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~KeptSignalHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  KeptSignalHandlers(const KeptSignalHandlers&) = delete;

 private:
  static constexpr std::array kSignals = {SIGHUP, SIGINT, SIGTERM, SIGUSR2, SIGXCPU, SIGXFSZ};

  static std::mutex& mutex() {
    static std::mutex only;
    return only;
  }

  const std::lock_guard<std::mutex> lock_;
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace bp::cuda
