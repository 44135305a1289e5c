// Gathers and reduces the units of a model while it runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backplane/runtime/autograd.hpp"
#include "runtime/distributed/shard_unit.hpp"

namespace bp::distributed {

class Sharder {
 public:
  // The name of the hooks of units, by which a module shows that it is sharded.
  static constexpr const char* kHookName = "FullyShardedDataParallel";

  struct Unit {
    std::string name;  // "" for the root unit, which is the first one.
    std::shared_ptr<nn::Module> module;
    Named parameters;
  };

  // All ranks give equal units, with parameters of one dtype. No dtype of the options is 0.
  Sharder(const std::vector<Unit>& units, const ProcessGroup& group, bp_dtype dtype,
          const FsdpOptions& options);
  Sharder(const Sharder&) = delete;

  const ShardSettings& settings() const { return settings_; }
  const std::vector<std::unique_ptr<ShardUnit>>& units() const { return units_; }
  std::vector<std::unique_ptr<ShardUnit>>& units() { return units_; }

  // Sets whether backward() exchanges gradients, and returns whether it did before.
  bool set_syncing(bool is_syncing) { return std::exchange(is_syncing_, is_syncing); }

  // Exchanges the gradients that were added up on this rank alone.
  void average_sums();

 private:
  static constexpr size_t kRoot = 0;

  Tensor before_forward(size_t unit, const Tensor& x);
  Tensor after_forward(size_t unit, const Tensor& y);
  Tensor cast(const Tensor& x, bp_dtype dtype) const;
  void begin_forward();
  void note_order(size_t unit);
  void end_forward();
  void make_whole(size_t unit);
  void prefetch(const std::vector<size_t>& order, size_t unit, uint32_t count);

  Tensor gate(const Tensor& x, std::function<void()> call);
  void begin_backward();
  void before_backward(size_t unit);
  void take_gradient(size_t unit, size_t parameter);
  void submit_complete();
  void reduce_all();
  void end_backward(bool is_complete);
  void reset_backward();
  std::string describe_unit(size_t unit) const;

  ShardSettings settings_;
  std::vector<std::unique_ptr<ShardUnit>> units_;
  bool is_syncing_ = true;

  // The order of the first forward(), which all ranks have, and of the first backward().
  std::vector<size_t> forward_order_, backward_order_;
  bool is_forward_known_ = false, is_backward_known_ = false;
  bool is_in_forward_ = false;
  size_t position_ = 0;        // Units of forward_order_ that this forward() has run.
  std::vector<bool> was_run_;  // In this forward().

  bool is_in_backward_ = false, has_gradients_ = false;
  std::vector<size_t> missing_;       // Gradients of each unit that have not come.
  std::vector<size_t> reduce_order_;  // Of the units that have gradients.
  size_t next_reduce_ = 0;            // The first that was not submitted.

  std::vector<GradHook> grad_hooks_;  // Last, so that no hook outlives what it uses.
  std::vector<nn::ForwardHook> forward_hooks_;
};

}  // namespace bp::distributed
