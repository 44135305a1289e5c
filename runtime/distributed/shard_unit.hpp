// The parameters of one unit of a FullyShardedDataParallel, which are gathered and reduced
// together.
//
// The unit sees its parameters as one flat tensor, and each rank keeps one part of it:
//
//   flat   | weight ........ gap | bias . gap | ...      gap |     gaps are zeros
//   parts  | rank 0        | rank 1        | rank 2          |     of equal size
//
// A shard is the place of a parameter within the part of this rank. It is empty where the parameter
// lies on other ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backplane/runtime/distributed/fsdp.hpp"
#include "runtime/distributed/agreement.hpp"

namespace bp::distributed {

// Flat tensors that wait for their next use within a forward() or a backward(). All work on them is
// ordered by the current stream, so they can be used again at once, while memory that other streams
// have used returns to the allocator only when these streams are done with it.
class FlatPool {
 public:
  Tensor take(int64_t count, bp_dtype dtype, Device device);
  void put(Tensor tensor);  // Keeps it, unless someone else holds it too.
  void clear() { tensors_.clear(); }

 private:
  std::vector<Tensor> tensors_;
};

// Flat tensors for the gradients of units. At most two of them are under way to the other ranks:
// the current stream waits for the oldest before there is a third one. This bounds the memory,
// however far the host is ahead of the device.
class GradientPool {
 public:
  Tensor take(int64_t count, bp_dtype dtype, Device device);
  void put(Tensor tensor, Work work);  // `work` reads the tensor.
  void clear();                        // The current stream waits for all work.

 private:
  std::deque<std::pair<Tensor, Work>> under_way_;
};

// What the units of one model share.
struct ShardSettings {
  FsdpOptions options;      // No dtype is 0.
  bp_dtype dtype;           // Of the parameters, and of the parts.
  ProcessGroup group;       // Gathers parameters.
  ProcessGroup grad_group;  // Reduces gradients. Two groups, since their calls have two orders.
  FlatPool flats = {};
  GradientPool gradients = {};

  bool keeps_whole() const { return options.stage < 3; }
  // Returns whether gradients are divided by the number of ranks before they are rounded to 16
  // bits, so that their sum stays in range.
  bool divides_first() const {
    return options.reduce_dtype == BP_F16 || options.reduce_dtype == BP_BF16;
  }
  int64_t rank_count() const;
};

class ShardUnit {
 public:
  // Takes the parameters over: from now on the memory of a parameter is the unit's. The settings
  // outlive the unit.
  ShardUnit(std::string name, const Named& parameters, ShardSettings& settings);
  ShardUnit(const ShardUnit&) = delete;

  const std::string& name() const { return name_; }
  size_t parameter_count() const { return parameters_.size(); }
  const Tensor& parameter(size_t i) const { return parameters_[i].tensor; }
  const std::string& parameter_name(size_t i) const { return parameters_[i].name; }
  const Tensor& shard(size_t i) const { return parameters_[i].shard; }
  // Returns which elements of the parameter the shard has: [begin, end).
  std::pair<int64_t, int64_t> range(size_t i) const {
    return {parameters_[i].begin, parameters_[i].end};
  }
  size_t trainable_count() const { return trainable_count_; }

  // Starts to make the parameters whole, unless they are or will be.
  void submit_gather();
  // Makes the parameters whole for the current stream. submit_gather() came before.
  void finish_gather();
  // Gives the memory of the whole parameters back, at stage 3.
  void reshard();

  // Moves grad() of a parameter into the flat gradient of the unit.
  void take_gradient(size_t i);
  // Sends the flat gradient away. A parameter without a gradient counts as zeros.
  void submit_reduce();
  // Makes the average the gradient of the shards, or adds it to theirs.
  void finish_reduce();
  // Forgets gradients that the shards do not have yet.
  void drop_gradients();

  // Return tensors of the shape of parameter i in `dtype`, from pieces that lie as the shards do,
  // and back. Every rank calls gather(), which blocks no rank.
  std::vector<Tensor> gather(const std::vector<Tensor>& pieces) const;
  Tensor piece(size_t i, const Tensor& whole) const;

  // Copies whole values into the parameters.
  void set_values(size_t i, const Tensor& whole);

 private:
  struct Parameter {
    std::string name;
    Tensor tensor;  // What the model uses. It has no memory while it is not whole.
    Tensor absent;
    Tensor shard;
    int64_t offset;        // In the flat tensor.
    int64_t begin, end;    // The elements of the parameter that the shard has.
    int64_t shard_offset;  // In the part of this rank.
    bool has_gradient = false;
  };

  void place(const Named& parameters);
  void make_parts();
  void show(const Tensor& flat);
  Tensor part_of(const Tensor& flat) const;
  Tensor view_of(const Tensor& flat, const Parameter& parameter) const;

  const std::string name_;
  ShardSettings& settings_;
  const Device device_, shard_device_;
  const bp_dtype dtype_;
  std::vector<Parameter> parameters_;
  size_t trainable_count_ = 0;
  int64_t part_count_ = 0;         // Elements of a part.
  Tensor part_;                    // The part of this rank, in the dtype of the parameters.
  Tensor whole_;                   // Flat, in the dtype for computing; empty while it is not whole.
  uint32_t gathered_version_ = 0;  // The version of `part_` that `whole_` has.
  Tensor received_;
  std::optional<Work> gather_;  // Under way.
  Tensor gradient_;             // Flat, in the dtype for reducing.
  Tensor reduced_;              // The part of this rank in the average.
  std::optional<Work> reduce_;  // Under way.
};

}  // namespace bp::distributed
