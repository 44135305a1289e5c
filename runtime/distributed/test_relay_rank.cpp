// The connect() and listen() of a test program with a relay.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/distributed/test_relay.hpp"
#include "runtime/distributed/test_relay_wire.hpp"

namespace bp::distributed {
namespace {

// Set before the process has other threads.
uint16_t relay_port = 0;  // In host order. 0: there is no relay.
uint32_t own_rank = 0;

bool is_internet(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

// The port is at the same place for both families.
uint16_t& port_in(sockaddr_storage& address) {
  return reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// Returns the answer of the relay. If the relay is gone, it knows no rank.
RelayAnswer ask(const RelayRequest& request) {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in relay{};
  relay.sin_family = AF_INET;
  relay.sin_port = htons(relay_port);
  relay.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  RelayAnswer answer{};
  if (connect_past_relay(socket.get(), reinterpret_cast<sockaddr*>(&relay), sizeof(relay)) != 0 ||
      send(socket.get(), &request, sizeof(request), MSG_NOSIGNAL) != sizeof(request) ||
      recv(socket.get(), &answer, sizeof(answer), MSG_WAITALL) != sizeof(answer)) {
    return {};
  }
  return answer;
}

RelayRequest request_for(const sockaddr* address, socklen_t address_bytes) {
  RelayRequest request{};
  request.rank = own_rank;
  request.address_bytes = address_bytes;
  std::memcpy(&request.address, address, std::min<size_t>(address_bytes, sizeof(request.address)));
  request.port = ntohs(port_in(request.address));
  return request;
}

// Returns the address of a way through the relay, in the family of the socket.
sockaddr_storage way_at(uint16_t port, sa_family_t family) {
  sockaddr_storage way{};
  way.ss_family = family;
  if (family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(way).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &reinterpret_cast<sockaddr_in6&>(way).sin6_addr);
  }
  port_in(way) = htons(port);
  return way;
}

}  // namespace

int connect_past_relay(int descriptor, const sockaddr* address, socklen_t address_bytes) {
  return static_cast<int>(syscall(SYS_connect, descriptor, address, address_bytes));
}

void make_nonblocking(int descriptor) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

void Relay::join(uint32_t rank) const {
  own_rank = rank;
  relay_port = port_;
}

}  // namespace bp::distributed

extern "C" int connect(int descriptor, const sockaddr* address, socklen_t address_bytes) {
  namespace bd = bp::distributed;
  if (bd::relay_port == 0 || !bd::is_internet(address)) {
    return bd::connect_past_relay(descriptor, address, address_bytes);
  }
  const bd::RelayAnswer answer = bd::ask(bd::request_for(address, address_bytes));
  if (answer.is_refused != 0) {
    errno = ECONNREFUSED;
    return -1;
  }
  if (answer.port == 0) return bd::connect_past_relay(descriptor, address, address_bytes);
  const sockaddr_storage way = bd::way_at(answer.port, address->sa_family);
  return bd::connect_past_relay(descriptor, reinterpret_cast<const sockaddr*>(&way), address_bytes);
}

extern "C" int listen(int descriptor, int backlog) noexcept {
  namespace bd = bp::distributed;
  sockaddr_storage storage{};
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = sizeof(storage);
  if (bd::relay_port != 0 && getsockname(descriptor, address, &size) == 0 &&
      bd::is_internet(address)) {
    bd::RelayRequest request = bd::request_for(address, size);
    request.is_listener = 1;
    bd::ask(request);
  }
  return static_cast<int>(syscall(SYS_listen, descriptor, backlog));
}
