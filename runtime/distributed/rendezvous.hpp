// Several bp-launch processes that run one job together, each on its machine. They meet in a store
// that the first of them serves, and agree there who runs which ranks. When a rank or a launcher is
// lost, or another launcher comes, all of them start their ranks again.
//
// The launcher that serves the store leads: it alone decides (rendezvous_leader.hpp). The others
// read its order, and tell it that they live and how their ranks have ended. If the leader is gone,
// so is the job.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "backplane/runtime/distributed/store.hpp"
#include "runtime/distributed/socket.hpp"

namespace bp::distributed {

struct RendezvousOptions {
  std::string host;  // Where the store is reached.
  uint16_t port = 0;
  std::string id;                     // Of the job.
  uint32_t least = 1, most = 1;       // Launchers that run ranks at the same time.
  uint32_t ranks = 1;                 // That this launcher starts.
  uint32_t max_restarts = 0;          // After failures. Starts with more launchers do not count.
  std::optional<uint32_t> node_rank;  // Launchers are in this order. 0 serves the store.
  std::string own_address;            // Where other launchers reach this machine.
  Duration join_timeout{std::chrono::minutes(10)};  // For `least` launchers to come.
  Duration last_call{std::chrono::seconds(30)};     // For more than `least` before the first start.
  Duration heartbeat_timeout{std::chrono::seconds(10)};
};

// Which ranks of a job a launcher starts.
struct Start {
  uint32_t first_rank = 0, world_size = 0;
  uint32_t launcher = 0, launcher_count = 1;  // Its place among the launchers.
  uint32_t restart_count = 0;
  std::string master_host = "127.0.0.1";  // Where rank 0 is reached.
  uint16_t master_port = 0;
};

enum class Verb {
  kWait,  // This launcher has no ranks to run.
  kRun,
  kStop,  // All ranks end, and the launchers tell when theirs have.
  kEnd,   // The job has ended.
};

// What the leader wants. `round` counts the starts of the job, from 1.
struct Order {
  Verb verb = Verb::kWait;
  uint32_t round = 0;
  int code = 0;      // With kEnd: the exit code.
  std::string text;  // Why, for people.

  std::string encoded() const;
  static Order decoded(const std::string& text);
};

class Rendezvous {
 public:
  // Begins to join the others, or to wait for them, in a thread of its own. What fails is an order
  // of kEnd.
  explicit Rendezvous(RendezvousOptions options);

  // Leaves. The leader first waits until the others know how the job has ended.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;

  // A descriptor that is readable when there is a new order.
  int descriptor() const { return wake_[0].get(); }

  // Returns the latest order for this launcher.
  Order order();

  // Returns what to start. The latest order is kRun.
  Start start() const;

  // Tells how the ranks of a round ended: all well, or one failed. They do not throw: if the store
  // is gone, the next order says so.
  void report_success(uint32_t round);
  void report_failure(uint32_t round, int code, bool by_signal, const std::string& text);

  // Tells that no rank of the round runs any more.
  void report_stopped(uint32_t round);

  // This launcher leaves the job, because it `why`. If it leads, the job ends with `code`.
  void leave(int code, const std::string& why);

 private:
  void run();
  void join();
  void connect();
  void wait_for_leader();
  void check_config();
  void lead();
  void work();
  bool step();
  void follow(const Order& order);
  bool find_start(uint32_t round, Start& start);
  void set_order(Order order);
  std::optional<Order> take_own_end();
  void pause();
  void put(const std::string& key, const std::string& value);
  std::string own_key(const char* what, uint32_t round) const;

  const RendezvousOptions options_;
  Socket wake_[2];
  // Set by the thread before the first kRun.
  std::unique_ptr<TcpStore> store_;
  uint32_t id_ = 0;           // Of this launcher, from 1.
  bool leads_ = false;        // Only the thread uses it.
  ReservedPort master_port_;  // Of rank 0, if this launcher starts it.

  mutable std::mutex mutex_;  // Guards the members below.
  std::condition_variable changed_;
  Order order_;
  Start start_;
  bool is_leaving_ = false;
  std::optional<Order> own_end_;  // How this launcher was told to end, until the thread takes it.
  std::thread thread_;
};

}  // namespace bp::distributed
