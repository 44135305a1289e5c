#include "runtime/distributed/socket.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <thread>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/store_values.hpp"

namespace bp::distributed {
namespace {

constexpr auto kRetryPause = std::chrono::milliseconds(50);
constexpr auto kFarAway = std::chrono::hours(24 * 365);
constexpr int kFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

std::string errno_text(int error) { return std::generic_category().message(error); }

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Returns the addresses of a host, or those to listen on if `host` is NULL. On failure returns none
// and sets `problem`.
Addresses resolve(const char* host, uint16_t port, std::string& problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (status != 0) problem = std::string("the name is not known: ") + gai_strerror(status);
  return {status == 0 ? found : nullptr, freeaddrinfo};
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Waits until `events` are there. Returns false at the deadline.
bool wait_for(const Socket& socket, short events, Deadline deadline) {
  pollfd entry{socket.get(), events, 0};
  while (true) {
    const int ready = poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno == EINTR) continue;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

void send_at_once(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Returns a connection, or none with `problem`.
Socket try_address(const addrinfo& address, Deadline deadline, std::string& problem) {
  Socket socket(::socket(address.ai_family, kFlags, 0));
  if (!socket) {
    problem = errno_text(errno);
    return {};
  }
  int error = 0;
  if (connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    if (!wait_for(socket, POLLOUT, deadline)) {
      problem = "no answer";
      return {};
    }
    socklen_t size = sizeof(error);
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) {
    problem = errno_text(error);
    return {};
  }
  send_at_once(socket);
  return socket;
}

// Returns a socket that has the address, or none with the error number.
Socket try_bind(const addrinfo& address, int& error) {
  Socket socket(::socket(address.ai_family, kFlags, 0));
  const int on = 1, off = 0;
  if (socket) {
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address.ai_family == AF_INET6) {
      setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  }
  error = errno;
  return {};
}

[[noreturn]] void fail_gone() {
  throw Error(BP_ABORTED, "the other side of the connection is gone");
}

[[noreturn]] void fail_to_connect(const std::string& place, const std::string& problem,
                                  bool has_retried, Duration passed) {
  if (!has_retried) throw Error(BP_ABORTED, problem);
  throw Error(BP_TIMEOUT, "TcpStore: nobody listens at " + place + ", tried for " +
                              duration_text(passed) + ": " + problem);
}

void receive(const Socket& socket, char* bytes, size_t count, Deadline deadline) {
  while (count != 0) {
    const ssize_t got = recv(socket.get(), bytes, count, 0);
    if (got > 0) {
      bytes += got;
      count -= static_cast<size_t>(got);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      fail_gone();
    } else if (!wait_for(socket, POLLIN, deadline)) {
      throw Error(BP_TIMEOUT, "no answer came in time");
    }
  }
}

// Returns a socket that has the port of `host`. An IPv6 socket for all addresses takes IPv4 as
// well, so it is tried first.
Socket bind_at(const std::string& host, uint16_t port, bool listens) {
  std::string problem;
  const char* const own = is_loopback(host) ? host.c_str() : nullptr;
  const Addresses addresses = resolve(own, port, problem);
  int error = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      if (a->ai_family != family) continue;
      Socket socket = try_bind(*a, error);
      if (socket && listens && listen(socket.get(), SOMAXCONN) != 0) {
        error = errno;
        socket = {};
      }
      if (socket) return socket;
      if (error == EADDRINUSE) {
        throw Error(BP_ALREADY_EXISTS, "TcpStore: port " + std::to_string(port) +
                                           " is in use by another program; name another port");
      }
    }
  }
  throw Error(BP_ABORTED, "TcpStore: cannot listen at port " + std::to_string(port) + ": " +
                              (problem.empty() ? errno_text(error) : problem));
}

}  // namespace

Deadline deadline_after(Duration timeout) {
  return std::chrono::steady_clock::now() + std::min<Duration>(timeout, kFarAway);
}

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, int64_t{1000} * 3600));
}

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool is_open(const Socket& socket) {
  char byte = 0;
  return recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

Socket listen_at(const std::string& host, uint16_t port) { return bind_at(host, port, true); }

ReservedPort::ReservedPort(const std::string& host) : socket_(bind_at(host, 0, false)) {}

// Nobody can bind a socket to an address of another machine.
bool is_own_host(const std::string& host) {
  std::string problem;
  const Addresses addresses = resolve(host.c_str(), 0, problem);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const Socket socket(::socket(a->ai_family, kFlags, 0));
    if (socket && bind(socket.get(), a->ai_addr, a->ai_addrlen) == 0) return true;
  }
  return false;
}

uint16_t port_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
  return ntohs(address.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
}

Socket connect_to(const std::string& host, uint16_t port, Deadline deadline, bool retries) {
  const auto begin = std::chrono::steady_clock::now();
  std::string problem;
  while (true) {
    const Addresses addresses = resolve(host.c_str(), port, problem);
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      Socket socket = try_address(*a, deadline, problem);
      if (socket) return socket;
    }
    const auto now = std::chrono::steady_clock::now();
    if (!retries || now >= deadline) {
      fail_to_connect(host + ":" + std::to_string(port), problem, retries, now - begin);
    }
    std::this_thread::sleep_for(std::min<Duration>(kRetryPause, deadline - now));
  }
}

void send_message(const Socket& socket, std::string_view body, Deadline deadline) {
  std::string bytes;
  append_u32(bytes, static_cast<uint32_t>(body.size()));
  bytes += body;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t sent = send(socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      rest.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      fail_gone();
    } else if (!wait_for(socket, POLLOUT, deadline)) {
      throw Error(BP_TIMEOUT, "the other side of the connection does not read");
    }
  }
}

std::string receive_message(const Socket& socket, uint32_t most_bytes, Deadline deadline) {
  std::string head(sizeof(uint32_t), '\0');
  receive(socket, head.data(), head.size(), deadline);
  const uint32_t size = read_u32(head);
  if (size > most_bytes) throw Error(BP_ABORTED, "the other side of the connection is no store");
  std::string body(size, '\0');
  receive(socket, body.data(), body.size(), deadline);
  return body;
}

}  // namespace bp::distributed
