// The life of an exchange: prepare() - a hook for each gradient, which copies it into its bucket -
// an all-reduce for each full bucket - the end, with the last gradient.
//
// All ranks must submit in one order, so a full bucket waits for those before it. A gradient is
// copied, because kernels write gradients to memory of their own. The copy is exact, and keeps the
// sign of a zero, which adding to a cleared bucket would not.
#include "runtime/distributed/reducer.hpp"

#include <algorithm>
#include <numeric>

#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/hooks.hpp"
#include "runtime/distributed/buckets.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::distributed {
namespace {

bool is_same_place(const Tensor& a, const Tensor& b) {
  return a.impl()->storage == b.impl()->storage && a.get()->byte_offset == b.get()->byte_offset;
}

}  // namespace

Reducer::Reducer(const Named& parameters, const ProcessGroup& group, const DdpOptions& options,
                 bool tracks_unused)
    : group_(group), options_(options), tracks_unused_(tracks_unused) {
  for (const auto& [name, tensor] : parameters) {
    const bool is_told =
        std::ranges::find(options_.unused_parameters, name) != options_.unused_parameters.end();
    parameters_.push_back({.name = name, .tensor = tensor, .is_told_unused = is_told});
  }
  std::vector<size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  make_buckets(order);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    hooks_.emplace_back(parameters_[i].tensor, [this, i](const Tensor&) { take_gradient(i); });
  }
}

void Reducer::make_buckets(std::span<const size_t> order) {
  const NoGradGuard no_grad;
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : parameters_) tensors.push_back(parameter.tensor);
  buckets_.clear();
  const int64_t alignment = alignment_bytes(group_.device());
  for (auto& members :
       assign_buckets(tensors, order, options_.first_bucket_bytes, options_.bucket_bytes)) {
    int64_t count = 0;
    for (const size_t i : members) count += padded_count(tensors[i], alignment);
    Bucket bucket;
    bucket.content.index = buckets_.size();
    bucket.content.data = zeros({count}, tensors[members[0]].dtype(), group_.device());
    int64_t offset = 0;
    for (const size_t i : members) {
      Parameter& parameter = parameters_[i];
      parameter.bucket = buckets_.size();
      const Tensor flat = bucket.content.data.narrow(0, offset, parameter.tensor.numel());
      parameter.view = flat.view(parameter.tensor.shape());
      bucket.content.grads.push_back({parameter.name, offset, parameter.view});
      offset += padded_count(tensors[i], alignment);
    }
    bucket.members = std::move(members);
    buckets_.push_back(std::move(bucket));
  }
}

// Behind the first exchange the buckets follow the order in which the gradients came on rank 0.
void Reducer::rebuild_buckets_once() {
  const bool rebuilds = options_.rebuilds_buckets && !is_rebuilt_ && !parameters_.empty();
  if (!rebuilds || arrived_.size() != parameters_.size()) return;
  is_rebuilt_ = true;
  std::vector<int64_t> order(arrived_.begin(), arrived_.end());
  const Tensor shared = from_host(order, {static_cast<int64_t>(order.size())}, group_.device());
  const Work work = group_.broadcast(shared, 0);
  work.wait();
  work.join();
  order = shared.to_vector<int64_t>();
  make_buckets(std::vector<size_t>(order.begin(), order.end()));
}

void Reducer::prepare(std::span<const Tensor> outputs, bool is_syncing) {
  check_complete();
  if (!is_syncing) {
    phase_ = Phase::kLocal;
    return;
  }
  if (join_.is_on && phase_ != Phase::kPrepared) {
    static_cast<void>(count_active(true));
    ++join_.steps;
  }
  rebuild_buckets_once();
  find_unused(outputs);
  phase_ = Phase::kPrepared;
}

void Reducer::begin_join(bool divides_by_active) {
  if (join_.is_on) {
    throw Error(BP_INVALID_ARGUMENT,
                "DistributedDataParallel: join() is called while another Join lives; allowed: one");
  }
  join_ = {.is_on = true, .divides_by_active = divides_by_active};
}

// Returns how many ranks have a batch. The stream waits for the number, and the host does not.
Tensor Reducer::count_active(bool has_batch) {
  const NoGradGuard no_grad;
  const Tensor count = full({1}, has_batch ? 1 : 0, BP_F32, group_.device());
  group_.all_reduce(count).join();
  join_.factor = div(static_cast<double>(group_.size()), count);
  return count;
}

bool Reducer::exchange_zeros() {
  check_complete();
  if (count_active(false).item<float>() == 0) return false;
  rebuild_buckets_once();
  phase_ = Phase::kPrepared;
  begin_exchange(false);
  submit_full_buckets();
  return true;
}

// If forward() runs twice before backward(), what either result depends on is used.
void Reducer::find_unused(std::span<const Tensor> outputs) {
  const bool is_first = phase_ != Phase::kPrepared;
  const auto uses =
      options_.finds_unused ? bp::detail::find_leaf_uses(outputs) : bp::detail::LeafUses{};
  for (Parameter& parameter : parameters_) {
    const bool is_unused = parameter.is_told_unused ||
                           (options_.finds_unused && !uses.contains(parameter.tensor.impl()));
    parameter.is_unused = is_unused && (is_first || parameter.is_unused);
  }
}

void Reducer::check_complete() const {
  if (phase_ != Phase::kReducing) return;
  std::string names;
  for (const Parameter& parameter : parameters_) {
    if (!parameter.is_ready) names += (names.empty() ? "'" : ", '") + parameter.name + "'";
  }
  throw Error(BP_INVALID_ARGUMENT,
              "DistributedDataParallel: the last backward() did not end its exchange: no gradient "
              "came for " +
                  names +
                  "; allowed with finds_unused, or with these names in "
                  "unused_parameters");
}

void Reducer::begin_exchange(bool has_batch) {
  phase_ = Phase::kReducing;
  has_batch_ = has_batch;
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.members.size();
  for (Parameter& parameter : parameters_) parameter.is_ready = false;
  if (!is_rebuilt_) arrived_.clear();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!has_batch || parameters_[i].is_unused) mark_ready(i);
  }
}

void Reducer::take_gradient(size_t index) {
  if (phase_ == Phase::kLocal) return;
  if (phase_ == Phase::kIdle) {
    throw Error(BP_INVALID_ARGUMENT,
                "DistributedDataParallel: backward() reached '" + parameters_[index].name +
                    "' without a forward() since the last exchange; allowed: one backward() behind "
                    "forward() or prepare_backward()");
  }
  const NoGradGuard no_grad;
  if (phase_ == Phase::kPrepared) begin_exchange(true);
  if (parameters_[index].is_ready) {
    throw Error(BP_INVALID_ARGUMENT, "DistributedDataParallel: a gradient came for '" +
                                         parameters_[index].name +
                                         "', which counts as unused in this step");
  }
  mark_ready(index);
  submit_full_buckets();
}

void Reducer::mark_ready(size_t index) {
  Parameter& parameter = parameters_[index];
  parameter.is_ready = true;
  if (!is_rebuilt_) arrived_.push_back(index);
  const Tensor grad = has_batch_ ? parameter.tensor.grad() : Tensor();
  if (!grad) {
    parameter.view.fill(0);
  } else if (!is_same_place(grad, parameter.view)) {
    parameter.view.copy_from(grad);
    parameter.tensor.set_grad(parameter.view);
  }
  --buckets_[parameter.bucket].missing;
}

void Reducer::submit_full_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
    Bucket& bucket = buckets_[next_bucket_];
    bucket.finish = options_.comm_hook(group_, bucket.content);
    ++next_bucket_;
  }
  if (next_bucket_ == buckets_.size()) finish_exchange();
}

void Reducer::finish_exchange() {
  phase_ = Phase::kIdle;
  Tensor used;
  Work work;
  if (tracks_unused_) {
    std::vector<int64_t> flags;
    for (const Parameter& parameter : parameters_) {
      flags.push_back(has_batch_ && parameter.tensor.grad() ? 1 : 0);
    }
    used = from_host(flags, {static_cast<int64_t>(flags.size())}, group_.device());
    work = group_.all_reduce(used, Reduction::kMax);
  }
  for (Bucket& bucket : buckets_) {
    std::exchange(bucket.finish, nullptr)();
    if (!join_.divides_by_active) continue;
    const Tensor& data = bucket.content.data;
    data.copy_from(data * join_.factor.to(data.dtype()));
  }
  if (!tracks_unused_) return;
  work.wait();
  work.join();
  const std::vector<int64_t> flags = used.to_vector<int64_t>();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (flags[i] != 0) parameters_[i].tensor.set_grad(parameters_[i].view);
  }
}

std::vector<std::vector<std::string>> Reducer::bucket_names() const {
  std::vector<std::vector<std::string>> names;
  for (const Bucket& bucket : buckets_) {
    names.emplace_back();
    for (const size_t i : bucket.members) names.back().push_back(parameters_[i].name);
  }
  return names;
}

}  // namespace bp::distributed
