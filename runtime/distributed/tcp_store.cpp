// The client of a TcpStore. A call takes a connection that is idle, or makes a new one, so that a
// call that waits holds up no other call. The process that serves the store uses it like the
// others.
#include <algorithm>
#include <vector>

#include "backplane/runtime/distributed/store.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/distributed/socket.hpp"
#include "runtime/distributed/store_server.hpp"
#include "runtime/distributed/store_wire.hpp"

namespace bp::distributed {
namespace {

// How long the server may take for what it does at once, also on a machine that is very busy: as
// long as the ranks may take to join, between these limits.
constexpr Duration kLeastAnswerTime = std::chrono::seconds(5);
constexpr Duration kMostAnswerTime = std::chrono::seconds(60);

constexpr size_t kMostShownKeys = 3;

std::string request_of(Request kind) { return std::string(1, static_cast<char>(kind)); }

uint64_t milliseconds_of(Duration timeout) {
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(
      std::min<Duration>(timeout, std::chrono::hours(24 * 365)));
  return milliseconds.count() < 0 ? 0 : static_cast<uint64_t>(milliseconds.count());
}

std::string hello(uint32_t world_size, bool joins, Duration timeout) {
  std::string request = request_of(Request::kHello);
  request += kHelloMark;
  append_u32(request, world_size);
  request += static_cast<char>(joins ? 1 : 0);
  append_u64(request, milliseconds_of(timeout));
  return request;
}

// What the server says.
struct Reply {
  Answer answer = Answer::kNone;
  bp_status status = BP_OK;
  std::string text;
};

// Sends a request and returns the reply. Throws Error if the connection does not bring it.
Reply exchange(const Socket& socket, const std::string& request, Deadline deadline) {
  send_message(socket, request, deadline);
  const std::string body = receive_message(socket, kMostBytes, deadline);
  WireReader reader(body);
  Reply reply;
  reply.answer = static_cast<Answer>(reader.u8());
  if (reply.answer == Answer::kFailed) reply.status = static_cast<bp_status>(reader.u32());
  if (reply.answer != Answer::kNone) reply.text = reader.string();
  return reply;
}

// Returns the value that a reply carries. Throws the failure that it carries.
std::optional<std::string> value_of(Reply reply) {
  if (reply.answer == Answer::kFailed) throw Error(reply.status, reply.text);
  if (reply.answer == Answer::kNone) return std::nullopt;
  return std::move(reply.text);
}

std::string shown(std::span<const std::string> keys) {
  std::string text;
  for (size_t i = 0; i < std::min(keys.size(), kMostShownKeys); ++i) {
    text += (i == 0 ? "'" : ", '") + keys[i] + "'";
  }
  const size_t rest = keys.size() - std::min(keys.size(), kMostShownKeys);
  return rest == 0 ? text : text + " and " + std::to_string(rest) + " more";
}

}  // namespace

struct TcpStore::Client {
  std::string host;
  uint16_t port = 0;
  uint32_t world_size = 0;
  Duration answer_time{};
  std::unique_ptr<StoreServer> server;  // Set in the process that serves the store.
  std::mutex mutex;                     // Guards `idle`.
  std::vector<Socket> idle;

  std::string place() const { return host + ":" + std::to_string(port); }

  [[noreturn]] void fail(const std::string& what, const Error& error) const {
    const bool is_late = error.code() == BP_TIMEOUT;
    throw Error(BP_ABORTED, "TcpStore: " + what + ": the store at " + place() +
                                (is_late ? " does not answer: " : " is gone: ") + error.what());
  }

  void join(Duration timeout) {
    const Deadline deadline = deadline_after(timeout);
    Socket socket = connect_to(host, port, deadline, true);
    const auto left = std::max<Duration>(deadline - std::chrono::steady_clock::now(), {});
    Reply reply;
    try {
      reply = exchange(socket, hello(world_size, true, left), deadline + answer_time);
    } catch (const Error& error) {
      fail("joining the ranks", error);
    }
    value_of(std::move(reply));
    give_back(std::move(socket));
  }

  // Returns a connection that was idle and is still open, or none.
  Socket take_idle() {
    const std::lock_guard lock(mutex);
    while (!idle.empty()) {
      Socket socket = std::move(idle.back());
      idle.pop_back();
      if (is_open(socket)) return socket;
    }
    return {};
  }

  Socket take(Deadline deadline) {
    Socket socket = take_idle();
    if (socket) return socket;
    socket = connect_to(host, port, deadline, false);
    exchange(socket, hello(world_size, false, {}), deadline);
    return socket;
  }

  void give_back(Socket socket) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(socket));
  }

  // `what` names the call. A connection whose reply did not come is not used again.
  std::optional<std::string> call(const std::string& what, const std::string& request,
                                  Duration timeout = {}) {
    Reply reply;
    try {
      Socket socket = take(deadline_after(answer_time));
      reply = exchange(socket, request, deadline_after(timeout) + answer_time);
      give_back(std::move(socket));
    } catch (const Error& error) {
      fail(what, error);
    }
    return value_of(std::move(reply));
  }
};

TcpStore::TcpStore(std::string host, uint16_t port, bool is_server, uint32_t world_size,
                   Duration timeout)
    : client_(std::make_unique<Client>()) {
  if (port == 0 && !is_server) {
    throw Error(BP_INVALID_ARGUMENT, "TcpStore: the port is 0; allowed: 0 for the server alone");
  }
  client_->host = std::move(host);
  client_->port = port;
  client_->world_size = world_size;
  client_->answer_time = std::clamp(timeout, kLeastAnswerTime, kMostAnswerTime);
  if (is_server) {
    client_->server = std::make_unique<StoreServer>(client_->host, port, world_size);
    client_->port = client_->server->port();
  }
  client_->join(timeout);
}

TcpStore::~TcpStore() = default;

uint16_t TcpStore::port() const { return client_->port; }

std::optional<std::string> TcpStore::try_get(const std::string& key) {
  check_key(key);
  std::string request = request_of(Request::kTryGet);
  append_string(request, key);
  return client_->call("get '" + key + "'", request);
}

void TcpStore::put(const std::string& key, const std::string& value) {
  check_key(key);
  check_value(key, value);
  std::string request = request_of(Request::kPut);
  append_string(request, key);
  append_string(request, value);
  client_->call("put '" + key + "'", request);
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  check_key(key);
  std::string request = request_of(Request::kAdd);
  append_string(request, key);
  append_u64(request, static_cast<uint64_t>(amount));
  return std::stoll(client_->call("add to '" + key + "'", request).value());
}

void TcpStore::wait(std::span<const std::string> keys, Duration timeout) {
  put_and_wait("", keys, timeout);
}

void TcpStore::put_and_wait(const std::string& own_key, std::span<const std::string> keys,
                            Duration timeout) {
  std::string request = request_of(Request::kWait);
  append_string(request, own_key);
  append_u64(request, milliseconds_of(timeout));
  append_u32(request, static_cast<uint32_t>(keys.size()));
  for (const std::string& key : keys) {
    check_key(key);
    append_string(request, key);
  }
  client_->call("wait for " + shown(keys), request, timeout);
}

}  // namespace bp::distributed
