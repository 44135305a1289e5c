// The states of a FullyShardedDataParallel and of its optimizer: whole, and as pieces.
#include <map>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/distributed/fsdp.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/distributed/fsdp_layout.hpp"
#include "runtime/distributed/sharder.hpp"
#include "runtime/distributed/state_names.hpp"
#include "runtime/nn/state.hpp"

namespace bp::distributed {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(BP_INVALID_ARGUMENT, "FullyShardedDataParallel: " + what);
}

void check_shard(const std::string& name, const Tensor& tensor, const Tensor& shard) {
  if (tensor.shape() == shard.shape()) return;
  fail("the state of the optimizer has '" + name + "' of the shape " + to_string(tensor.shape()) +
       "; allowed: " + to_string(shard.shape()) + ", as the shard of this parameter");
}

}  // namespace

// Returns the whole tensors by the number of their parameter, for pieces by the same number.
std::map<size_t, Tensor> FullyShardedDataParallel::gather(const std::map<size_t, Tensor>& pieces,
                                                          Device where, uint32_t root) const {
  if (root >= group().size()) {
    fail("the root is rank " + std::to_string(root) + "; allowed: below the size of the group, " +
         std::to_string(group().size()));
  }
  std::map<size_t, Tensor> whole;
  for (size_t u = 0; u < sharder_->units().size(); ++u) {
    const ShardUnit& unit = *sharder_->units()[u];
    const std::vector<size_t> members = layout_->members_of(u, unit.parameter_count());
    std::vector<Tensor> own;
    own.reserve(members.size());
    for (const size_t i : members) own.push_back(pieces.at(i));
    const std::vector<Tensor> all = unit.gather(own);
    for (size_t i = 0; i < members.size() && group().rank() == root; ++i) {
      whole[members[i]] = where == group().device() ? all[i].clone() : all[i].to(where);
    }
  }
  return whole;
}

TensorMap FullyShardedDataParallel::state(Device where, uint32_t root) const {
  const NoGradGuard no_grad;
  const std::vector<Tensor> shards = parameters();
  std::map<size_t, Tensor> pieces;
  for (size_t i = 0; i < shards.size(); ++i) pieces[i] = shards[i];
  const std::map<size_t, Tensor> whole = gather(pieces, where, root);
  TensorMap state;
  if (whole.empty()) return state;
  for (const auto& [name, i] : layout_->names) state[name] = whole.at(i);
  return state;
}

void FullyShardedDataParallel::load_state(const TensorMap& state) {
  const auto& units = sharder_->units();
  std::vector<nn::Expected> expected;
  for (const auto& [name, i] : layout_->names) {
    const auto& [unit, index] = layout_->places[i];
    expected.push_back(
        {name, units[unit]->parameter(index).shape().to_vector(), sharder_->settings().dtype});
  }
  nn::check_state(expected, state);
  for (const auto& [name, i] : layout_->names) {
    const auto& [unit, index] = layout_->places[i];
    units[unit]->set_values(index, state.at(name));
  }
}

TensorMap FullyShardedDataParallel::whole_optimizer_state(const TensorMap& sharded, Device where,
                                                          uint32_t root) const {
  const NoGradGuard no_grad;
  const std::vector<Tensor> shards = parameters();
  std::map<std::string, std::map<size_t, Tensor>> kinds;
  TensorMap whole;
  for (const auto& [name, tensor] : sharded) {
    const auto [kind, number] = split_state_name(name);
    if (number >= shards.size()) {
      if (group().rank() == root) whole[name] = tensor.to(where);
      continue;
    }
    check_shard(name, tensor, shards[number]);
    kinds[kind][number] = tensor;
  }
  for (const auto& [kind, pieces] : kinds) {
    if (pieces.size() != shards.size()) {
      fail("the state of the optimizer has '" + kind + "' for " + std::to_string(pieces.size()) +
           " parameters; allowed: all " + std::to_string(shards.size()));
    }
    for (const auto& [i, tensor] : gather(pieces, where, root)) {
      whole[kind + "." + std::to_string(i)] = tensor;
    }
  }
  return whole;
}

TensorMap FullyShardedDataParallel::sharded_optimizer_state(const TensorMap& whole) const {
  const auto& units = sharder_->units();
  TensorMap sharded;
  for (const auto& [name, tensor] : whole) {
    const size_t number = split_state_name(name).second;
    if (number >= layout_->places.size()) {
      sharded[name] = tensor;
      continue;
    }
    const auto& [unit, index] = layout_->places[number];
    const IntList shape = units[unit]->parameter(index).shape();
    if (!(tensor.shape() == shape)) {
      fail("the state of the optimizer has '" + name + "' of the shape " +
           to_string(tensor.shape()) + "; allowed: " + to_string(shape) + ", as the parameter");
    }
    sharded[name] = units[unit]->piece(index, tensor);
  }
  return sharded;
}

std::vector<Piece> FullyShardedDataParallel::pieces_of_parameter(const std::string& name,
                                                                 size_t number,
                                                                 const Tensor& shard) const {
  const auto& [unit, index] = layout_->places[number];
  const auto [begin, end] = sharder_->units()[unit]->range(index);
  const std::vector<int64_t> shape = sharder_->units()[unit]->parameter(index).shape().to_vector();
  return pieces_of_range(name, shape, begin, end, shard);
}

std::vector<Piece> FullyShardedDataParallel::pieces() const {
  const std::vector<Tensor> shards = parameters();
  std::vector<Piece> pieces;
  for (const auto& [name, i] : layout_->names) {
    append_pieces(pieces, "", pieces_of_parameter(name, i, shards[i]));
  }
  return pieces;
}

std::vector<Piece> FullyShardedDataParallel::optimizer_pieces(const TensorMap& sharded) const {
  const std::vector<Tensor> shards = parameters();
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : sharded) {
    const size_t number = split_state_name(name).second;
    if (number >= shards.size()) {
      append_pieces(pieces, "", pieces_of({{name, tensor}}));
      continue;
    }
    check_shard(name, tensor, shards[number]);
    append_pieces(pieces, "", pieces_of_parameter(name, number, tensor));
  }
  return pieces;
}

}  // namespace bp::distributed
