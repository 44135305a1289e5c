// Helps tests of calls that must not wait for a lock which their own thread holds.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

namespace bp {

// Runs `body` on a thread of its own. Ends the program if `body` does not return in time, because
// nobody could join the thread.
template <typename Body>
void in_time(const Body& body) {
  std::promise<void> returned;
  std::thread thread([&] {
    body();
    returned.set_value();
  });
  if (returned.get_future().wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
    std::fputs("a call has not returned after 30 s: it waits for a lock that it holds\n", stderr);
    std::_Exit(1);
  }
  thread.join();
}

}  // namespace bp
