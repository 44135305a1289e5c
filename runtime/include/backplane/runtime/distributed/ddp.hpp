// Data-parallel training: every rank has the same model and its own part of the batch, and the
// gradients are averaged over the ranks while backward() runs.
//
//   bp::distributed::DistributedDataParallel ddp(model, group);
//   bp::AdamW optimizer(model->parameters());
//   loss_of(ddp(x), y).backward();   // Gradients are averages over all ranks now.
//   optimizer.step();
//
// Gradients lie in buckets. As soon as the last gradient of a bucket is there, its all-reduce is
// submitted to the stream of the group and runs beside the rest of backward(). The end of
// backward() makes the current stream wait for all buckets, without blocking.
//
// Rules for everything here, unless it says otherwise:
//   Threads    One thread at a time uses a DistributedDataParallel and its model.
//   Blocking   The constructor, the forward() after the first step, and backward() with unused
//              parameters wait for the other ranks. Nothing else does.
//   Errors     Throws bp::Error. What fails in backward() fails there, and so does the group.
//   Ownership  It shares the model, and keeps hooks on the parameters until it is destroyed.
//   Gradients  After backward(), grad() of a parameter is a view of a bucket: the next backward()
//              writes into the same memory. Graphs of gradients (create_graph) end in the buckets.
//   Bits       The average is that of the backend's all-reduce. If this adds ranks in their order,
//              the result equals, in every bit, that of one process which accumulates the gradients
//              of all parts in the same order and divides them by their number.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/nn.hpp"

namespace bp::distributed {

// The gradient of one parameter in a bucket.
struct BucketGrad {
  std::string name;    // Of the parameter.
  int64_t offset = 0;  // In elements of the bucket.
  Tensor grad;         // A view of the bucket, with the shape of the parameter.
};

// The gradients of some parameters, one behind the other, each aligned as memory of its own. The
// gaps are zeros.
struct GradBucket {
  uint64_t index = 0;  // The place of the bucket in this backward().
  Tensor data;         // Flat; the sum of a parameter's gradients since the last zero_grad().
  std::vector<BucketGrad> grads;
};

// Submits what averages a bucket over the ranks, and returns a function that lets the current
// stream wait for it and puts the average into `data`. Neither blocks. comm_hooks.hpp has hooks
// that send less.
using CommHook = std::function<std::function<void()>(const ProcessGroup&, const GradBucket&)>;

// Averages in the dtype of the gradients. It is the default.
std::function<void()> average_hook(const ProcessGroup& group, const GradBucket& bucket);

// Divide by the number of ranks, and send in 16 bits.
std::function<void()> bf16_hook(const ProcessGroup& group, const GradBucket& bucket);
std::function<void()> f16_hook(const ProcessGroup& group, const GradBucket& bucket);

struct DdpOptions {
  uint64_t bucket_bytes = uint64_t{25} << 20;
  uint64_t first_bucket_bytes = uint64_t{1} << 20;  // Small, so that the first all-reduce is early.
  // After the first step the buckets follow the order in which its gradients came.
  bool rebuilds_buckets = true;
  // Looks in each forward() for parameters on which the result does not depend. Their gradients
  // count as 0. A parameter that no rank uses keeps its grad() as it is. Each rank must use at
  // least one parameter.
  bool finds_unused = false;
  // Names of parameters that get no gradient on this rank, in no step. This saves the search.
  std::vector<std::string> unused_parameters;
  CommHook comm_hook = average_hook;
};

// Replaces the gradients of `parameters` by their averages over the ranks of `group`, behind a
// backward that no DistributedDataParallel exchanged, such as that of a pipeline. All ranks give
// parameters of the same shapes and dtypes in the same order. Throws Error, on this rank alone, for
// a parameter without a gradient. Does not block.
void average_gradients(std::span<const Tensor> parameters, const ProcessGroup& group);

class Reducer;

class DistributedDataParallel {
 public:
  // Checks that all ranks have parameters of the same names, shapes and dtypes, and copies the
  // values of rank 0 to the other ranks. If something differs, every rank throws Error, which names
  // the first difference.
  DistributedDataParallel(std::shared_ptr<nn::Module> module, const ProcessGroup& group,
                          const DdpOptions& options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Runs the model, and prepares the exchange of gradients for the next backward(). While recording
  // is off it only runs the model.
  Tensor forward(const Tensor& x);
  Tensor operator()(const Tensor& x) { return forward(x); }

  // Prepares the exchange for a model that was run in another way, and gave `outputs`.
  void prepare_backward(std::span<const Tensor> outputs);

  // While the object lives, forward() prepares no exchange: the next backward() adds up gradients
  // on this rank alone. The first exchange after that averages the sums.
  class NoSync {
   public:
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    friend class DistributedDataParallel;
    explicit NoSync(DistributedDataParallel& ddp);
    DistributedDataParallel& ddp_;
    const bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // While the object lives, ranks may have different numbers of batches: a rank that has no more
  // calls finish(), which takes its part in the exchanges of the others, with gradients of 0.
  //
  //   auto join = ddp.join();
  //   for (const auto& batch : batches) { ... }   // As ever.
  //   join.finish();
  //
  // All ranks make the object at the same time, and it costs each exchange one all-reduce of a
  // number. A rank that ends without finish() leaves the others waiting until their timeout.
  class Join {
   public:
    ~Join();
    Join(const Join&) = delete;
    Join& operator=(const Join&) = delete;

    // Waits until no rank has a batch left. Then every rank has the parameters of the rank that
    // took the most steps; the state of its optimizer is its own, and older.
    void finish();

   private:
    friend class DistributedDataParallel;
    Join(DistributedDataParallel& ddp, bool divides_by_active);
    DistributedDataParallel& ddp_;
  };

  // Gradients are divided by the number of all ranks or, if `divides_by_active`, of those that have
  // a batch.
  [[nodiscard]] Join join(bool divides_by_active = false) { return Join(*this, divides_by_active); }

  nn::Module& module() const { return *module_; }
  const ProcessGroup& group() const { return group_; }

  // Returns the names of the parameters of each bucket, in the order of the all-reduces.
  std::vector<std::vector<std::string>> bucket_names() const;

 private:
  std::shared_ptr<nn::Module> module_;
  ProcessGroup group_;
  bool is_syncing_ = true;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace bp::distributed
