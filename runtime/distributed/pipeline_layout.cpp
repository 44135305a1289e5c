#include <algorithm>
#include <sstream>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/distributed/pipeline.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/state_names.hpp"

namespace bp::distributed {
namespace {

// Returns the lines that each rank gives.
std::vector<std::vector<std::string>> gather_lines(const ProcessGroup& group,
                                                   const std::vector<std::string>& own) {
  std::string text;
  for (const std::string& line : own) text += line + "\n";
  std::vector<std::vector<std::string>> all;
  for (const std::string& theirs : gather_texts(group, text)) {
    std::istringstream lines(theirs);
    std::string line;
    all.emplace_back();
    while (std::getline(lines, line)) all.back().push_back(line);
  }
  return all;
}

std::string line_of(const std::string& name, const Tensor& tensor) {
  std::string line = std::to_string(tensor.dtype()) + " " + std::to_string(tensor.ndim());
  for (const int64_t extent : tensor.shape()) line += " " + std::to_string(extent);
  return line + " " + name;
}

// Makes a tensor as a line describes it.
std::pair<std::string, Tensor> read_line(const std::string& line, Device device) {
  std::istringstream text(line);
  bp_dtype dtype = 0;
  size_t ndim = 0;
  text >> dtype >> ndim;
  std::vector<int64_t> shape(ndim);
  for (int64_t& extent : shape) text >> extent;
  std::string name;
  std::getline(text >> std::ws, name);
  return {name, empty(shape, dtype, device)};
}

}  // namespace

PipelineLayout::PipelineLayout(const nn::Module& module, std::vector<std::string> names,
                               const ProcessGroup& group, bool may_share)
    : group_(group), names_(std::move(names)) {
  std::string all;
  for (const std::string& name : names_) all += "'" + name + "'\n";
  std::string problem = first_difference(group_, "the name", all);
  if (!problem.empty()) throw Error(BP_INVALID_ARGUMENT, "PipelineLayout: " + problem);
  std::vector<std::string> own;
  for (const auto& [name, tensor] : parameters_of(module)) own.push_back(name);
  std::vector<uint32_t> counts(names_.size());
  for (const auto& lines : gather_lines(group_, own)) {
    numbers_.emplace_back();
    for (const std::string& name : lines) {
      const auto place = std::ranges::find(names_, name);
      if (place == names_.end()) {
        throw Error(BP_INVALID_ARGUMENT,
                    "PipelineLayout: rank " + std::to_string(numbers_.size() - 1) +
                        " has the parameter '" + name + "'; allowed: the names of the whole model");
      }
      numbers_.back().push_back(static_cast<size_t>(place - names_.begin()));
      ++counts[numbers_.back().back()];
    }
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 1 || (may_share && counts[i] > 1)) continue;
    throw Error(BP_INVALID_ARGUMENT, "PipelineLayout: " + std::to_string(counts[i]) +
                                         " ranks have the parameter '" + names_[i] +
                                         "'; allowed: one rank" + (may_share ? " or more" : ""));
  }
}

// Gives the entries of this rank the names that they have in a whole state.
TensorMap PipelineLayout::renamed(const TensorMap& state) const {
  const std::vector<size_t>& own = numbers_[group_.rank()];
  TensorMap renamed;
  for (const auto& [name, tensor] : state) {
    const Tensor here = tensor.detach().to(group_.device()).contiguous();
    if (state_kind(name, tensor.shape(), names_, own.size()) == StateKind::kOfParameter) {
      const auto [prefix, number] = split_state_name(name);
      renamed[prefix + "." + std::to_string(own[number])] = here;
    } else {
      renamed[name] = here;
    }
  }
  return renamed;
}

// Puts what `rank` has into the whole state.
void PipelineLayout::take(const TensorMap& received, uint32_t rank, uint32_t root,
                          TensorMap& whole) const {
  const std::vector<size_t>& numbers = numbers_[rank];
  for (const auto& [name, tensor] : received) {
    const bool is_list =
        split_state_name(name).second >= names_.size() &&
        state_kind(name, tensor.shape(), names_, numbers.size()) == StateKind::kOfAllParameters;
    if (!is_list) {
      if (rank == root || !whole.contains(name)) whole[name] = tensor;
      continue;
    }
    Tensor& all = whole[name];
    if (!all) all = zeros({static_cast<int64_t>(names_.size())}, tensor.dtype(), group_.device());
    for (size_t i = 0; i < numbers.size(); ++i) {
      all.narrow(0, static_cast<int64_t>(numbers[i]), 1)
          .copy_from(tensor.narrow(0, static_cast<int64_t>(i), 1));
    }
  }
}

TensorMap PipelineLayout::whole(const TensorMap& state, uint32_t root) const {
  const NoGradGuard no_grad;
  const TensorMap own = renamed(state);
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : own) lines.push_back(line_of(name, tensor));
  const auto all = gather_lines(group_, lines);
  TensorMap whole;
  std::vector<Collective> calls;
  if (group_.rank() != root) {
    for (const auto& [name, tensor] : own) {
      if (tensor.numel() > 0) calls.push_back(Collective::send_to(tensor, root));
    }
    if (!calls.empty()) group_.submit(calls).join();
    return whole;
  }
  for (uint32_t rank = 0; rank < group_.size(); ++rank) {
    TensorMap received = rank == root ? own : TensorMap();
    for (const std::string& line : all[rank]) {
      if (rank == root) break;
      const auto [name, tensor] = read_line(line, group_.device());
      received[name] = tensor;
      if (tensor.numel() > 0) calls.push_back(Collective::receive_from(tensor, rank));
    }
    if (!calls.empty()) group_.submit(calls).join();
    calls.clear();
    take(received, rank, root, whole);
  }
  return whole;
}

TensorMap PipelineLayout::part(const TensorMap& whole) const {
  const NoGradGuard no_grad;
  const std::vector<size_t>& own = numbers_[group_.rank()];
  TensorMap part;
  for (const auto& [name, tensor] : whole) {
    const auto [prefix, number] = split_state_name(name);
    switch (state_kind(name, tensor.shape(), names_, names_.size())) {
      case StateKind::kParameter: {
        const auto place = std::ranges::find(names_, name) - names_.begin();
        if (std::ranges::count(own, static_cast<size_t>(place)) > 0) part[name] = tensor;
        break;
      }
      case StateKind::kOfParameter: {
        const auto place = std::ranges::find(own, number);
        if (place == own.end()) break;
        std::string own_name = prefix + ".";
        own_name += std::to_string(place - own.begin());
        part[own_name] = tensor;
        break;
      }
      case StateKind::kOfAllParameters:
        part[name] = own_elements(tensor);
        break;
      case StateKind::kOther:
        part[name] = tensor;
        break;
    }
  }
  return part;
}

std::vector<Piece> PipelineLayout::place(const std::vector<Piece>& pieces) const {
  return place_state(pieces, names_, numbers_[group_.rank()]);
}

// Returns the elements of a tensor with one for each parameter of the whole model.
Tensor PipelineLayout::own_elements(const Tensor& all) const {
  const std::vector<size_t>& own = numbers_[group_.rank()];
  Tensor list = empty({static_cast<int64_t>(own.size())}, all.dtype(), all.device());
  for (size_t i = 0; i < own.size(); ++i) {
    list.narrow(0, static_cast<int64_t>(i), 1)
        .copy_from(all.narrow(0, static_cast<int64_t>(own[i]), 1));
  }
  return list;
}

}  // namespace bp::distributed
