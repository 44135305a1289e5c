// The server of a TcpStore: one thread that serves all connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "runtime/distributed/socket.hpp"
#include "runtime/distributed/store_wire.hpp"

namespace bp::distributed {

class StoreServer {
 public:
  // Listens and serves from now on. Throws Error if the port cannot be used.
  StoreServer(const std::string& host, uint16_t port, uint32_t world_size);

  // Ends the thread and all connections. If ranks gave different world sizes, it first goes on for
  // a few seconds, so that ranks that come late learn of it too.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;

  uint16_t port() const { return port_; }

 private:
  // What a connection waits for: keys, or that all ranks join.
  struct Wait {
    bool is_join = false;
    std::set<std::string> missing;
    Deadline deadline;
    uint64_t timeout_ms = 0;
  };
  struct Connection {
    explicit Connection(Socket connected) : socket(std::move(connected)) {}
    Socket socket;
    std::string in, out;
    Deadline hello_deadline;
    bool has_said_hello = false;
    bool is_closing = false;
    std::optional<Wait> wait;
  };

  void run();
  bool poll_once();  // Returns false when the server ends.
  void accept_all();
  void read_from(Connection& connection);
  void write_to(Connection& connection);
  void handle_messages(Connection& connection);
  void handle(Connection& connection, WireReader request);
  void say_hello(Connection& connection, WireReader& request);
  void store(const std::string& key, std::string value);
  void check_room(const std::string& key, uint64_t value_bytes) const;
  void wait_for_keys(Connection& connection, WireReader& request);
  void end_joins(bp_status status, const std::string& text);
  void expire(Connection& connection, Deadline now);
  Deadline next_deadline() const;

  const uint32_t world_size_;
  Socket listener_;
  uint16_t port_ = 0;
  Socket wake_[2];  // A pipe: closing the second ends the thread.
  std::list<Connection> connections_;
  std::map<std::string, std::string, std::less<>> values_;
  uint64_t total_bytes_ = 0;
  uint32_t joined_count_ = 0;
  uint32_t other_world_size_ = 0;  // The first that differs; 0 if none.
  uint32_t told_count_ = 0;        // Ranks that learned of it.
  std::thread thread_;
};

}  // namespace bp::distributed
