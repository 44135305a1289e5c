// Nothing here trusts a connection: a stranger who sends garbage, or nothing, loses the connection,
// and nobody else notices.
#include "runtime/distributed/store_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace bp::distributed {
namespace {

constexpr uint64_t kMostTotalBytes = uint64_t{256} << 20;
constexpr size_t kMostConnections = 16384;
constexpr auto kHelloTimeout = std::chrono::seconds(10);
constexpr auto kLateRanks = std::chrono::seconds(3);
constexpr Deadline kNever = Deadline::max();

void reply(std::string& out, Answer answer, std::string_view text = {}, bp_status status = BP_OK) {
  std::string body(1, static_cast<char>(answer));
  if (answer == Answer::kFailed) append_u32(body, static_cast<uint32_t>(status));
  if (answer != Answer::kNone) append_string(body, text);
  append_string(out, body);
}

std::string list_of(const std::set<std::string>& keys) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "'" : ", '") + key + "'";
  return text;
}

std::string milliseconds_text(uint64_t milliseconds) {
  return duration_text(std::chrono::milliseconds(milliseconds));
}

Deadline deadline_of(uint64_t milliseconds) {
  constexpr uint64_t kMost = uint64_t{1000} * 3600 * 24 * 365;
  return deadline_after(std::chrono::milliseconds(std::min(milliseconds, kMost)));
}

}  // namespace

StoreServer::StoreServer(const std::string& host, uint16_t port, uint32_t world_size)
    : world_size_(world_size), listener_(listen_at(host, port)), port_(port_of(listener_)) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error(BP_ABORTED, "TcpStore: no pipe for the thread of the server");
  }
  wake_[0] = Socket(ends[0]);
  wake_[1] = Socket(ends[1]);
  thread_ = std::thread([this] { run(); });
}

StoreServer::~StoreServer() {
  wake_[1] = Socket();
  thread_.join();
}

void StoreServer::run() {
  while (poll_once()) {
  }
  // Ranks that come late still learn that the world sizes differ.
  const Deadline end = deadline_after(kLateRanks);
  wake_[0] = Socket();
  const auto is_over = [&] {
    if (other_world_size_ == 0 || std::chrono::steady_clock::now() >= end) return true;
    const auto is_told = [](const Connection& connection) { return connection.out.empty(); };
    return told_count_ >= std::max(world_size_, other_world_size_) &&
           std::ranges::all_of(connections_, is_told);
  };
  while (!is_over()) poll_once();
}

Deadline StoreServer::next_deadline() const {
  Deadline next = wake_[0] ? kNever : deadline_after(std::chrono::milliseconds(100));
  for (const Connection& connection : connections_) {
    if (connection.wait) next = std::min(next, connection.wait->deadline);
    if (!connection.has_said_hello) next = std::min(next, connection.hello_deadline);
  }
  return next;
}

bool StoreServer::poll_once() {
  std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}, {wake_[0].get(), POLLIN, 0}};
  for (const Connection& connection : connections_) {
    const bool writes = !connection.out.empty();
    entries.push_back({connection.socket.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
  }
  const Deadline next = next_deadline();
  const int timeout = next == kNever ? -1 : milliseconds_until(next);
  if (poll(entries.data(), entries.size(), timeout) < 0 && errno != EINTR) return false;
  const Deadline now = std::chrono::steady_clock::now();
  size_t i = 2;
  for (Connection& connection : connections_) {
    const short events = entries[i++].revents;
    if ((events & POLLOUT) != 0) {
      write_to(connection);
    } else if (events != 0) {
      read_from(connection);
    }
    expire(connection, now);
  }
  connections_.remove_if([](const Connection& c) { return c.is_closing && c.out.empty(); });
  if (entries[0].revents != 0) accept_all();
  return entries[1].revents == 0;
}

void StoreServer::accept_all() {
  while (true) {
    Socket socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (connections_.size() >= kMostConnections) continue;
    connections_.emplace_back(std::move(socket)).hello_deadline = deadline_after(kHelloTimeout);
  }
}

void StoreServer::read_from(Connection& connection) {
  char bytes[65536];
  const ssize_t got = recv(connection.socket.get(), bytes, sizeof(bytes), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    if (connection.wait && connection.wait->is_join) --joined_count_;
    connection.wait.reset();
    connection.is_closing = true;
    connection.out.clear();
    return;
  }
  connection.in.append(bytes, static_cast<size_t>(got));
  handle_messages(connection);
}

void StoreServer::write_to(Connection& connection) {
  const ssize_t sent =
      send(connection.socket.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
  if (sent > 0) {
    connection.out.erase(0, static_cast<size_t>(sent));
  } else if (errno != EAGAIN && errno != EINTR) {
    connection.out.clear();
    connection.is_closing = true;
  }
}

// A client that sends a request before it has the reply to the last one breaks the rules.
void StoreServer::handle_messages(Connection& connection) {
  const uint32_t most = connection.has_said_hello ? kMostBytes : kMostHelloBytes;
  const size_t have = connection.in.size();
  if (have < sizeof(uint32_t)) return;
  const uint32_t size = read_u32(connection.in);
  const bool is_wrong = size > most || connection.wait || have > sizeof(uint32_t) + size;
  if (!is_wrong && have < sizeof(uint32_t) + size) return;
  const std::string message = connection.in.substr(sizeof(uint32_t));
  connection.in.clear();
  try {
    if (is_wrong) throw Error(BP_INVALID_ARGUMENT, "not a request");
    handle(connection, WireReader(message));
  } catch (const std::exception&) {
    connection.is_closing = true;
    connection.out.clear();
  }
}

void StoreServer::handle(Connection& connection, WireReader request) {
  const auto kind = static_cast<Request>(request.u8());
  if (kind == Request::kHello) return say_hello(connection, request);
  if (!connection.has_said_hello) throw Error(BP_INVALID_ARGUMENT, "no hello");
  if (kind == Request::kWait) return wait_for_keys(connection, request);
  const std::string key = request.string();
  check_key(key);
  const auto found = values_.find(key);
  try {
    if (kind == Request::kTryGet) {
      if (found == values_.end()) return reply(connection.out, Answer::kNone);
      return reply(connection.out, Answer::kOk, found->second);
    }
    std::string value;
    if (kind == Request::kAdd) {
      const auto amount = static_cast<int64_t>(request.u64());
      value =
          std::to_string(add_to_value(key, found == values_.end() ? "0" : found->second, amount));
      reply(connection.out, Answer::kOk, value);
    } else if (kind == Request::kPut) {
      value = request.string();
      check_value(key, value);
      check_room(key, value.size());
      reply(connection.out, Answer::kOk);
    } else {
      connection.is_closing = true;
      return;
    }
    store(key, std::move(value));
  } catch (const Error& error) {
    reply(connection.out, Answer::kFailed, error.what(), error.code());
  }
}

void StoreServer::check_room(const std::string& key, uint64_t value_bytes) const {
  if (total_bytes_ + key.size() + value_bytes <= kMostTotalBytes) return;
  throw Error(BP_OUT_OF_MEMORY, "TcpStore: '" + key + "' does not fit: the store holds " +
                                    std::to_string(total_bytes_) +
                                    " bytes; allowed: " + std::to_string(kMostTotalBytes));
}

void StoreServer::store(const std::string& key, std::string value) {
  const auto [entry, is_new] = values_.try_emplace(key);
  total_bytes_ += value.size() + (is_new ? key.size() : 0) - entry->second.size();
  entry->second = std::move(value);
  if (!is_new) return;
  for (Connection& connection : connections_) {
    if (!connection.wait || connection.wait->is_join) continue;
    if (connection.wait->missing.erase(key) == 0 || !connection.wait->missing.empty()) continue;
    connection.wait.reset();
    reply(connection.out, Answer::kOk);
  }
}

void StoreServer::wait_for_keys(Connection& connection, WireReader& request) {
  const std::string own_key = request.string();
  if (!own_key.empty()) {
    check_key(own_key);
    check_room(own_key, 0);
    store(own_key, "");
  }
  Wait wait{.timeout_ms = request.u64()};
  wait.deadline = deadline_of(wait.timeout_ms);
  for (uint32_t count = request.u32(); count != 0; --count) {
    std::string key = request.string();
    check_key(key);
    if (!values_.contains(key)) wait.missing.insert(std::move(key));
  }
  if (wait.missing.empty()) return reply(connection.out, Answer::kOk);
  connection.wait = std::move(wait);
}

void StoreServer::say_hello(Connection& connection, WireReader& request) {
  if (connection.has_said_hello || request.bytes(kHelloMark.size()) != kHelloMark) {
    throw Error(BP_INVALID_ARGUMENT, "not a client of a store");
  }
  const uint32_t world_size = request.u32();
  const bool joins = request.u8() != 0;
  const uint64_t timeout_ms = request.u64();
  connection.has_said_hello = true;
  if (!joins || (world_size_ == 0 && world_size == 0)) return reply(connection.out, Answer::kOk);
  if (world_size_ == 0) {
    return reply(connection.out, Answer::kFailed,
                 "TcpStore: the store is open to any number of processes, and this one expects " +
                     std::to_string(world_size) + " ranks; allowed: the port of another store",
                 BP_INVALID_ARGUMENT);
  }
  if (world_size != world_size_ && other_world_size_ == 0) other_world_size_ = world_size;
  if (joined_count_ == world_size_ && other_world_size_ == 0) {
    return reply(connection.out, Answer::kFailed,
                 "TcpStore: all " + std::to_string(world_size_) +
                     " ranks have joined already; allowed: one store for each rank",
                 BP_INVALID_ARGUMENT);
  }
  ++joined_count_;
  connection.wait =
      Wait{.is_join = true, .deadline = deadline_of(timeout_ms), .timeout_ms = timeout_ms};
  if (other_world_size_ != 0) {
    told_count_ += joined_count_;
    end_joins(
        BP_INVALID_ARGUMENT,
        "TcpStore: the ranks have different world sizes: the rank that serves the store has " +
            std::to_string(world_size_) + ", another one " + std::to_string(other_world_size_) +
            "; allowed: one number");
  } else if (joined_count_ == world_size_) {
    end_joins(BP_OK, "");
  }
}

// Answers all ranks that have joined. After a failure the others can join again.
void StoreServer::end_joins(bp_status status, const std::string& text) {
  if (status != BP_OK) joined_count_ = 0;
  for (Connection& connection : connections_) {
    if (!connection.wait || !connection.wait->is_join) continue;
    connection.wait.reset();
    reply(connection.out, status == BP_OK ? Answer::kOk : Answer::kFailed, text, status);
  }
}

void StoreServer::expire(Connection& connection, Deadline now) {
  if (!connection.has_said_hello && connection.hello_deadline <= now) {
    connection.is_closing = true;
    connection.out.clear();
  }
  if (!connection.wait || connection.wait->deadline > now) return;
  const std::string within = " within " + milliseconds_text(connection.wait->timeout_ms);
  if (connection.wait->is_join) {
    end_joins(BP_TIMEOUT, "TcpStore: " + std::to_string(joined_count_) + " of " +
                              std::to_string(world_size_) + " ranks have joined" + within);
    return;
  }
  const std::string missing = list_of(connection.wait->missing);
  connection.wait.reset();
  reply(connection.out, Answer::kFailed, "TcpStore: nobody has put " + missing + within,
        BP_TIMEOUT);
}

}  // namespace bp::distributed
