#include "backplane/runtime/distributed/ddp.hpp"

#include <algorithm>
#include <numeric>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/buckets.hpp"
#include "runtime/distributed/reducer.hpp"

namespace bp::distributed {
namespace {

void check_names(const Named& parameters, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto is_it = [&](const auto& parameter) { return parameter.first == name; };
    if (std::ranges::any_of(parameters, is_it)) continue;
    throw Error(BP_INVALID_ARGUMENT, "DistributedDataParallel: unused_parameters names '" + name +
                                         "', which is not a parameter of the model");
  }
}

// Divides by the number of ranks before the cast, so that the sum stays in the range of `dtype`.
std::function<void()> cast_hook(const ProcessGroup& group, const GradBucket& bucket,
                                bp_dtype dtype) {
  const Tensor sent = (bucket.data / static_cast<double>(group.size())).to(dtype);
  const Work work = group.all_reduce(sent, Reduction::kSum);
  return [work, sent, data = bucket.data] {
    work.join();
    data.copy_from(sent);
  };
}

}  // namespace

std::function<void()> average_hook(const ProcessGroup& group, const GradBucket& bucket) {
  const Work work = group.all_reduce(bucket.data, Reduction::kAverage);
  return [work] { work.join(); };
}

std::function<void()> bf16_hook(const ProcessGroup& group, const GradBucket& bucket) {
  return cast_hook(group, bucket, BP_BF16);
}

std::function<void()> f16_hook(const ProcessGroup& group, const GradBucket& bucket) {
  return cast_hook(group, bucket, BP_F16);
}

void average_gradients(std::span<const Tensor> parameters, const ProcessGroup& group) {
  const NoGradGuard no_grad;
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (const size_t i : order) {
    if (parameters[i].grad()) continue;
    throw Error(BP_INVALID_ARGUMENT, "average_gradients: " + describe(group) + ": parameter " +
                                         std::to_string(i) + " of the shape " +
                                         to_string(parameters[i].shape()) +
                                         " has no gradient; allowed: a gradient for each one");
  }
  const uint64_t bucket_bytes = DdpOptions().bucket_bytes;
  const auto buckets = assign_buckets(parameters, order, bucket_bytes, bucket_bytes);
  std::vector<Tensor> data;
  std::vector<Work> works;
  for (const auto& members : buckets) {
    std::vector<Tensor> gradients;
    gradients.reserve(members.size());
    for (const size_t i : members) gradients.push_back(parameters[i].grad().flatten());
    data.push_back(cat(gradients, 0));
    works.push_back(group.all_reduce(data.back(), Reduction::kAverage));
  }
  for (size_t b = 0; b < buckets.size(); ++b) {
    works[b].join();
    int64_t offset = 0;
    for (const size_t i : buckets[b]) {
      const Tensor gradient = parameters[i].grad();
      gradient.copy_from(data[b].narrow(0, offset, gradient.numel()).view(gradient.shape()));
      offset += gradient.numel();
    }
  }
}

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<nn::Module> module,
                                                 const ProcessGroup& group,
                                                 const DdpOptions& options)
    : module_(std::move(module)), group_(group) {
  const NoGradGuard no_grad;
  Named parameters = parameters_of(*module_);
  check_names(parameters, options.unused_parameters);
  const std::string difference = first_difference(group_, "parameter", describe(parameters));
  if (!difference.empty()) {
    throw Error(BP_INVALID_ARGUMENT,
                "DistributedDataParallel: the ranks have different models: " + difference);
  }
  const bool has_unused = options.finds_unused || !options.unused_parameters.empty();
  const bool tracks_unused = largest_of(group_, has_unused ? 1 : 0) != 0;
  broadcast_parameters(group_, parameters);
  std::erase_if(parameters, [](const auto& entry) { return !entry.second.requires_grad(); });
  reducer_ = std::make_unique<Reducer>(parameters, group_, options, tracks_unused);
}

DistributedDataParallel::~DistributedDataParallel() = default;

Tensor DistributedDataParallel::forward(const Tensor& x) {
  Tensor y = (*module_)(x);
  if (is_grad_enabled()) reducer_->prepare({&y, 1}, is_syncing_);
  return y;
}

void DistributedDataParallel::prepare_backward(std::span<const Tensor> outputs) {
  if (is_grad_enabled()) reducer_->prepare(outputs, is_syncing_);
}

std::vector<std::vector<std::string>> DistributedDataParallel::bucket_names() const {
  return reducer_->bucket_names();
}

DistributedDataParallel::Join::Join(DistributedDataParallel& ddp, bool divides_by_active)
    : ddp_(ddp) {
  ddp_.reducer_->begin_join(divides_by_active);
}

DistributedDataParallel::Join::~Join() { ddp_.reducer_->end_join(); }

void DistributedDataParallel::Join::finish() {
  const NoGradGuard no_grad;
  Reducer& reducer = *ddp_.reducer_;
  const auto size = static_cast<int64_t>(ddp_.group_.size());
  const auto own = static_cast<int64_t>(ddp_.group_.rank());
  const int64_t steps = reducer.joined_steps();
  while (reducer.exchange_zeros()) {
  }
  const int64_t last = largest_of(ddp_.group_, steps * size + own) % size;
  broadcast_parameters(ddp_.group_, parameters_of(*ddp_.module_), static_cast<uint32_t>(last));
  reducer.end_join();
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(ddp), before_(std::exchange(ddp.is_syncing_, false)) {}

DistributedDataParallel::NoSync::~NoSync() { ddp_.is_syncing_ = before_; }

}  // namespace bp::distributed
