#include "backplane/shell/resolved.hpp"

#include <algorithm>
#include <utility>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/kernel_choice.hpp"
#include "backplane/shell/program_bytes.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp {

uint64_t rounded_for_workspace(uint64_t size_bytes) {
  constexpr uint64_t kUnit = kWorkspaceAlignmentBytes;
  return (size_bytes + kUnit - 1) / kUnit * kUnit;
}

void CompileRequest::begin_step() const {
  if (should_stop == nullptr || should_stop(user_data) == 0) return;
  throw StatusError(BP_ABORTED, std::string(call) + ": should_stop() stopped it");
}

CompileRequest::CompileRequest(const std::vector<uint64_t>& words, size_t& position)
    : flags(static_cast<bp_launch_flags>(next_word(words, position))),
      makes_plans(next_word(words, position) != 0) {}

const bp_kernel& kernel_for_node(const CompilerBackend& backend, bp_device* device,
                                 bp_launch_flags flags, const Program& program, size_t index,
                                 const std::string& call) {
  const ProgramNode& node = program.nodes[index];
  std::string reason;
  const bp_kernel* const kernel =
      choose_kernel(backend, device, flags, node.frame, node.is_in_place(), reason);
  if (kernel != nullptr) return *kernel;
  throw StatusError(BP_UNSUPPORTED, call + ": node " + std::to_string(index) + ": " +
                                        std::string(node.frame.name()) + ": " + reason);
}

std::vector<uint64_t> sizes_of_values(const Program& program) {
  std::vector<uint64_t> sizes_bytes;
  for (const ProgramValue& value : program.values) sizes_bytes.push_back(value.size_bytes());
  return sizes_bytes;
}

Placement place_temporaries(const Program& program, std::span<const uint64_t> sizes_bytes) {
  struct Life {
    size_t first, last;
    uint64_t begin = 0, end = 0;
  };
  Placement result;
  result.offsets.resize(program.values.size());
  std::vector<Life> lives;
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (program.values[value].role != BP_VALUE_TEMPORARY) continue;
    Life life{program.nodes.size(), 0};
    for (size_t n = 0; n < program.nodes.size(); ++n) {
      if (std::ranges::count(program.nodes[n].values, value) == 0) continue;
      life.first = std::min(life.first, n);
      life.last = n;
    }
    const uint64_t size_bytes = rounded_for_workspace(sizes_bytes[value]);
    std::vector<Life> others;
    for (const Life& other : lives) {
      if (other.first <= life.last && life.first <= other.last) others.push_back(other);
    }
    std::ranges::sort(others, {}, &Life::begin);
    for (const Life& other : others) {
      if (life.begin + size_bytes <= other.begin) break;
      life.begin = std::max(life.begin, other.end);
    }
    life.end = life.begin + size_bytes;
    result.offsets[value] = life.begin;
    result.size_bytes = std::max(result.size_bytes, life.end);
    lives.push_back(life);
  }
  return result;
}

Resolved::Resolved(const CompilerBackend& backend, bp_device* device, const CompileRequest& request,
                   Program program, ExtentNumbers numbers, const Placement& most)
    : program_(std::move(program)), numbers_(std::move(numbers)) {
  for (size_t i = 0; i < program_.nodes.size(); ++i) choose(backend, device, request, i);
  placement_ = place_temporaries(program_, sizes_of_values(program_));
  // Smaller temporaries can need more in all, since each takes the first gap that it fits into.
  if (placement_.size_bytes > most.size_bytes) placement_ = most;
  place_copies(!numbers_.empty());
}

// Gives the copies of inputs places behind all others. At other extents a kernel may not work in
// place, so a program with ranges has room for each copy that a node might need.
void Resolved::place_copies(bool has_ranges) {
  std::vector<const bp_kernel*> kernels;
  for (const Node& node : nodes_) kernels.push_back(node.kernel);
  uint64_t end = 0;
  for (const bp_program_alias& names : program_.aliases) {
    Alias& alias = aliases_.emplace_back();
    alias.use = bp::use_of_alias(program_, kernels, names);
    const bool may_copy = alias.use.copies_input ||
                          (has_ranges && bp::use_of_alias(program_, {}, names).copies_input);
    if (!may_copy) continue;
    const Extent extent = extent_of(program_.values[names.input].tensor());
    alias.size_bytes = static_cast<uint64_t>(extent.end - extent.begin);
    alias.offset = end;
    end += rounded_for_workspace(alias.size_bytes);
  }
  copies_bytes_ = end;
}

void Resolved::choose(const CompilerBackend& backend, bp_device* device,
                      const CompileRequest& request, size_t index) {
  request.begin_step();
  Node& node = nodes_.emplace_back();
  node.kernel = &kernel_for_node(backend, device, request.flags, program_, index, request.call);
  node.frame = program_.nodes[index].frame.fitted(node.kernel->args_size_bytes);
  if (node.kernel->workspace_size == nullptr) return;
  uint64_t required = 0, preferred = 0;
  const bp_status status = node.kernel->workspace_size(node.kernel, device, request.flags,
                                                       node.frame.data(), &required, &preferred);
  if (status != BP_OK)
    throw StatusError(status, std::string(request.call) + ": workspace_size failed");
  node.workspace_bytes = std::max(required, preferred);
}

bp_kernel_flags Resolved::kernel_flags() const {
  bp_kernel_flags flags = ~bp_kernel_flags{0};
  for (const Node& node : nodes_) flags &= node.kernel->flags;
  return flags;
}

uint64_t Resolved::workspace_bytes() const {
  uint64_t scratch_bytes = 0;
  for (const Node& node : nodes_) {
    scratch_bytes = std::max(scratch_bytes, rounded_for_workspace(node.workspace_bytes));
  }
  return placement_.size_bytes + copies_bytes_ + scratch_bytes;
}

std::unique_ptr<Resolved::Frames> Resolved::take_frames() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Frames> frames = std::move(idle_.back());
      idle_.pop_back();
      return frames;
    }
  }
  auto frames = std::make_unique<Frames>();
  for (const Node& node : nodes_) frames->push_back(node.frame.clone());
  return frames;
}

void Resolved::give_frames(std::unique_ptr<Frames> frames) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(frames));
}

}  // namespace bp
