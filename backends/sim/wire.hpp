// The network between simulated devices. It tells when the data of calls has crossed it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "simulation/costs.hpp"
#include "simulation/network.hpp"
#include "simulation/transfers.hpp"

namespace bp::sim {

// Calls that share links, at times in seconds which the caller gives. A call takes the latency of
// its messages first, and then bandwidth, which calls share as simulation/transfers.hpp says.
//
// Threads    One thread at a time uses an object.
// Errors     add() throws simulate::NetworkError for a rank that the network lacks.
class Crossings {
 public:
  explicit Crossings(simulate::Network network)
      : network_(std::move(network)), costs_(network_), transfers_(network_.bandwidths()) {}

  const simulate::Network& network() const { return network_; }

  // Begins a call between `ranks` of the network at the time `now`, which never goes back. The
  // ranks may be in any order, and `call` counts them in this order.
  void add(double now, simulate::Call call, const std::vector<uint32_t>& ranks, uint64_t tag);

  // Returns when something happens next, or simulate::kNever.
  double next();

  // Returns the tags of the calls whose data has crossed the network by `now`, in their order.
  std::vector<uint64_t> take(double now);

 private:
  const simulate::Network network_;
  simulate::Costs costs_;
  simulate::Transfers transfers_;
  std::multimap<double, simulate::Transfer> delayed_;  // By the end of their latency.
};

// Calls that share links in real time.
//
// Threads    Any thread may call the functions.
class Wire {
 public:
  explicit Wire(simulate::Network network) : crossings_(std::move(network)) {}
  // Forgets the calls whose data is on the way.
  ~Wire();

  uint32_t rank_count() const { return crossings_.network().rank_count(); }

  // Runs `arrived` on a thread of the wire when the data of `call` has crossed the network.
  void send(const simulate::Call& call, const std::vector<uint32_t>& ranks,
            std::function<void()> arrived);

 private:
  using Clock = std::chrono::steady_clock;

  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  void run();

  const Clock::time_point begin_ = Clock::now();
  std::mutex mutex_;  // It guards the members below.
  std::condition_variable changed_;
  Crossings crossings_;
  std::map<uint64_t, std::function<void()>> arrivals_;  // By tag.
  uint64_t next_tag_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;  // Made by the first call.
};

}  // namespace bp::sim
