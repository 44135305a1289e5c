// TCP connections with deadlines.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "backplane/runtime/distributed/store.hpp"

namespace bp::distributed {

using Deadline = std::chrono::steady_clock::time_point;

// Returns the time from which a timeout has passed; one that no clock reaches for a long timeout.
Deadline deadline_after(Duration timeout);

// Returns the milliseconds until `deadline` as poll() takes them.
int milliseconds_until(Deadline deadline);

// A descriptor that closes itself.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// Listens on the loopback address if `host` is one, else on all addresses. Port 0 takes a free one.
// Throws Error: BP_ALREADY_EXISTS if the port is in use.
Socket listen_at(const std::string& host, uint16_t port);
uint16_t port_of(const Socket& listener);

// A free port of `host` that the system gives to nobody who asks for a free one while this lives.
// Another process can listen there if it sets SO_REUSEADDR, as stores do: a bound socket that does
// not listen keeps it from no one who names the port.
class ReservedPort {
 public:
  ReservedPort() = default;  // None.
  explicit ReservedPort(const std::string& host);

  uint16_t number() const { return port_of(socket_); }

 private:
  Socket socket_;
};

// Returns whether this machine has an address of `host`.
bool is_own_host(const std::string& host);

// Connects, and tries again until the deadline. Without `retries` it tries once. Throws Error:
// BP_TIMEOUT with the place and the reason of the last try, or BP_ABORTED without `retries`, with
// the reason alone.
Socket connect_to(const std::string& host, uint16_t port, Deadline deadline, bool retries);

// Returns whether nothing has come over the connection since the last message, not even its end.
bool is_open(const Socket& socket);

// Send and receive whole messages: u32 size, then as many bytes. They throw Error: BP_TIMEOUT at
// the deadline, BP_ABORTED if the other side is gone or sends more than `most_bytes`.
void send_message(const Socket& socket, std::string_view body, Deadline deadline);
std::string receive_message(const Socket& socket, uint32_t most_bytes, Deadline deadline);

}  // namespace bp::distributed
