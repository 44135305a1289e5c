#include "runtime/distributed/shard_unit.hpp"

#include <algorithm>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"
#include "backplane/runtime/ops.hpp"
#include "runtime/distributed/buckets.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::distributed {
namespace {

constexpr size_t kMostReductions = 2;

bool fits(const Tensor& tensor, int64_t count, bp_dtype dtype) {
  return tensor.numel() == count && tensor.dtype() == dtype;
}

int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Tensor FlatPool::take(int64_t count, bp_dtype dtype, Device device) {
  const auto found =
      std::ranges::find_if(tensors_, [&](const Tensor& t) { return fits(t, count, dtype); });
  if (found == tensors_.end()) return empty({count}, dtype, device);
  Tensor tensor = std::move(*found);
  tensors_.erase(found);
  return tensor;
}

void FlatPool::put(Tensor tensor) {
  if (bp::detail::is_only_handle(tensor)) tensors_.push_back(std::move(tensor));
}

Tensor GradientPool::take(int64_t count, bp_dtype dtype, Device device) {
  if (under_way_.size() >= kMostReductions) {
    auto [tensor, work] = std::move(under_way_.front());
    under_way_.pop_front();
    work.join();
    if (fits(tensor, count, dtype)) return tensor;
  }
  return zeros({count}, dtype, device);
}

void GradientPool::put(Tensor tensor, Work work) {
  under_way_.emplace_back(std::move(tensor), std::move(work));
}

void GradientPool::clear() {
  for (const auto& [tensor, work] : under_way_) work.join();
  under_way_.clear();
}

int64_t ShardSettings::rank_count() const {
  const int64_t copies = options.replicas ? options.replicas->size() : 1;
  return copies * group.size();
}

ShardUnit::ShardUnit(std::string name, const Named& parameters, ShardSettings& settings)
    : name_(std::move(name)),
      settings_(settings),
      device_(settings.group.device()),
      shard_device_(settings.options.shard_device.value_or(device_)),
      dtype_(settings.dtype) {
  if (parameters.empty()) return;
  const NoGradGuard no_grad;
  place(parameters);
  make_parts();
}

// Gives each parameter its place. Parts and parameters begin where kernels take a tensor in any of
// the dtypes.
void ShardUnit::place(const Named& parameters) {
  uint32_t least_bits = bp_dtype_bits(dtype_);
  const FsdpOptions& options = settings_.options;
  for (const bp_dtype dtype : {options.compute_dtype, options.gather_dtype, options.reduce_dtype}) {
    least_bits = std::min(least_bits, bp_dtype_bits(dtype));
  }
  const int64_t unit = alignment_bytes(device_) * 8 / int64_t{least_bits};
  int64_t offset = 0;
  for (const auto& [name, tensor] : parameters) {
    parameters_.push_back({.name = name, .tensor = tensor, .offset = offset});
    trainable_count_ += tensor.requires_grad() ? 1 : 0;
    offset += rounded_up(tensor.numel(), unit);
  }
  const int64_t ranks = settings_.group.size();
  part_count_ = rounded_up((offset + ranks - 1) / ranks, unit);
  const int64_t first = part_count_ * settings_.group.rank();
  for (Parameter& parameter : parameters_) {
    const int64_t count = parameter.tensor.numel();
    parameter.begin = std::clamp<int64_t>(first - parameter.offset, 0, count);
    parameter.end = std::clamp<int64_t>(first + part_count_ - parameter.offset, 0, count);
    parameter.shard_offset = std::max<int64_t>(parameter.offset - first, 0);
    if (parameter.begin == parameter.end) parameter.shard_offset = 0;
  }
}

// Copies the values, and lets go of the memory that the parameters had.
void ShardUnit::make_parts() {
  const bp_dtype compute = settings_.options.compute_dtype;
  const bp_dtype gathered = settings_.options.gather_dtype;
  const bool is_exact = compute == dtype_ && gathered == dtype_ && shard_device_ == device_;
  if (settings_.keeps_whole()) {
    whole_ = zeros({part_count_ * settings_.group.size()}, compute, device_);
    if (is_exact) part_ = part_of(whole_);
  }
  if (!part_) part_ = zeros({part_count_}, dtype_, shard_device_);
  for (Parameter& parameter : parameters_) {
    const bool is_trainable = parameter.tensor.requires_grad();
    const int64_t length = parameter.end - parameter.begin;
    parameter.shard = part_.narrow(0, parameter.shard_offset, length).detach();
    if (whole_) view_of(whole_, parameter).copy_from(parameter.tensor.detach().to(gathered));
    if (length > 0 && !(whole_ && is_exact)) {
      const Tensor values = parameter.tensor.detach().contiguous().view({-1});
      parameter.shard.copy_from(values.narrow(0, parameter.begin, length));
    }
    if (is_trainable) parameter.shard.set_requires_grad();
    parameter.absent = bp::detail::make_absent(device_.target(), compute, parameter.tensor.shape());
    parameter.tensor.set_grad({});
    if (!whole_) bp::detail::rebind(parameter.tensor, parameter.absent);
  }
  if (whole_) show(whole_);
  gathered_version_ = part_.version();
}

Tensor ShardUnit::part_of(const Tensor& flat) const {
  return flat.narrow(0, part_count_ * settings_.group.rank(), part_count_);
}

Tensor ShardUnit::view_of(const Tensor& flat, const Parameter& parameter) const {
  const int64_t count = parameter.tensor.numel();
  return flat.narrow(0, parameter.offset, count).view(parameter.tensor.shape());
}

// Makes the parameters views of `flat`.
void ShardUnit::show(const Tensor& flat) {
  for (const Parameter& parameter : parameters_) {
    bp::detail::rebind(parameter.tensor, view_of(flat, parameter));
  }
}

void ShardUnit::submit_gather() {
  if (parameters_.empty() || gather_) return;
  if (whole_ && (!settings_.keeps_whole() || part_.version() == gathered_version_)) return;
  const NoGradGuard no_grad;
  const bp_dtype gathered = settings_.options.gather_dtype;
  const bool is_direct = whole_ && gathered == settings_.options.compute_dtype;
  received_ = is_direct
                  ? whole_
                  : settings_.flats.take(part_count_ * settings_.group.size(), gathered, device_);
  const Tensor sent = part_.detach().to(device_).to(gathered);
  gather_ = settings_.group.all_gather(received_, sent);
  gathered_version_ = part_.version();
}

void ShardUnit::finish_gather() {
  if (!gather_) return;
  const NoGradGuard no_grad;
  gather_->join();
  gather_.reset();
  const bp_dtype compute = settings_.options.compute_dtype;
  if (settings_.keeps_whole()) {
    if (received_.impl() != whole_.impl()) {
      whole_.copy_from(received_);
      settings_.flats.put(std::exchange(received_, {}));
    }
    received_ = {};
    return;
  }
  whole_ = std::exchange(received_, {});
  if (whole_.dtype() != compute) {
    Tensor cast = settings_.flats.take(whole_.numel(), compute, device_);
    cast.copy_from(whole_);
    settings_.flats.put(std::exchange(whole_, std::move(cast)));
  }
  // The same values as in the forward() before count as the same write, and others as another one.
  whole_.impl()->storage->version.store(gathered_version_, std::memory_order_relaxed);
  show(whole_);
}

void ShardUnit::reshard() {
  if (settings_.keeps_whole()) return;
  finish_gather();  // The memory is used again only behind the gather.
  if (!whole_) return;
  for (const Parameter& parameter : parameters_) {
    bp::detail::rebind(parameter.tensor, parameter.absent);
  }
  settings_.flats.put(std::exchange(whole_, {}));
}

void ShardUnit::take_gradient(size_t i) {
  const NoGradGuard no_grad;
  const FsdpOptions& options = settings_.options;
  if (!gradient_) {
    gradient_ = settings_.gradients.take(part_count_ * settings_.group.size(), options.reduce_dtype,
                                         device_);
  }
  Parameter& parameter = parameters_[i];
  Tensor gradient = parameter.tensor.grad();
  parameter.tensor.set_grad({});
  if (settings_.divides_first()) {
    gradient = gradient / static_cast<double>(settings_.rank_count());
  }
  const Tensor place = view_of(gradient_, parameter);
  if (parameter.has_gradient) {
    add_out(place, place, gradient.to(options.reduce_dtype));
  } else {
    place.copy_from(gradient);
  }
  parameter.has_gradient = true;
}

void ShardUnit::submit_reduce() {
  const NoGradGuard no_grad;
  const FsdpOptions& options = settings_.options;
  const int64_t count = part_count_ * settings_.group.size();
  if (!gradient_) gradient_ = settings_.gradients.take(count, options.reduce_dtype, device_);
  for (Parameter& parameter : parameters_) {
    if (!parameter.has_gradient) view_of(gradient_, parameter).fill(0);
    parameter.has_gradient = false;
  }
  const Reduction reduction = settings_.divides_first() ? Reduction::kSum : Reduction::kAverage;
  reduced_ = empty({part_count_}, options.reduce_dtype, device_);
  reduce_ = settings_.grad_group.reduce_scatter(reduced_, gradient_, reduction);
  if (options.replicas) {
    const StreamGuard behind(settings_.grad_group.stream());
    reduce_ = options.replicas->all_reduce(reduced_, reduction);
  }
  if (options.stage == 1) return;  // Gradients stay whole.
  settings_.gradients.put(std::exchange(gradient_, {}), *reduce_);
}

void ShardUnit::finish_reduce() {
  if (!reduce_) return;
  const NoGradGuard no_grad;
  reduce_->join();
  reduce_.reset();
  const Tensor average = std::exchange(reduced_, {}).to(dtype_).to(shard_device_);
  for (const Parameter& parameter : parameters_) {
    if (!parameter.shard.requires_grad()) continue;
    const Tensor own = average.narrow(0, parameter.shard_offset, parameter.end - parameter.begin);
    const Tensor before = parameter.shard.grad();
    if (before) {
      add_out(before, before, own);
    } else {
      parameter.shard.set_grad(own);
    }
  }
}

void ShardUnit::drop_gradients() {
  for (Parameter& parameter : parameters_) parameter.has_gradient = false;
  // A reduction that is under way still reads the tensor.
  if (settings_.options.stage != 1 || reduce_) gradient_ = {};
  reduce_.reset();
  reduced_ = {};
}

std::vector<Tensor> ShardUnit::gather(const std::vector<Tensor>& pieces) const {
  if (pieces.empty()) return {};
  const NoGradGuard no_grad;
  const bp_dtype dtype = pieces[0].dtype();
  const Tensor part = zeros({part_count_}, dtype, device_);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const int64_t length = parameter.end - parameter.begin;
    if (length > 0) part.narrow(0, parameter.shard_offset, length).copy_from(pieces[i].detach());
  }
  const Tensor flat = empty({part_count_ * settings_.group.size()}, dtype, device_);
  settings_.group.all_gather(flat, part).join();
  std::vector<Tensor> whole;
  for (const Parameter& parameter : parameters_) whole.push_back(view_of(flat, parameter));
  return whole;
}

Tensor ShardUnit::piece(size_t i, const Tensor& whole) const {
  const NoGradGuard no_grad;
  const Parameter& parameter = parameters_[i];
  const Tensor flat = whole.detach().to(shard_device_).contiguous().view({-1});
  return flat.narrow(0, parameter.begin, parameter.end - parameter.begin).clone();
}

void ShardUnit::set_values(size_t i, const Tensor& whole) {
  const NoGradGuard no_grad;
  const Parameter& parameter = parameters_[i];
  if (parameter.end > parameter.begin) parameter.shard.detach().copy_from(piece(i, whole));
  if (!settings_.keeps_whole()) return;
  view_of(whole_, parameter).copy_from(whole.detach().to(settings_.options.gather_dtype));
  gathered_version_ = part_.version();
}

}  // namespace bp::distributed
