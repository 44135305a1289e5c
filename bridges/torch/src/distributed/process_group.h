// A backend of torch.distributed over the process groups of a plugin.
//
// The group is made at its first call, on the device of the tensors: that waits for the other
// ranks. Collectives run on a stream of their own behind the work of the caller's stream, so that
// they run beside later work; Work::wait() orders the caller's stream behind them and does not
// block.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "../devices.h"
#include "store.h"

namespace bpt {

class ProcessGroup final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
               std::chrono::milliseconds timeout, std::string table);
  ~ProcessGroup() override;

  const std::string getBackendName() const override { return "backplane"; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  struct Call;
  struct Scope;

  void create(c10::Device device);
  void submit(Scope& scope, const Call& call);

  StoreAdapter store_;
  std::chrono::milliseconds timeout_;
  std::string table_name_;
  std::mutex mutex_;
  const bp_target* target_ = nullptr;
  const bp_process_group_ops* table_ = nullptr;
  bp_process_group* group_ = nullptr;
  std::optional<c10::Stream> stream_;
};

}  // namespace bpt
