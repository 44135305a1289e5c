// One thread tells the leader that this launcher lives, and reads its order. In the launcher that
// leads, the same thread takes the steps of the leader.
#include "runtime/distributed/rendezvous.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/rendezvous_leader.hpp"
#include "runtime/distributed/store_values.hpp"

namespace bp::distributed {
namespace {

constexpr Duration kLongestPause = std::chrono::milliseconds(100);
constexpr Duration kLongestTry = std::chrono::seconds(1);  // To connect.

std::string place_of(const RendezvousOptions& options) {
  return options.host + ":" + std::to_string(options.port);
}

// What all launchers of a job must have alike.
std::string config_of(const RendezvousOptions& options) {
  return "--rdzv-id " + options.id + " --nnodes " + std::to_string(options.least) + ":" +
         std::to_string(options.most) + " --max-restarts " + std::to_string(options.max_restarts);
}

}  // namespace

// ---- Orders ------------------------------------------------------------------------------------

std::string Order::encoded() const {
  return std::to_string(static_cast<int>(verb)) + " " + std::to_string(round) + " " +
         std::to_string(code) + " " + text;
}

Order Order::decoded(const std::string& encoded) {
  Order order;
  int verb = 0;
  std::istringstream in(encoded);
  in >> verb >> order.round >> order.code;
  order.verb = static_cast<Verb>(verb);
  std::getline(in >> std::ws, order.text);
  return order;
}

// ---- Coming and going --------------------------------------------------------------------------

Rendezvous::Rendezvous(RendezvousOptions options) : options_(std::move(options)) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw Error(BP_ABORTED, "rendezvous: no pipe");
  wake_[0] = Socket(ends[0]);
  wake_[1] = Socket(ends[1]);
  thread_ = std::thread([this] { run(); });
}

Rendezvous::~Rendezvous() {
  if (order().verb != Verb::kEnd) leave(1, "failed");
  thread_.join();
}

void Rendezvous::leave(int code, const std::string& why) {
  const std::lock_guard lock(mutex_);
  own_end_ = Order{Verb::kEnd, 0, code, why};
  is_leaving_ = true;
  changed_.notify_all();
}

// The launcher that leads comes first, since the others wait for its options.
void Rendezvous::join() {
  connect();
  if (!leads_) check_config();
  id_ = static_cast<uint32_t>(store_->add("launchers", 1));
  const int64_t node_rank = options_.node_rank ? int64_t{*options_.node_rank} : -1;
  store_->put("launcher/" + std::to_string(id_), std::to_string(options_.ranks) + " " +
                                                     std::to_string(node_rank) + " " +
                                                     options_.own_address);
  if (leads_) store_->put("config", config_of(options_));
}

// The first launcher on the machine that the endpoint names serves the store, or the one with node
// rank 0. A store answers at once, so a leader that is lost without a trace is noticed as soon as
// the leader would notice a launcher.
void Rendezvous::connect() {
  const bool may_serve = options_.node_rank ? *options_.node_rank == 0 : is_own_host(options_.host);
  if (may_serve) {
    try {
      store_ = std::make_unique<TcpStore>(options_.host, options_.port, true, 0,
                                          options_.heartbeat_timeout);
      leads_ = true;
      return;
    } catch (const Error& error) {
      if (error.code() != BP_ALREADY_EXISTS || options_.node_rank) throw;
    }
  }
  wait_for_leader();
  store_ = std::make_unique<TcpStore>(options_.host, options_.port, false, 0,
                                      options_.heartbeat_timeout);
}

// Waits until somebody listens at the endpoint, or this launcher is told to end.
void Rendezvous::wait_for_leader() {
  const Deadline end = deadline_after(options_.join_timeout);
  for (;;) {
    const auto left = std::max<Duration>(end - std::chrono::steady_clock::now(), {});
    try {
      connect_to(options_.host, options_.port, deadline_after(std::min(left, kLongestTry)), true);
      return;
    } catch (const Error& error) {
      const std::lock_guard lock(mutex_);
      if (left > kLongestTry && !is_leaving_) continue;
      throw Error(error.code(), "no launcher serves the rendezvous: " + std::string(error.what()));
    }
  }
}

void Rendezvous::check_config() {
  const std::string own = config_of(options_);
  const std::string theirs = store_->get("config", options_.join_timeout);
  if (theirs == own) return;
  throw Error(BP_INVALID_ARGUMENT, "the launcher at " + place_of(options_) + " has " + theirs +
                                       ", and this one " + own + "; allowed: equal options");
}

// ---- The thread --------------------------------------------------------------------------------

void Rendezvous::run() {
  try {
    join();
  } catch (const Error& error) {
    const auto end = take_own_end();
    return set_order({Verb::kEnd, 0, end ? end->code : 1, error.what()});
  }
  try {
    leads_ ? lead() : work();
  } catch (const Error& error) {
    set_order({Verb::kEnd, 0, 1,
               "the launcher that serves the rendezvous at " + place_of(options_) +
                   " is gone: " + error.what()});
  }
}

void Rendezvous::lead() {
  RendezvousLeader leader(*store_, options_, std::chrono::steady_clock::now());
  for (;; pause()) {
    if (const auto end = take_own_end()) {
      leader.finish(end->code, "the launcher that serves the rendezvous " + end->text);
    }
    leader.step(std::chrono::steady_clock::now());
    step();
    if (leader.is_over()) return;
  }
}

void Rendezvous::work() {
  for (;; pause()) {
    if (auto end = take_own_end()) {
      store_->put("left/" + std::to_string(id_), "it " + end->text);
      return set_order({Verb::kEnd, 0, end->code, ""});
    }
    if (!step()) return;
  }
}

std::optional<Order> Rendezvous::take_own_end() {
  const std::lock_guard lock(mutex_);
  return std::exchange(own_end_, std::nullopt);
}

void Rendezvous::pause() {
  std::unique_lock lock(mutex_);
  const Duration time = std::min<Duration>(kLongestPause, options_.heartbeat_timeout / 10);
  changed_.wait_for(lock, time, [this] { return own_end_.has_value(); });
}

// Returns false if the job has ended.
bool Rendezvous::step() {
  store_->add("beat/" + std::to_string(id_), 1);
  const Order latest = Order::decoded(store_->try_get("order").value_or("0 0 0"));
  if (latest.verb != Verb::kEnd) {
    follow(latest);
    return true;
  }
  set_order(latest);
  store_->put("end/" + std::to_string(id_), "");
  return false;
}

// Finds what this launcher has to do. The first launcher of a round names the place of rank 0.
void Rendezvous::follow(const Order& order) {
  {
    const std::lock_guard lock(mutex_);
    if (order_.verb == order.verb && order_.round == order.round) return;
  }
  if (order.verb != Verb::kRun) return set_order(order);
  Start start;
  if (!find_start(order.round, start)) return set_order({Verb::kWait, order.round, 0, order.text});
  const std::string key = "master/" + std::to_string(order.round);
  if (start.launcher == 0) {
    master_port_ = ReservedPort(options_.own_address);
    store_->put(key, options_.own_address + " " + std::to_string(master_port_.number()));
  }
  const auto master = store_->try_get(key);
  if (!master) return;  // It comes in a moment, or another order does.
  std::istringstream(*master) >> start.master_host >> start.master_port;
  {
    const std::lock_guard lock(mutex_);
    start_ = start;
  }
  set_order(order);
}

// Returns false if this launcher has no ranks in the round.
bool Rendezvous::find_start(uint32_t round, Start& start) {
  std::istringstream in(store_->get("round/" + std::to_string(round)));
  in >> start.restart_count;
  bool runs = false;
  uint32_t id = 0, first_rank = 0, ranks = 0;
  for (start.launcher_count = 0; in >> id >> first_rank >> ranks; ++start.launcher_count) {
    start.world_size += ranks;
    if (id != id_) continue;
    runs = true;
    start.first_rank = first_rank;
    start.launcher = start.launcher_count;
  }
  return runs;
}

void Rendezvous::set_order(Order order) {
  const std::lock_guard lock(mutex_);
  order_ = std::move(order);
  static_cast<void>(write(wake_[1].get(), "", 1));
}

// ---- The launcher ------------------------------------------------------------------------------

Order Rendezvous::order() {
  char bytes[64];
  while (read(wake_[0].get(), bytes, sizeof(bytes)) > 0) {
  }
  const std::lock_guard lock(mutex_);
  return order_;
}

Start Rendezvous::start() const {
  const std::lock_guard lock(mutex_);
  return start_;
}

// If the store is gone, the thread notices too.
void Rendezvous::put(const std::string& key, const std::string& value) {
  try {
    store_->put(key, value);
  } catch (const Error&) {
  }
}

std::string Rendezvous::own_key(const char* what, uint32_t round) const {
  return std::string(what) + "/" + std::to_string(round) + "/" + std::to_string(id_);
}

void Rendezvous::report_success(uint32_t round) { put(own_key("result", round), "0"); }

void Rendezvous::report_failure(uint32_t round, int code, bool by_signal, const std::string& text) {
  put(own_key("result", round),
      std::to_string(code) + " " + std::to_string(by_signal ? 1 : 0) + " " + text);
}

void Rendezvous::report_stopped(uint32_t round) { put(own_key("stopped", round), ""); }

}  // namespace bp::distributed
