// The side of a server of a parameter server (parameter_server.hpp).
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backplane/runtime/distributed/parameter_server.hpp"
#include "runtime/distributed/parameter_link.hpp"
#include "runtime/distributed/worker_clocks.hpp"

namespace bp::distributed {

class ParameterService {
 public:
  struct Settings {
    std::string who;                 // Names this rank in errors.
    std::vector<Tensor> parameters;  // That this server has.
    uint64_t staleness = 0;
    std::shared_ptr<Optimizer> optimizer;
    std::function<void(const PushedStep&)> before_step;
  };

  // `links` has a link for each worker. Their numbers are their ranks in the group.
  ParameterService(Settings settings, std::vector<std::unique_ptr<ParameterLink>> links);
  ~ParameterService();
  ParameterService(const ParameterService&) = delete;

  void serve();
  ParameterServerCounters counters() const;

 private:
  // What a worker has sent, or why it did not come.
  struct Arrival {
    uint32_t worker = 0;
    LinkMessage message;
  };
  // What the thread of a link does next.
  enum class Order { kWait, kListen, kEnd };
  enum class Standing {
    kComputes,  // The thread of its link waits for it.
    kWaits,     // It waits for an answer.
    kGone       // It has nothing to wait for, or its link has ended.
  };

  void listen(uint32_t worker);
  LinkMessage next_message(uint32_t worker);
  std::optional<Arrival> next_arrival(std::chrono::steady_clock::time_point until);
  void give_order(uint32_t worker, Order order);

  void serve_all();
  void take(const Arrival& arrival);
  void advance();
  void apply(uint32_t worker);
  Work send_parameters(uint32_t worker);
  void tell_to_wait();
  void end_session();

  void fail(bp_status code, const std::string& text);
  Work tell_failure(uint32_t worker);
  void end_after_failure();

  Settings settings_;
  std::vector<std::unique_ptr<ParameterLink>> links_;
  WorkerClocks clocks_;
  std::vector<LinkMessage> pushes_;  // The last one of each worker.
  std::vector<uint64_t> applied_;    // Pushes of each worker since the constructor.
  std::vector<Standing> standing_;
  std::vector<Work> waits_;             // The last kWait of each worker.
  std::optional<FlatValues> snapshot_;  // Of the parameters, since they last changed.
  bool has_served_ = false;
  bp_status failure_code_ = BP_OK;
  std::string failure_;

  std::mutex mutex_;  // Guards the members below.
  std::condition_variable changed_;
  std::deque<Arrival> arrivals_;
  std::vector<Order> orders_;
};

}  // namespace bp::distributed
