// What the ranks of a test ask the relay for, and how both make connections without it.
#pragma once

#include <sys/socket.h>

#include <cstdint>

namespace bp::distributed {

// Either asks for a way to who listens at `port`, or tells that the asking rank is about to listen
// there.
struct RelayRequest {
  uint32_t rank;
  uint32_t is_listener;
  uint32_t address_bytes;
  uint16_t port;
  uint16_t reserved;
  sockaddr_storage address;
};

struct RelayAnswer {
  uint16_t port;        // The way. 0: no rank of the test listens there.
  uint16_t is_refused;  // The rank does not listen yet, or not any more.
};

// The connect() of the system.
int connect_past_relay(int descriptor, const sockaddr* address, socklen_t address_bytes);

void make_nonblocking(int descriptor);

}  // namespace bp::distributed
