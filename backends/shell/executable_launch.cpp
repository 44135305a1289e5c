// The launches of an executable.
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/executable.hpp"
#include "backplane/shell/shape.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp {
namespace {

constexpr size_t kMostResolved = 32;

// Returns the name of a layout for a text.
std::string text_of(const bp_layout* layout) {
  if (layout == nullptr) return "strides";
  return "the layout \"" + std::string(layout->name == nullptr ? "" : layout->name) + "\"";
}

// Checks that a tensor lies as its value. `name` begins the text.
void check_layout(const bp_tensor& tensor, const ProgramValue& value, const std::string& name) {
  const bp_layout* const layout = value.layout.get();
  if (tensor.layout != layout) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      name + " has " + text_of(tensor.layout) + ", and its value has " +
                          text_of(layout) +
                          "; pass the layout that from_desc() gives for the value's description");
  }
  if (layout == nullptr || tensor.byte_offset % layout->alignment_bytes == 0) return;
  throw StatusError(BP_INVALID_ARGUMENT, name + ": byte_offset is " +
                                             std::to_string(tensor.byte_offset) +
                                             "; its layout asks for a multiple of " +
                                             std::to_string(layout->alignment_bytes));
}

bool equals(const bp_tensor& tensor, const ProgramValue& value) {
  const bool is_shape = tensor.dtype == value.dtype && tensor.ndim == value.shape.size() &&
                        std::equal(value.shape.begin(), value.shape.end(), tensor.shape);
  if (!is_shape || value.layout != nullptr) return is_shape;
  for (size_t i = 0; i < value.shape.size(); ++i) {
    if (value.shape[i] > 1 && tensor.strides[i] != value.strides[i]) return false;
  }
  return true;
}

}  // namespace

void Executable::check_head(const bp_program_args& args) const {
  if (args.struct_size < kProgramArgsBytes || args.flags != 0) {
    throw StatusError(BP_UNSUPPORTED, "program: the frame has " + std::to_string(args.struct_size) +
                                          " bytes and flags " + std::to_string(args.flags) +
                                          "; it needs at least " +
                                          std::to_string(kProgramArgsBytes) +
                                          " bytes and no flags");
  }
  if (args.tensor_count != argument_count_) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      "program: tensor_count is " + std::to_string(args.tensor_count) +
                          "; the program has " + std::to_string(argument_count_) + " tensors");
  }
  if (argument_count_ != 0 && args.tensors == nullptr) {
    throw StatusError(BP_INVALID_ARGUMENT, "program: tensors is NULL; the program has " +
                                               std::to_string(argument_count_) + " tensors");
  }
}

void Executable::check_args(const bp_program_args& args, const Program& program) const {
  for (size_t i = 0; i < program.values.size(); ++i) {
    const ProgramValue& value = program.values[i];
    if (!value.is_argument()) continue;
    const bp_tensor& tensor = args.tensors[argument_of_[i]];
    const std::string name = "program: tensor " + std::to_string(argument_of_[i]);
    check_layout(tensor, value, name);
    if (!equals(tensor, value)) {
      throw StatusError(
          BP_INVALID_ARGUMENT,
          name + " has not the dtype, shape and strides of value " + std::to_string(i));
    }
    if (tensor.flags != 0 || bp_links_read(tensor.next, nullptr, 0) != BP_OK) {
      throw StatusError(BP_UNSUPPORTED, name +
                                            " has flags, a link that must be understood, or too "
                                            "many links, and tensors of programs have none");
    }
    if (tensor.buffer == nullptr && value.size_bytes() != 0) {
      throw StatusError(BP_INVALID_ARGUMENT, name + " has no buffer");
    }
  }
}

// ---- Extents ------------------------------------------------------------------------------------

// Returns the numbers that the tensors give to ranges, and those that follow from them.
ExtentNumbers Executable::numbers_of(const bp_program_args& args) const {
  ExtentNumbers ranges(program_.extents.size(), -1);
  for (size_t i = 0; i < program_.values.size(); ++i) {
    const ProgramValue& value = program_.values[i];
    if (!value.is_argument()) continue;
    const bp_tensor& tensor = args.tensors[argument_of_[i]];
    if (tensor.ndim != value.shape.size()) {
      throw StatusError(BP_INVALID_ARGUMENT, "program: tensor " + std::to_string(argument_of_[i]) +
                                                 ": ndim is " + std::to_string(tensor.ndim) +
                                                 ", and that of value " + std::to_string(i) +
                                                 " is " + std::to_string(value.shape.size()));
    }
    for (size_t axis = 0; axis < value.shape.size(); ++axis) {
      if (value.shape[axis] >= 0) continue;
      int64_t& range = ranges[static_cast<size_t>(-(value.shape[axis] + 1))];
      if (range < 0) range = tensor.shape[axis];
    }
  }
  ExtentNumbers numbers = program_.extents.evaluated(ranges, "program");
  check_numbers(args, numbers);
  return numbers;
}

// Checks that each tensor has the numbers of its extents.
void Executable::check_numbers(const bp_program_args& args, const ExtentNumbers& numbers) const {
  for (size_t i = 0; i < program_.values.size(); ++i) {
    const ProgramValue& value = program_.values[i];
    if (!value.is_argument()) continue;
    const bp_tensor& tensor = args.tensors[argument_of_[i]];
    for (size_t axis = 0; axis < value.shape.size(); ++axis) {
      const int64_t expected = number_of(value.shape[axis], numbers);
      if (value.shape[axis] >= 0 || tensor.shape[axis] == expected) continue;
      throw StatusError(BP_INVALID_ARGUMENT,
                        "program: tensor " + std::to_string(argument_of_[i]) + " has " +
                            std::to_string(tensor.shape[axis]) + " on axis " +
                            std::to_string(axis) + ", which is extent " +
                            std::to_string(-(value.shape[axis] + 1)) + ", and this extent is " +
                            std::to_string(expected));
    }
  }
}

std::shared_ptr<Resolved> Executable::make_resolved(const ExtentNumbers& numbers) const {
  CompileRequest request = request_;
  // The kernel has said what it promises, so all kernels that it runs have to promise it.
  if ((kernel_.flags & BP_KERNEL_DETERMINISTIC) != 0) request.flags |= BP_LAUNCH_DETERMINISTIC;
  Program program = program_.at(numbers);
  return std::make_shared<Resolved>(backend_, device_, request, std::move(program), numbers, most_);
}

// Returns the one with these numbers, which becomes the latest; NULL if it is not kept.
std::shared_ptr<Resolved> Executable::find_resolved(const ExtentNumbers& numbers) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      recent_, [&](const auto& resolved) { return resolved->numbers() == numbers; });
  if (found == recent_.end()) return nullptr;
  std::rotate(recent_.begin(), found, found + 1);
  return recent_.front();
}

std::shared_ptr<Resolved> Executable::resolved_for(const bp_program_args& args) {
  if (program_.extents.empty()) return preferred_;
  const ExtentNumbers numbers = numbers_of(args);
  if (numbers == preferred_->numbers()) return preferred_;
  if (auto found = find_resolved(numbers)) return found;
  auto made = make_resolved(numbers);
  made->program().check_places();
  adopt_plans(*made);
  const std::lock_guard lock(mutex_);
  recent_.push_front(made);
  if (recent_.size() > kMostResolved) recent_.pop_back();
  return made;
}

uint64_t Executable::workspace_bytes_for(const bp_program_args* args) {
  const std::shared_lock lock(residence_);
  const bool has_shapes = args != nullptr && args->struct_size >= kProgramArgsBytes &&
                          args->tensors != nullptr && !program_.extents.empty();
  if (!has_shapes) return workspace_bytes_;
  check_head(*args);
  return resolved_for(*args)->workspace_bytes();
}

// ---- Launch -------------------------------------------------------------------------------------

// Refuses outputs that are the memory of another tensor without an alias. Returns for each alias
// whether its tensors are one memory.
std::vector<bool> Executable::shared_aliases(const bp_program_args& args,
                                             const Program& program) const {
  std::vector<uint32_t> values;  // Those with elements, of which those in one place adjoin.
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    if (program.values[i].is_argument() && element_count(program.values[i].tensor()) != 0) {
      values.push_back(i);
    }
  }
  const auto place_of = [&](uint32_t value) {
    const bp_tensor& tensor = args.tensors[argument_of_[value]];
    return std::pair(reinterpret_cast<uintptr_t>(tensor.buffer), tensor.byte_offset);
  };
  std::ranges::sort(values, {}, place_of);
  std::vector<bool> shared(program_.aliases.size());
  for (size_t begin = 0, end = 0; begin < values.size(); begin = end) {
    while (end < values.size() && place_of(values[end]) == place_of(values[begin])) ++end;
    const std::span group(values.data() + begin, end - begin);
    for (const uint32_t output : group) {
      if (program_.values[output].role != BP_VALUE_OUTPUT || group.size() == 1) continue;
      const uint32_t other = group[0] == output ? group[1] : group[0];
      const auto alias = std::ranges::find_if(program_.aliases, [&](const bp_program_alias& a) {
        return a.output == output && a.input == other;
      });
      if (group.size() == 2 && alias != program_.aliases.end()) {
        shared[static_cast<size_t>(alias - program_.aliases.begin())] = true;
        continue;
      }
      throw StatusError(BP_INVALID_ARGUMENT,
                        "program: tensor " + std::to_string(argument_of_[output]) +
                            " is an output in the memory of tensor " +
                            std::to_string(argument_of_[other]) +
                            ", and the program has no alias for the two alone");
    }
  }
  return shared;
}

// Copies the inputs that a launch overwrites while it needs them, and moves their places.
bp_status Executable::copy_inputs(const bp_launch& launch, const Resolved& at,
                                  const std::vector<bool>& shared,
                                  std::vector<bp_buffer_ref>& places) const {
  for (size_t i = 0; i < shared.size(); ++i) {
    if (!shared[i] || !at.use_of_alias(i).copies_input) continue;
    const uint32_t input = program_.aliases[i].input;
    const Extent extent = extent_of(at.program().values[input].tensor());
    const auto begin = static_cast<uint64_t>(extent.begin);  // Sums of it wrap.
    const auto size_bytes = static_cast<uint64_t>(extent.end - extent.begin);
    const bp_buffer_ref src{places[input].buffer, places[input].byte_offset + begin, size_bytes};
    const bp_buffer_ref dst{launch.workspace.buffer,
                            launch.workspace.byte_offset + at.offset_of_copy(i), size_bytes};
    const bp_status status = backend_.memory.copy(backend_.memory.self, launch.stream, &dst, &src);
    if (status != BP_OK) return status;
    places[input] = {dst.buffer, dst.byte_offset - begin, 0};
  }
  return BP_OK;
}

bp_buffer_ref Executable::place_of(uint32_t value, const Resolved& at, const bp_program_args& args,
                                   const bp_buffer_ref& workspace) const {
  const bp_value_role role = program_.values[value].role;
  if (role == BP_VALUE_CONSTANT) return places_[value];
  if (role == BP_VALUE_TEMPORARY) {
    return {workspace.buffer, workspace.byte_offset + at.offset_of(value), 0};
  }
  const bp_tensor& tensor = args.tensors[argument_of_[value]];
  return {tensor.buffer, tensor.byte_offset, 0};
}

// Returns whether the node does nothing, since it would copy an input to itself.
bool Executable::is_idle(size_t node, const Resolved& at, const std::vector<bool>& shared) const {
  for (size_t i = 0; i < shared.size(); ++i) {
    if (shared[i] && std::ranges::count(at.use_of_alias(i).idle_nodes, node) != 0) return true;
  }
  return false;
}

bp_status Executable::launch(const bp_launch& launch, const bp_program_args& args,
                             bool only_checks) {
  if (is_lost()) {
    throw StatusError(BP_DEVICE_LOST,
                      "program: the executable was made before its device was reset");
  }
  const std::shared_lock lock(residence_);
  if (!is_loaded_) {
    throw StatusError(BP_UNSUPPORTED, "program: the executable is not loaded; call load() first");
  }
  if ((launch.flags & ~request_.flags & ~bp_launch_flags{BP_LAUNCH_DEVICE_CURRENT}) != 0) {
    throw StatusError(BP_UNSUPPORTED, "program: launch flags are " + std::to_string(launch.flags) +
                                          ", and it was compiled for " +
                                          std::to_string(request_.flags));
  }
  if (launch.plan != nullptr) throw StatusError(BP_INVALID_ARGUMENT, "program: it has no plans");
  check_head(args);
  const std::shared_ptr<Resolved> at = resolved_for(args);
  check_args(args, at->program());
  const std::vector<bool> shared = shared_aliases(args, at->program());
  check_workspace(launch.workspace, at->workspace_bytes(), "program");
  if (only_checks) {  // A capture asks.
    if ((kernel_.flags & ~at->kernel_flags() & BP_KERNEL_CAPTURABLE) == 0) return BP_OK;
    throw StatusError(BP_UNSUPPORTED,
                      "program: with these extents a node has a kernel that is not capturable");
  }
  std::unique_ptr<Resolved::Frames> frames = at->take_frames();
  const bp_status status = run(launch, args, *at, shared, *frames);
  if (has_memory()) mark_use(launch.stream);
  at->give_frames(std::move(frames));
  return status;
}

// A reference in the kept work pins the executable.
bp_status Executable::launch_in_capture(const bp_kernel& kernel, const bp_launch& launch,
                                        const void* args) {
  const auto& frame = *static_cast<const bp_program_args*>(args);
  const auto check = [&] { return this->launch(launch, frame, true); };
  return backend_.captures->launch(kernel, launch, args, check, pin_);
}

bp_status Executable::run(const bp_launch& launch, const bp_program_args& args, const Resolved& at,
                          const std::vector<bool>& shared, Resolved::Frames& frames) const {
  std::vector<bp_buffer_ref> places;
  for (uint32_t i = 0; i < program_.values.size(); ++i) {
    places.push_back(place_of(i, at, args, launch.workspace));
  }
  if (const bp_status status = copy_inputs(launch, at, shared, places); status != BP_OK) {
    return status;
  }
  for (size_t n = 0; n < at.nodes().size(); ++n) {
    if (is_idle(n, at, shared)) continue;
    const Resolved::Node& node = at.nodes()[n];
    const std::vector<bp_tensor*>& tensors = frames[n].tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i] == nullptr) continue;
      const bp_buffer_ref& place = places[program_.nodes[n].values[i]];
      tensors[i]->buffer = place.buffer;
      tensors[i]->byte_offset = place.byte_offset + node.frame.tensors()[i]->byte_offset;
    }
    bp_launch own = launch;
    own.plan = node.plan;
    own.workspace = {};
    if (node.workspace_bytes != 0) {
      own.workspace = {launch.workspace.buffer, launch.workspace.byte_offset + at.scratch_offset(),
                       node.workspace_bytes};
    }
    const bp_status status = node.kernel->launch(node.kernel, &own, frames[n].data());
    if (status == BP_OK) continue;
    // Only the first node may refuse the launch with BP_UNSUPPORTED. Later, earlier nodes are
    // already submitted, so a refusal is an internal failure.
    return n == 0 || status != BP_UNSUPPORTED ? status : bp_status{BP_INTERNAL};
  }
  return BP_OK;
}

}  // namespace bp
