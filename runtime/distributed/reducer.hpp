// Collects the gradients of one rank in buckets, and averages the buckets over the ranks.
#pragma once

#include <string>
#include <vector>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/distributed/ddp.hpp"
#include "runtime/distributed/agreement.hpp"

namespace bp::distributed {

class Reducer {
 public:
  // All ranks give equal parameters. `tracks_unused` is true if any rank has unused parameters.
  Reducer(const Named& parameters, const ProcessGroup& group, const DdpOptions& options,
          bool tracks_unused);
  Reducer(const Reducer&) = delete;

  // Says that backward() of `outputs` follows, and whether gradients are exchanged in it.
  void prepare(std::span<const Tensor> outputs, bool is_syncing);

  // From begin_join() to end_join(), each exchange first counts the ranks that have a batch.
  void begin_join(bool divides_by_active);
  void end_join() { join_ = {}; }
  int64_t joined_steps() const { return join_.steps; }

  // Takes part in an exchange with gradients of 0, if another rank has a batch; else returns false.
  bool exchange_zeros();

  std::vector<std::vector<std::string>> bucket_names() const;

 private:
  enum class Phase {
    kIdle,      // No forward() since the last exchange.
    kLocal,     // Gradients stay on this rank.
    kPrepared,  // Before the first gradient of an exchange.
    kReducing   // Between its first and its last gradient.
  };
  struct Bucket {
    GradBucket content;
    std::vector<size_t> members;
    size_t missing = 0;            // Members that are not ready.
    std::function<void()> finish;  // What the comm hook returned.
  };
  struct Parameter {
    std::string name;
    Tensor tensor;
    Tensor view;  // The place of its gradient in a bucket.
    size_t bucket = 0;
    bool is_ready = false;
    bool is_told_unused = false;
    bool is_unused = false;  // In the graph that was prepared.
  };

  struct Joining {
    bool is_on = false;
    bool divides_by_active = false;
    int64_t steps = 0;  // Exchanges of this rank that had a batch.
    Tensor factor;      // The number of ranks over that of ranks with a batch, in this exchange.
  };

  void make_buckets(std::span<const size_t> order);
  void rebuild_buckets_once();
  Tensor count_active(bool has_batch);
  void find_unused(std::span<const Tensor> outputs);
  void check_complete() const;
  void begin_exchange(bool has_batch);
  void take_gradient(size_t index);
  void mark_ready(size_t index);
  void submit_full_buckets();
  void finish_exchange();

  ProcessGroup group_;
  const DdpOptions options_;
  const bool tracks_unused_;
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  size_t next_bucket_ = 0;       // The first that was not submitted.
  std::vector<size_t> arrived_;  // The order of the first exchange.
  bool is_rebuilt_ = false;
  bool has_batch_ = true;  // In this exchange.
  Joining join_;
  Phase phase_ = Phase::kIdle;
  std::vector<GradHook> hooks_;  // Last, so that no hook outlives what it uses.
};

}  // namespace bp::distributed
