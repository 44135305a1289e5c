#include "process_group.h"

#include <ATen/core/ivalue.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "../memory.h"
#include "../streams.h"
#include "../tensors.h"

namespace bpt {
namespace {

using at::Tensor;
using c10d::OpType;

c10::Stream current(c10::Device device) {
  return c10::impl::VirtualGuardImpl(kBp).getStream(device);
}

// The end of a collective on its stream.
class DeviceWork final : public c10d::Work {
 public:
  DeviceWork(int rank, OpType type, std::vector<Tensor> outputs, const c10::Stream& stream)
      : Work(rank, type), outputs_(std::move(outputs)), device_(stream.device()), end_(kBp) {
    end_.record(stream);
    // A future records the streams that are current where it is completed.
    const c10::StreamGuard guard(stream);
    future_ = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device_});
    future_->markCompleted(c10::IValue(outputs_));
  }

  bool isCompleted() override { return end_.query(); }
  bool isSuccess() const override { return true; }  // A failure is that of the stream.
  void synchronize() override { end_.block(current(device_)); }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    if (opType_ == OpType::BARRIER) end_.synchronize();
    return true;
  }
  std::vector<Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<Tensor> outputs_;
  c10::Device device_;
  c10::Event end_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

bp_reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return BP_REDUCTION_SUM;
    case c10d::ReduceOp::AVG:
      return BP_REDUCTION_AVERAGE;
    case c10d::ReduceOp::PRODUCT:
      return BP_REDUCTION_PRODUCT;
    case c10d::ReduceOp::MIN:
      return BP_REDUCTION_MIN;
    case c10d::ReduceOp::MAX:
      return BP_REDUCTION_MAX;
    default:
      TORCH_CHECK(false, "torch_backplane: a collective reduces by sum, average, product, minimum ",
                  "or maximum, and not by bits.");
  }
}

const Tensor& only(const std::vector<Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "torch_backplane: a collective takes one tensor of each rank.");
  return tensors[0];
}

bp_buffer_ref range_of(const Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  TORCH_CHECK(tensor.is_contiguous(),
              "torch_backplane: the tensors of a collective lie without gaps, ",
              "in row-major order; call contiguous() first.");
  bp_buffer_ref range = place_of(tensor);
  range.size_bytes = tensor.nbytes();
  return range;
}

std::chrono::milliseconds no_timeout() { return std::chrono::milliseconds(0); }

}  // namespace

struct ProcessGroup::Call {
  bp_collective_kind kind = 0;
  Tensor send = {};
  Tensor receive = {};
  int64_t count = 0;
  bp_reduction reduction = 0;
  uint32_t root = 0;
  std::vector<uint64_t> counts = {};
  std::vector<uint64_t> receive_counts = {};
  std::chrono::milliseconds timeout = no_timeout();
};

// The stream of the group, behind the work of the caller's stream.
struct ProcessGroup::Scope {
  Scope(ProcessGroup& the_group, c10::Device device) : group(the_group), lock(group.mutex_) {
    group.create(device);
    c10::Event begin(kBp);
    begin.record(current(device));
    begin.block(*group.stream_);
    guard.emplace(*group.stream_);
  }

  // The memory of a tensor is used by the stream of the group as well.
  void use(const Tensor& tensor) const {
    if (tensor.defined()) record_stream(tensor.storage().data_ptr(), *group.stream_);
  }

  WorkPtr end(OpType type, std::vector<Tensor> outputs) const {
    return c10::make_intrusive<DeviceWork>(group.getRank(), type, std::move(outputs),
                                           *group.stream_);
  }

  ProcessGroup& group;
  std::unique_lock<std::mutex> lock;
  std::optional<c10::StreamGuard> guard;
};

ProcessGroup::ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                           std::chrono::milliseconds timeout, std::string table)
    : Backend(rank, size), store_(store), timeout_(timeout), table_name_(std::move(table)) {}

ProcessGroup::~ProcessGroup() {
  if (group_ != nullptr && is_open()) table_->destroy(table_->self, group_);
}

void ProcessGroup::create(c10::Device device) {
  require_open();
  const bp_target* target = target_of(device);
  if (group_ != nullptr) {
    TORCH_CHECK(target == target_, "torch_backplane: this process group is that of ", target_->name,
                ", and the tensors are on ", target->name, ".");
    return;
  }
  check(bp_target_find_process_groups(target, table_name_.c_str(), &table_),
        "target_find_process_groups");
  const auto rank = static_cast<uint32_t>(getRank());
  bp_process_group_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_PROCESS_GROUP_DESC;
  desc.devices = &target->device;
  desc.ranks = &rank;
  desc.local_count = 1;
  desc.world_size = static_cast<uint32_t>(getSize());
  desc.store = store_.get();
  desc.key_prefix = "backplane/";
  desc.timeout_ns = std::chrono::nanoseconds(timeout_).count();
  check(table_->create(table_->self, &desc, &group_), "process_group.create");
  target_ = target;
  stream_ = c10::impl::VirtualGuardImpl(kBp).getNewStream(device, 0);
}

void ProcessGroup::submit(Scope& scope, const Call& own) {
  bp_collective_call call{};
  call.struct_size = sizeof(call);
  call.struct_type = BP_STRUCT_COLLECTIVE_CALL;
  call.group = group_;
  call.stream = stream_of(*stream_);
  call.kind = own.kind;
  call.send = range_of(own.send);
  call.receive = range_of(own.receive);
  call.count = static_cast<uint64_t>(own.count);
  call.counts = own.counts.empty() ? nullptr : own.counts.data();
  call.receive_counts = own.receive_counts.empty() ? nullptr : own.receive_counts.data();
  call.reduction = own.reduction;
  call.root = own.root;
  if (own.timeout.count() > 0) call.timeout_ns = std::chrono::nanoseconds(own.timeout).count();
  const Tensor& any = own.send.defined() ? own.send : own.receive;
  if (any.defined()) {
    call.dtype = to_bp(any.scalar_type());
    TORCH_CHECK(call.dtype != 0, "torch_backplane: the library has no dtype ", any.scalar_type(),
                ".");
  }
  scope.use(own.send);
  scope.use(own.receive);
  check(table_->submit(table_->self, 1, &call, sizeof(call)), "process_group.submit");
}

ProcessGroup::WorkPtr ProcessGroup::broadcast(Tensors& tensors,
                                              const c10d::BroadcastOptions& options) {
  const Tensor& tensor = only(tensors);
  Scope scope(*this, tensor.device());
  const auto root = static_cast<uint32_t>(options.rootRank);
  const bool is_root = options.rootRank == getRank();
  submit(scope, {.kind = BP_COLLECTIVE_BROADCAST,
                 .send = is_root ? tensor : Tensor(),
                 .receive = tensor,
                 .count = tensor.numel(),
                 .root = root,
                 .timeout = options.timeout});
  return scope.end(OpType::BROADCAST, tensors);
}

ProcessGroup::WorkPtr ProcessGroup::allreduce(Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  Scope scope(*this, tensors.at(0).device());
  for (const Tensor& tensor : tensors) {
    submit(scope, {.kind = BP_COLLECTIVE_ALL_REDUCE,
                   .send = tensor,
                   .receive = tensor,
                   .count = tensor.numel(),
                   .reduction = reduction_of(options.reduceOp),
                   .timeout = options.timeout});
  }
  return scope.end(OpType::ALLREDUCE, tensors);
}

ProcessGroup::WorkPtr ProcessGroup::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

ProcessGroup::WorkPtr ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const Tensor& tensor = only(tensors);
  Scope scope(*this, tensor.device());
  submit(scope, {.kind = BP_COLLECTIVE_REDUCE,
                 .send = tensor,
                 .receive = options.rootRank == getRank() ? tensor : Tensor(),
                 .count = tensor.numel(),
                 .reduction = reduction_of(options.reduceOp),
                 .root = static_cast<uint32_t>(options.rootRank),
                 .timeout = options.timeout});
  return scope.end(OpType::REDUCE, tensors);
}

ProcessGroup::WorkPtr ProcessGroup::_allgather_base(Tensor& output, Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  Scope scope(*this, input.device());
  submit(scope, {.kind = BP_COLLECTIVE_ALL_GATHER,
                 .send = input,
                 .receive = output,
                 .count = input.numel(),
                 .timeout = options.timeout});
  return scope.end(OpType::_ALLGATHER_BASE, {output});
}

ProcessGroup::WorkPtr ProcessGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  const Tensor input = only(inputs).contiguous();
  Scope scope(*this, input.device());
  const Tensor whole = new_empty({getSize(), input.numel()}, input.scalar_type(), input.device());
  submit(scope, {.kind = BP_COLLECTIVE_ALL_GATHER,
                 .send = input,
                 .receive = whole,
                 .count = input.numel(),
                 .timeout = options.timeout});
  for (int rank = 0; rank < getSize(); ++rank) {
    outputs.at(0).at(rank).copy_(whole[rank].view(input.sizes()));
    scope.use(outputs[0][rank]);
  }
  return scope.end(OpType::ALLGATHER, outputs[0]);
}

ProcessGroup::WorkPtr ProcessGroup::_reduce_scatter_base(
    Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& options) {
  Scope scope(*this, input.device());
  submit(scope, {.kind = BP_COLLECTIVE_REDUCE_SCATTER,
                 .send = input,
                 .receive = output,
                 .count = output.numel(),
                 .reduction = reduction_of(options.reduceOp),
                 .timeout = options.timeout});
  return scope.end(OpType::_REDUCE_SCATTER_BASE, {output});
}

ProcessGroup::WorkPtr ProcessGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  const Tensor& output = only(outputs);
  Scope scope(*this, output.device());
  for (const Tensor& input : inputs.at(0)) scope.use(input);
  submit(scope, {.kind = BP_COLLECTIVE_REDUCE_SCATTER,
                 .send = at::stack(inputs.at(0)),
                 .receive = output,
                 .count = output.numel(),
                 .reduction = reduction_of(options.reduceOp),
                 .timeout = options.timeout});
  return scope.end(OpType::REDUCE_SCATTER, outputs);
}

ProcessGroup::WorkPtr ProcessGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           const c10d::GatherOptions& options) {
  const Tensor input = only(inputs).contiguous();
  Scope scope(*this, input.device());
  const bool is_root = options.rootRank == getRank();
  Tensor whole;
  if (is_root) {
    whole = new_empty({getSize(), input.numel()}, input.scalar_type(), input.device());
  }
  submit(scope, {.kind = BP_COLLECTIVE_GATHER,
                 .send = input,
                 .receive = whole,
                 .count = input.numel(),
                 .root = static_cast<uint32_t>(options.rootRank),
                 .timeout = options.timeout});
  for (int rank = 0; is_root && rank < getSize(); ++rank) {
    outputs.at(0).at(rank).copy_(whole[rank].view(input.sizes()));
    scope.use(outputs[0][rank]);
  }
  return scope.end(OpType::GATHER, is_root ? outputs[0] : Tensors());
}

ProcessGroup::WorkPtr ProcessGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                            const c10d::ScatterOptions& options) {
  const Tensor& output = only(outputs);
  Scope scope(*this, output.device());
  Tensor whole;
  if (options.rootRank == getRank()) {
    for (const Tensor& input : inputs.at(0)) scope.use(input);
    whole = at::stack(inputs.at(0));
  }
  submit(scope, {.kind = BP_COLLECTIVE_SCATTER,
                 .send = whole,
                 .receive = output,
                 .count = output.numel(),
                 .root = static_cast<uint32_t>(options.rootRank),
                 .timeout = options.timeout});
  return scope.end(OpType::SCATTER, outputs);
}

ProcessGroup::WorkPtr ProcessGroup::alltoall_base(Tensor& output, Tensor& input,
                                                  std::vector<int64_t>& output_splits,
                                                  std::vector<int64_t>& input_splits,
                                                  const c10d::AllToAllOptions& options) {
  Scope scope(*this, input.device());
  Call call{.kind = BP_COLLECTIVE_ALL_TO_ALL,
            .send = input,
            .receive = output,
            .timeout = options.timeout};
  // Splits count rows; the library counts elements.
  const auto elements = [&](const Tensor& tensor, const std::vector<int64_t>& splits) {
    std::vector<uint64_t> counts;
    const int64_t row =
        tensor.dim() == 0 || tensor.size(0) == 0 ? 1 : tensor.numel() / tensor.size(0);
    for (int rank = 0; rank < getSize(); ++rank) {
      counts.push_back(splits.empty() ? tensor.numel() / getSize() : splits.at(rank) * row);
    }
    return counts;
  };
  call.count = input.numel() / getSize();
  if (!input_splits.empty() || !output_splits.empty()) {
    call.counts = elements(input, input_splits);
    call.receive_counts = elements(output, output_splits);
  }
  submit(scope, call);
  return scope.end(OpType::ALLTOALL_BASE, {output});
}

ProcessGroup::WorkPtr ProcessGroup::send(Tensors& tensors, int to, int tag) {
  TORCH_CHECK(tag == 0,
              "torch_backplane: sends have no tags; those of two ranks pair up in order.");
  const Tensor& tensor = only(tensors);
  Scope scope(*this, tensor.device());
  submit(scope, {.kind = BP_COLLECTIVE_SEND,
                 .send = tensor,
                 .count = tensor.numel(),
                 .root = static_cast<uint32_t>(to)});
  return scope.end(OpType::SEND, tensors);
}

ProcessGroup::WorkPtr ProcessGroup::recv(Tensors& tensors, int from, int tag) {
  TORCH_CHECK(tag == 0,
              "torch_backplane: sends have no tags; those of two ranks pair up in order.");
  const Tensor& tensor = only(tensors);
  Scope scope(*this, tensor.device());
  submit(scope, {.kind = BP_COLLECTIVE_RECEIVE,
                 .receive = tensor,
                 .count = tensor.numel(),
                 .root = static_cast<uint32_t>(from)});
  return scope.end(OpType::RECV, tensors);
}

ProcessGroup::WorkPtr ProcessGroup::barrier(const c10d::BarrierOptions& options) {
  Scope scope(*this, options.device.value_or(c10::Device(kBp, current_device())));
  submit(scope, {.kind = BP_COLLECTIVE_BARRIER, .timeout = options.timeout});
  return scope.end(OpType::BARRIER, {});
}

}  // namespace bpt
