// A relay between the ranks of a test. It stands for a network that delays, throttles, stalls or
// cuts connections. It never changes, drops or reorders bytes within a connection, because TCP does
// not.
//
//   const Relay relay({.delay = std::chrono::milliseconds(5)});
//   run_processes(2, [&](uint32_t rank) {
//     relay.join(rank);   // From now on, connections to what other ranks listen at go through it.
//     ...
//   });
//
// The relay is a process. The test program has its own connect() and listen(), which all libraries
// in the process use: listen() tells the relay which port is whose, and connect() asks the relay
// for a way there. So the relay knows nothing of what the ranks say to each other.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/distributed/socket.hpp"

namespace bp::distributed {

enum class Cut {
  kNone,
  kStall,  // Nothing is forwarded any more, and both ends stay open.
  kEnd,    // Both ends are closed in peace, as by a process that ends.
  kReset,  // Both ends are reset.
};

struct Network {
  Duration delay{}, jitter{};     // Each piece comes later by `delay`, and up to `jitter` more.
  uint64_t bytes_per_second = 0;  // In each direction of a connection. 0: no limit.
  size_t piece_bytes = 65536;     // The most that is forwarded at once.
  Cut cut = Cut::kNone;
  uint64_t cut_after_bytes = 0;  // In both directions of a connection together.
  std::optional<std::pair<uint32_t, uint32_t>> cut_between =
      std::nullopt;  // None: between all ranks.
};

class Relay {
 public:
  // Starts the process. The calling process has no other threads. Throws Error.
  explicit Relay(const Network& network);
  ~Relay();  // Kills the process.
  Relay(const Relay&) = delete;

  // Lets the connections of the calling process, which is rank `rank`, go through the relay.
  void join(uint32_t rank) const;

  uint64_t connections() const { return counts_->connections; }
  uint64_t cuts() const { return counts_->cuts; }
  uint64_t pieces() const { return counts_->pieces; }

 private:
  friend class RelayProcess;
  struct Counts {  // In memory that both processes share.
    std::atomic<uint64_t> connections, cuts, pieces;
  };

  uint16_t port_ = 0;
  pid_t process_ = 0;
  Counts* counts_ = nullptr;
};

}  // namespace bp::distributed
