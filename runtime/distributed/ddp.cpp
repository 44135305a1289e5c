#include "backplane/runtime/distributed/ddp.hpp"

#include <algorithm>
#include <sstream>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/reducer.hpp"

namespace bp::distributed {
namespace {

using Named = Reducer::Named;

// Submits the broadcast, and returns what rank `root` has.
std::vector<int64_t> broadcast_numbers(const ProcessGroup& group, const std::vector<int64_t>& own,
                                       uint32_t root) {
  const Tensor numbers = from_host(own, {static_cast<int64_t>(own.size())}, group.device());
  const Work work = group.broadcast(numbers, root);
  work.wait();
  work.join();
  return numbers.to_vector<int64_t>();
}

std::string broadcast_text(const ProcessGroup& group, const std::string& own, uint32_t root) {
  const int64_t length = broadcast_numbers(group, {static_cast<int64_t>(own.size())}, root)[0];
  std::vector<uint8_t> bytes(own.begin(), own.end());
  bytes.resize(static_cast<size_t>(length));
  const Tensor text = from_host(bytes, {length}, group.device());
  const Work work = group.broadcast(text, root);
  work.wait();
  work.join();
  bytes = text.to_vector<uint8_t>();
  return {bytes.begin(), bytes.end()};
}

// Returns a line for each parameter.
std::string describe(const Named& parameters) {
  std::string text;
  for (const auto& [name, tensor] : parameters) {
    text += "'" + name + "' " + dtype_text(tensor.dtype()) + " " + to_string(tensor.shape()) +
            (tensor.requires_grad() ? "\n" : ", without gradient\n");
  }
  return text;
}

// Returns the first difference between the parameters of this rank and of rank 0; "" if there is
// none.
std::string difference(const std::string& own, const std::string& of_first, uint32_t rank) {
  std::istringstream ours(own), theirs(of_first);
  for (size_t i = 0;; ++i) {
    std::string our_line, their_line;
    const bool has_ours = static_cast<bool>(std::getline(ours, our_line));
    const bool has_theirs = static_cast<bool>(std::getline(theirs, their_line));
    if (!has_ours && !has_theirs) return "";
    if (our_line == their_line) continue;
    return "parameter " + std::to_string(i) + " is " + (has_ours ? our_line : "missing") +
           " on rank " + std::to_string(rank) + " and " + (has_theirs ? their_line : "missing") +
           " on rank 0";
  }
}

// What a rank tells the others about its parameters.
struct Told {
  int64_t differs;
  int64_t has_unused;
};

std::vector<Told> gather(const ProcessGroup& group, const Told& own) {
  const std::vector<int64_t> numbers{own.differs, own.has_unused};
  const Tensor all = empty({int64_t{group.size()}, 2}, BP_I64, group.device());
  const Work work = group.all_gather(all, from_host(numbers, {2}, group.device()));
  work.wait();
  work.join();
  const std::vector<int64_t> values = all.to_vector<int64_t>();
  std::vector<Told> told;
  for (size_t i = 0; i < values.size(); i += 2) told.push_back({values[i], values[i + 1]});
  return told;
}

// Throws on all ranks if the parameters of any rank differ from those of rank 0. Returns whether
// any rank has unused parameters.
bool compare_with_others(const ProcessGroup& group, const Named& parameters, bool has_unused) {
  const std::string own = describe(parameters);
  const std::string problem = difference(own, broadcast_text(group, own, 0), group.rank());
  const auto told = gather(group, {problem.empty() ? 0 : 1, has_unused ? 1 : 0});
  const auto first = std::ranges::find_if(told, [](const Told& t) { return t.differs != 0; });
  if (first != told.end()) {
    const auto rank = static_cast<uint32_t>(first - told.begin());
    throw Error(BP_INVALID_ARGUMENT, "DistributedDataParallel: the ranks have different models: " +
                                         broadcast_text(group, problem, rank));
  }
  return std::ranges::any_of(told, [](const Told& t) { return t.has_unused != 0; });
}

void broadcast_parameters(const ProcessGroup& group, const Named& parameters) {
  std::vector<Tensor> copies;
  std::vector<Collective> calls;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.numel() == 0) continue;
    copies.push_back(tensor.detach().contiguous());
    calls.push_back(Collective::broadcast(copies.back(), 0));
  }
  if (calls.empty()) return;
  group.submit(calls).join();
  size_t next = 0;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.numel() == 0) continue;
    const Tensor& copy = copies[next++];
    if (!tensor.is_contiguous()) tensor.detach().copy_from(copy);
  }
}

// Returns each parameter once, under its first name, also if several layers share it.
Named parameters_of(const nn::Module& module) {
  Named parameters;
  for (auto& entry : module.named_parameters()) {
    const auto is_it = [&](const auto& other) {
      return other.second.impl() == entry.second.impl();
    };
    if (std::ranges::none_of(parameters, is_it)) parameters.push_back(std::move(entry));
  }
  return parameters;
}

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

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<nn::Module> module,
                                                 const ProcessGroup& group,
                                                 const DdpOptions& options)
    : module_(std::move(module)), group_(group) {
  const NoGradGuard no_grad;
  Named parameters = parameters_of(*module_);
  check_names(parameters, options.unused_parameters);
  const bool has_unused = options.finds_unused || !options.unused_parameters.empty();
  const bool tracks_unused = compare_with_others(group_, parameters, has_unused);
  broadcast_parameters(group_, parameters);
  std::erase_if(parameters, [](const auto& entry) { return !entry.second.requires_grad(); });
  reducer_ = std::make_unique<Reducer>(parameters, group_, options, tracks_unused);
}

DistributedDataParallel::~DistributedDataParallel() = default;

Tensor DistributedDataParallel::forward(const Tensor& x) {
  Tensor y = module_->forward(x);
  if (is_grad_enabled()) reducer_->prepare({&y, 1}, is_syncing_);
  return y;
}

void DistributedDataParallel::prepare_backward(std::span<const Tensor> outputs) {
  if (is_grad_enabled()) reducer_->prepare(outputs, is_syncing_);
}

std::vector<std::vector<std::string>> DistributedDataParallel::bucket_names() const {
  return reducer_->bucket_names();
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp)
    : ddp_(ddp), before_(std::exchange(ddp.is_syncing_, false)) {}

DistributedDataParallel::NoSync::~NoSync() { ddp_.is_syncing_ = before_; }

}  // namespace bp::distributed
