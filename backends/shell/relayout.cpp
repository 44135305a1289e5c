#include "backplane/shell/relayout.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "backplane/ops.h"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/kernel_choice.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

bool is_laid_out(const ProgramNode& node, size_t i) {
  return node.frame.tensors()[i] != nullptr && node.frame.tensors()[i]->layout != nullptr;
}

// Returns the frame of the node with tensors by strides where `copied` says so.
OwnedFrame with_strides(const ProgramNode& node, const std::vector<bool>& copied) {
  OwnedFrame frame = node.frame.clone();
  for (size_t i = 0; i < copied.size(); ++i) {
    if (copied[i]) frame.tensors()[i]->layout = nullptr;
  }
  return frame;
}

// Returns the frame of a copy between a value and its copy by strides.
OwnedFrame frame_of_copy(const ProgramValue& value, bool is_read) {
  const std::vector<int64_t> strides = row_major_strides(value.shape);
  const bp_tensor laid_out = value.tensor();
  bp_tensor plain = laid_out;
  plain.layout = nullptr;
  plain.strides = strides.data();
  const bp_copy_args args{.struct_size = sizeof(args),
                          .flags = 0,
                          .x = is_read ? &laid_out : &plain,
                          .y = is_read ? &plain : &laid_out};
  return OwnedFrame(BP_OP_COPY, &args, sizeof(args), true);
}

// What a node does with a value of which it gets a copy.
struct Accesses {
  bool reads = false, writes = false;
};

std::map<uint32_t, Accesses> accesses_of_copied(const ProgramNode& node,
                                                const std::vector<bool>& copied) {
  std::map<uint32_t, Accesses> accesses;
  for (size_t i = 0; i < copied.size(); ++i) {
    if (!copied[i]) continue;
    Accesses& its = accesses[node.values[i]];
    its.reads = its.reads || node.frame.arguments()[i].is_read;
    its.writes = its.writes || node.frame.arguments()[i].is_written;
  }
  return accesses;
}

class NodeChooser {
 public:
  NodeChooser(const CompilerBackend& backend, bp_device* device, bp_launch_flags flags,
              std::span<const Program> points, size_t node)
      : backend_(backend), device_(device), flags_(flags), points_(points), index_(node) {}

  NodeChoice choose() const {
    const ProgramNode& node = points_[0].nodes[index_];
    NodeChoice choice{std::vector<bool>(node.values.size()), ""};
    choice.reason = refusal(choice.copied);
    if (choice.reason.empty()) return choice;
    for (const std::vector<bool>& copied : candidates(node)) {
      if (refusal(copied).empty() && has_copies(node, copied)) return {copied, ""};
    }
    return choice;
  }

 private:
  // Returns why no kernel takes the node in one of the points, or "".
  std::string refusal(const std::vector<bool>& copied) const {
    for (const Program& point : points_) {
      const ProgramNode& node = point.nodes[index_];
      std::string reason;
      if (choose_kernel(backend_, device_, flags_, with_strides(node, copied), node.is_in_place(),
                        reason) == nullptr) {
        return reason;
      }
    }
    return "";
  }

  // Returns whether the device can make the copies.
  bool has_copies(const ProgramNode& node, const std::vector<bool>& copied) const {
    const auto can_copy = [&](uint32_t value, bool is_read) {
      std::string reason;
      const OwnedFrame frame = frame_of_copy(points_[0].values[value], is_read);
      return choose_kernel(backend_, device_, flags_, frame, false, reason) != nullptr;
    };
    return std::ranges::all_of(accesses_of_copied(node, copied), [&](const auto& access) {
      return (!access.second.reads || can_copy(access.first, true)) &&
             (!access.second.writes || can_copy(access.first, false));
    });
  }

  // Returns the sets of tensors that may be copied: for each kernel those that it does not claim,
  // then all. A small set comes first.
  std::vector<std::vector<bool>> candidates(const ProgramNode& node) const {
    std::vector<std::vector<bool>> sets;
    const auto add = [&](std::vector<bool> set) {
      // All tensors of a value are in one place.
      for (size_t i = 0; i < set.size(); ++i) {
        for (size_t k = 0; k < set.size() && set[i]; ++k) {
          if (node.values[k] == node.values[i]) set[k] = true;
        }
      }
      if (std::ranges::count(set, true) != 0) sets.push_back(std::move(set));
    };
    std::vector<bool> all(node.values.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = is_laid_out(node, i);
    for (const bp_kernel* kernel : backend_.kernels) {
      if (kernel->op != node.frame.op()) continue;
      std::vector<bool> set = all;
      for (size_t i = 0; i < set.size(); ++i) {
        const FrameArgument& argument = node.frame.arguments()[i];
        set[i] = all[i] && !claims_layout(*kernel, argument, *node.frame.tensors()[i]);
      }
      add(std::move(set));
    }
    std::ranges::stable_sort(
        sets, {}, [](const std::vector<bool>& set) { return std::ranges::count(set, true); });
    add(all);
    return sets;
  }

  const CompilerBackend& backend_;
  bp_device* const device_;
  const bp_launch_flags flags_;
  const std::span<const Program> points_;
  const size_t index_;
};

// Adds nodes to a program.
class Rewriter {
 public:
  explicit Rewriter(Program& program) : program_(program) {}

  void add(ProgramNode node, const std::vector<bool>& copied) {
    const std::map<uint32_t, Accesses> accesses = accesses_of_copied(node, copied);
    std::map<uint32_t, uint32_t> copies;
    for (const auto& [value, access] : accesses) {
      copies[value] = add_copy_of(value);
      if (access.reads) add_copy(value, copies[value], true);
    }
    node.frame = with_strides(node, copied);
    std::vector<uint32_t> values = node.values;
    for (size_t i = 0; i < copied.size(); ++i) {
      if (copied[i]) node.values[i] = copies[values[i]];
    }
    nodes_.push_back(std::move(node));
    for (const auto& [value, access] : accesses) {
      if (access.writes) add_copy(value, copies[value], false);
    }
  }

  void finish() { program_.nodes = std::move(nodes_); }

 private:
  uint32_t add_copy_of(uint32_t value) {
    ProgramValue copy;
    copy.role = BP_VALUE_TEMPORARY;
    copy.dtype = program_.values[value].dtype;
    copy.shape = program_.values[value].shape;
    copy.strides = row_major_strides(copy.shape);
    program_.values.push_back(std::move(copy));
    return static_cast<uint32_t>(program_.values.size() - 1);
  }

  void add_copy(uint32_t value, uint32_t copy, bool is_read) {
    ProgramNode& node = nodes_.emplace_back();
    node.frame = frame_of_copy(program_.values[value], is_read);
    node.values = is_read ? std::vector{value, copy} : std::vector{copy, value};
  }

  Program& program_;
  std::vector<ProgramNode> nodes_;
};

}  // namespace

NodeChoice choose_for_node(const CompilerBackend& backend, bp_device* device, bp_launch_flags flags,
                           std::span<const Program> points, size_t node) {
  return NodeChooser(backend, device, flags, points, node).choose();
}

std::vector<Program> points_of(const Program& program) {
  std::vector<Program> points;
  points.push_back(program.at(program.extents.preferred()));
  if (!program.extents.empty()) {
    points.push_back(program.at(program.extents.smallest()));
    points.push_back(program.at(program.extents.largest()));
  }
  return points;
}

Program with_copies(const CompilerBackend& backend, bp_device* device, bp_launch_flags flags,
                    Program program, const std::string& call) {
  if (!program.has_layouts()) return program;
  const std::vector<Program> points = points_of(program);
  Rewriter rewriter(program);
  for (size_t i = 0; i < points[0].nodes.size(); ++i) {
    const NodeChoice choice = choose_for_node(backend, device, flags, points, i);
    if (!choice.reason.empty()) {
      throw StatusError(BP_UNSUPPORTED, call + ": node " + std::to_string(i) + ": " +
                                            op_name(program.nodes[i].frame.op()) + ": " +
                                            choice.reason);
    }
    rewriter.add(std::move(program.nodes[i]), choice.copied);
  }
  rewriter.finish();
  return program;
}

}  // namespace bp
