// Lets other threads end the work of Gloo. Gloo's collectives block, and each of their waits has a
// timeout of its own, after which all connections of the rank are closed. So a call gets a context
// of its own over the connections of its rank. Its buffers wait without a timeout, until the work
// is done or end() is called.
//
// Gloo ends the process if a message is longer than what its receiver asked for. So a buffer puts
// the size of each message into its slot, and messages of other sizes do not arrive at all.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "backplane/shell/queue.hpp"

namespace bp::cpu {

// Long enough never to pass, and short enough to be added to a time.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365 * 10);

// The waits of one call. Any thread may call the functions.
class Waits {
 public:
  Waits() = default;
  Waits(const Waits&) = delete;

  // Lets all waits, now and later, throw StatusError with `why`. The first reason counts.
  void end(const Outcome& why);

  // Throws StatusError if the waits have ended.
  void check() const;

  // Returns the ranks whose data the call waits for, such as " rank 1 rank 3"; "" if there are
  // none.
  std::string awaited() const;

 private:
  friend class EndableBuffer;

  void add(gloo::transport::UnboundBuffer* buffer);
  void remove(gloo::transport::UnboundBuffer* buffer);
  void expect(int rank, int messages);

  // Throws StatusError, because a connection is closed. Gives the reason of end() if it comes soon,
  // since the thread that watches the connections knows more.
  [[noreturn]] void fail(const std::string& reason);

  mutable std::mutex mutex_;  // It guards the members below.
  std::condition_variable changed_;
  Outcome why_;
  std::set<gloo::transport::UnboundBuffer*> buffers_;
  std::map<int, int> expected_;  // The messages that were asked for and have not come, by rank.
};

// Returns a context over the connections of `mesh` whose work `waits` can end. Both must live as
// long as the context. Each wait of its buffers first calls before_wait(), which may throw.
std::shared_ptr<gloo::Context> endable_context(const std::shared_ptr<gloo::Context>& mesh,
                                               Waits& waits,
                                               std::function<void()> before_wait = nullptr);

}  // namespace bp::cpu
