// The client of a TcpStore. A call takes a connection that is idle, or makes a new one, so that a
// call that waits holds up no other call. The process that serves the store uses it like the
// others.
#include <vector>

#include "backplane/runtime/distributed/store.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/distributed/socket.hpp"
#include "runtime/distributed/store_server.hpp"
#include "runtime/distributed/store_wire.hpp"

namespace bp::distributed {
namespace {

// How long the server may take for what it does at once, also on a machine that is very busy.
constexpr auto kServerTime = std::chrono::seconds(60);

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

// Sends a request and returns the value of the reply. Throws the failure that it carries.
std::optional<std::string> exchange(const Socket& socket, const std::string& request,
                                    Deadline deadline) {
  send_message(socket, request, deadline);
  const std::string body = receive_message(socket, kMostBytes, deadline);
  WireReader reply(body);
  const auto answer = static_cast<Answer>(reply.u8());
  if (answer == Answer::kNone) return std::nullopt;
  if (answer == Answer::kOk) return reply.string();
  const auto status = static_cast<bp_status>(reply.u32());
  throw Error(status, reply.string());
}

}  // namespace

struct TcpStore::Client {
  std::string host;
  uint16_t port = 0;
  uint32_t world_size = 0;
  std::unique_ptr<StoreServer> server;  // Set in the process that serves the store.
  std::mutex mutex;                     // Guards `idle`.
  std::vector<Socket> idle;

  std::string place() const { return host + ":" + std::to_string(port); }

  void join(Duration timeout) {
    const Deadline deadline = deadline_after(timeout);
    Socket socket = connect_to(host, port, deadline, true);
    const auto left = std::max<Duration>(deadline - std::chrono::steady_clock::now(), {});
    talk(socket, hello(world_size, true, left), deadline + kServerTime);
    give_back(std::move(socket));
  }

  Socket take() {
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        Socket socket = std::move(idle.back());
        idle.pop_back();
        return socket;
      }
    }
    const Deadline deadline = deadline_after(kServerTime);
    Socket socket = connect_to(host, port, deadline, false);
    exchange(socket, hello(world_size, false, {}), deadline);
    return socket;
  }

  void give_back(Socket socket) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(socket));
  }

  // Adds the place to what the connection says. What the server says has names in it already.
  std::optional<std::string> talk(const Socket& socket, const std::string& request,
                                  Deadline deadline) const {
    try {
      return exchange(socket, request, deadline);
    } catch (const Error& error) {
      const std::string text = error.what();
      if (text.starts_with("TcpStore") || text.starts_with("store:")) throw;
      throw Error(error.code(), "TcpStore: the store at " + place() + " is gone: " + text);
    }
  }

  // A connection whose reply did not come is not used again.
  std::optional<std::string> call(const std::string& request, Duration timeout = {}) {
    Socket socket = take();
    const Deadline deadline = deadline_after(timeout) + kServerTime;
    try {
      std::optional<std::string> value = talk(socket, request, deadline);
      give_back(std::move(socket));
      return value;
    } catch (const Error& error) {
      const bool is_answer = error.code() != BP_ABORTED;
      if (is_answer && std::chrono::steady_clock::now() < deadline) give_back(std::move(socket));
      throw;
    }
  }
};

TcpStore::TcpStore(std::string host, uint16_t port, bool is_server, uint32_t world_size,
                   Duration timeout)
    : client_(std::make_unique<Client>()) {
  if (world_size == 0 || (port == 0 && !is_server)) {
    throw Error(BP_INVALID_ARGUMENT, "TcpStore: world_size is " + std::to_string(world_size) +
                                         " and port " + std::to_string(port) +
                                         "; allowed: from 1, and port 0 for the server alone");
  }
  client_->host = std::move(host);
  client_->port = port;
  client_->world_size = world_size;
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
  return client_->call(request);
}

void TcpStore::put(const std::string& key, const std::string& value) {
  check_key(key);
  check_value(key, value);
  std::string request = request_of(Request::kPut);
  append_string(request, key);
  append_string(request, value);
  client_->call(request);
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  check_key(key);
  std::string request = request_of(Request::kAdd);
  append_string(request, key);
  append_u64(request, static_cast<uint64_t>(amount));
  return std::stoll(client_->call(request).value());
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
  client_->call(request, timeout);
}

}  // namespace bp::distributed
