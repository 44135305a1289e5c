#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/distributed/tensor_parallel.hpp"
#include "backplane/runtime/error.hpp"
#include "backplane/runtime/optim.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/state_names.hpp"

namespace bp::distributed {

ParallelLayout::ParallelLayout(const nn::Module& module, const ProcessGroup& group)
    : group_(group) {
  std::map<std::string, int64_t> axes;
  const auto note = [&](const std::string& prefix, const nn::Module& layer) {
    const auto* parallel = dynamic_cast<const ParallelModule*>(&layer);
    if (parallel == nullptr) return;
    for (const auto& [name, axis] : parallel->cut_axes()) axes[prefix + name] = axis;
  };
  note("", module);
  for (const auto& [name, layer] : module.named_modules()) note(name + ".", *layer);
  std::map<const void*, Cut> by_tensor;
  for (const auto& [name, tensor] : module.named_parameters()) {
    Cut cut{-1, 0};
    if (const auto axis = axes.find(name); axis != axes.end()) {
      const Tensor extent = from_host<int64_t>({tensor.shape(axis->second)}, {1}, group.device());
      group.all_reduce(extent, Reduction::kSum).join();
      cut = {axis->second, extent.item<int64_t>()};
    }
    by_name_[name] = cut;
    by_tensor.emplace(tensor.impl(), cut);
  }
  for (const Tensor& tensor : module.parameters()) {
    by_number_.push_back(by_tensor.at(tensor.impl()));
  }
}

ParallelLayout::Cut ParallelLayout::cut_of(const std::string& name) const {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
  const size_t number = split_state_name(name).second;
  return number < by_number_.size() ? by_number_[number] : Cut{-1, 0};
}

// Gathers the parts behind each other along axis 0, where parts are contiguous.
Tensor ParallelLayout::join(const Tensor& part, const Cut& cut) const {
  const Tensor own = part.detach().to(group_.device()).transpose(0, cut.axis).contiguous();
  std::vector<int64_t> shape = own.shape().to_vector();
  const uint64_t row = static_cast<uint64_t>(own.numel() / shape[0]);
  shape[0] = cut.extent;
  const Tensor all = empty(shape, own.dtype(), group_.device());
  Collective call = Collective::all_gather(all, own);
  const auto extent = static_cast<uint64_t>(cut.extent);
  const uint64_t size = group_.size();
  for (uint64_t rank = 0; rank < size; ++rank) {
    call.counts.push_back((extent * (rank + 1) / size - extent * rank / size) * row);
  }
  group_.submit(call).join();
  return all.transpose(0, cut.axis).contiguous();
}

TensorMap ParallelLayout::whole(const TensorMap& state) const {
  const NoGradGuard no_grad;
  TensorMap whole;
  for (const auto& [name, tensor] : state) {
    const Cut cut = cut_of(name);
    whole[name] = cut.axis < 0 ? tensor : join(tensor, cut);
  }
  return whole;
}

TensorMap ParallelLayout::part(const TensorMap& whole) const {
  const NoGradGuard no_grad;
  TensorMap parts;
  for (const auto& [name, tensor] : whole) {
    const Cut cut = cut_of(name);
    if (cut.axis < 0) {
      parts[name] = tensor;
      continue;
    }
    if (cut.axis >= tensor.ndim() || tensor.shape(cut.axis) != cut.extent) {
      throw Error(BP_INVALID_ARGUMENT, "ParallelLayout: " + describe(group_) + ": '" + name +
                                           "' has the shape " + to_string(tensor.shape()) +
                                           "; allowed: the extent " + std::to_string(cut.extent) +
                                           " along axis " + std::to_string(cut.axis));
    }
    const Part part = part_of(cut.extent, group_);
    parts[name] = tensor.narrow(cut.axis, part.begin, part.count()).clone();
  }
  return parts;
}

std::vector<Piece> ParallelLayout::place(std::vector<Piece> pieces) const {
  for (Piece& piece : pieces) {
    const Cut cut = cut_of(piece.name);
    if (cut.axis < 0) continue;
    const auto axis = static_cast<size_t>(cut.axis);
    const Part part = part_of(cut.extent, group_);
    if (axis >= piece.shape.size() || piece.shape[axis] != part.count()) {
      throw Error(BP_INVALID_ARGUMENT, "ParallelLayout: " + describe(group_) + ": '" + piece.name +
                                           "' has the shape " + to_string(piece.shape) +
                                           "; allowed: the extent " + std::to_string(part.count()) +
                                           " along axis " + std::to_string(cut.axis));
    }
    piece.shape[axis] = cut.extent;
    if (piece.tensor.numel() > 0) piece.offsets[axis] += part.begin;
  }
  return pieces;
}

Tensor ParallelLayout::squared_grad_norm(const std::vector<Tensor>& parameters) const {
  if (parameters.size() != by_number_.size()) {
    throw Error(BP_INVALID_ARGUMENT, "ParallelLayout: " + describe(group_) + ": there are " +
                                         std::to_string(parameters.size()) +
                                         " parameters; allowed: the " +
                                         std::to_string(by_number_.size()) + " of the model");
  }
  const NoGradGuard no_grad;
  std::vector<Tensor> cut, whole;
  for (size_t i = 0; i < parameters.size(); ++i) {
    (by_number_[i].axis < 0 ? whole : cut).push_back(parameters[i]);
  }
  Tensor others = bp::squared_grad_norm(whole);
  const Tensor total = bp::squared_grad_norm(cut);
  if (!total) return others;
  group_.all_reduce(total, Reduction::kSum).join();
  return others ? total + others : total;
}

}  // namespace bp::distributed
