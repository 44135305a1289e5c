#include "backplane/shell/executable.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "backplane/shell/args_size.hpp"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/kernel_choice.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp {
namespace {

// Rounds up to the alignment of workspace, which all places in it have.
uint64_t rounded(uint64_t size_bytes) {
  constexpr uint64_t kUnit = kWorkspaceAlignmentBytes;
  return (size_bytes + kUnit - 1) / kUnit * kUnit;
}

// Throws StatusError if an entry of the backend's tables fails. The text stays in the error slot.
void require(bp_status status, const char* what) {
  if (status != BP_OK) throw StatusError(status, std::string("compile: ") + what + " failed");
}

bool equals(const bp_tensor& tensor, const ProgramValue& value) {
  const bool is_shape = tensor.dtype == value.dtype && tensor.ndim == value.shape.size() &&
                        std::equal(value.shape.begin(), value.shape.end(), tensor.shape);
  if (!is_shape) return false;
  for (size_t i = 0; i < value.shape.size(); ++i) {
    if (value.shape[i] > 1 && tensor.strides[i] != value.strides[i]) return false;
  }
  return true;
}

}  // namespace

void CompileRequest::begin_step() const {
  if (should_stop == nullptr || should_stop(user_data) == 0) return;
  throw StatusError(BP_ABORTED, "compile: should_stop() stopped it");
}

CompileRequest::CompileRequest(const std::vector<uint64_t>& words, size_t& position) {
  if (words.size() - position < 2) {
    throw StatusError(BP_INCOMPATIBLE, "deserialize: the end is damaged");
  }
  flags = static_cast<bp_launch_flags>(words[position++]);
  makes_plans = words[position++] != 0;
}

const bp_kernel& kernel_for_node(const CompilerBackend& backend, bp_device* device,
                                 bp_launch_flags flags, const Program& program, size_t index,
                                 const std::string& call) {
  const ProgramNode& node = program.nodes[index];
  bp_reason reason = nullptr;
  const bp_kernel* const kernel =
      choose_kernel(backend.kernels, device, flags, node.frame, node.is_in_place(), reason);
  if (kernel != nullptr) return *kernel;
  throw StatusError(BP_UNSUPPORTED, call + ": node " + std::to_string(index) + ": " +
                                        op_name(node.frame.op()) + ": " + reason);
}

Executable::Executable(const CompilerBackend& backend, SharedConstants& shared, bp_device* device,
                       const CompileRequest& request, Program program)
    : backend_(backend),
      shared_(shared),
      device_(device),
      generation_(generation_of(backend.devices, device)),
      request_(request),
      program_(std::move(program)) {
  offsets_.resize(program_.values.size());
  places_.resize(program_.values.size());
  argument_of_.resize(program_.values.size());
  for (const bp_value_role role : {BP_VALUE_INPUT, BP_VALUE_OUTPUT}) {
    for (size_t i = 0; i < program_.values.size(); ++i) {
      if (program_.values[i].role == role) argument_of_[i] = argument_count_++;
    }
  }
  try {
    for (size_t i = 0; i < program_.nodes.size(); ++i) choose(i);
    place_temporaries();
    upload_constants();
  } catch (...) {
    release();
    throw;
  }
  request_.should_stop = nullptr;
  make_kernel();
}

Executable::~Executable() { release(); }

bool Executable::is_lost() const { return generation_ != generation_of(backend_.devices, device_); }

uint64_t Executable::shared_constant_bytes() const {
  uint64_t size_bytes = 0;
  for (const auto& constant : held_) size_bytes += constant->size_bytes;
  return size_bytes;
}

void Executable::free(bp_buffer* buffer, bp_stream* stream) const {
  static_cast<void>(backend_.memory.deallocate(backend_.memory.self, buffer, stream));
}

// Frees the memory on a new stream, after all its uses, so that submitted work can go on.
void Executable::release() {
  std::vector<bp_buffer*> buffers;
  for (Node& node : nodes_) {
    if (node.plan != nullptr) static_cast<void>(node.kernel->plan_release(node.kernel, node.plan));
    buffers.push_back(node.packed);
  }
  buffers.push_back(constants_);
  std::vector<OwnedEvent> events;
  for (const Use& use : uses_) events.push_back(use.event);
  shared_.drop(held_, backend_.events, events, buffers);
  const bp_stream_ops& streams = backend_.streams;
  bp_stream* stream = nullptr;
  if (events.empty() || streams.create(streams.self, device_, nullptr, &stream) != BP_OK) {
    for (const OwnedEvent& event : events) {
      static_cast<void>(backend_.events.synchronize(backend_.events.self, event.get(), UINT64_MAX));
    }
    for (bp_buffer* buffer : buffers) free(buffer, nullptr);
    return;
  }
  for (const OwnedEvent& event : events) {
    static_cast<void>(streams.wait_event(streams.self, stream, event.get()));
  }
  for (bp_buffer* buffer : buffers) free(buffer, stream);
  static_cast<void>(streams.destroy(streams.self, stream));
}

// A new stream may have the handle of a destroyed one, whose work still runs. So a stream waits for
// the event of its handle first.
void Executable::mark_use(bp_stream* stream) {
  const bp_event_ops& events = backend_.events;
  bp_event* event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(uses_, stream, &Use::stream);
    if (found != uses_.end()) event = found->event.get();
  }
  if (event != nullptr) {
    static_cast<void>(backend_.streams.wait_event(backend_.streams.self, stream, event));
    static_cast<void>(events.record(events.self, event, stream));
    return;
  }
  require(events.create(events.self, device_, nullptr, &event), "event.create");
  static_cast<void>(events.record(events.self, event, stream));
  OwnedEvent owned(event,
                   [events](bp_event* e) { static_cast<void>(events.destroy(events.self, e)); });
  const std::lock_guard lock(mutex_);
  uses_.push_back({stream, std::move(owned)});  // Another thread may have added one too.
}

// ---- Compilation --------------------------------------------------------------------------------

void Executable::choose(size_t index) {
  request_.begin_step();
  const ProgramNode& given = program_.nodes[index];
  Node& node = nodes_.emplace_back();
  node.kernel = &kernel_for_node(backend_, device_, request_.flags, program_, index, "compile");
  node.frame = given.frame.fitted(node.kernel->args_size_bytes);
  if (node.kernel->workspace_size == nullptr) return;
  uint64_t required = 0, preferred = 0;
  require(node.kernel->workspace_size(node.kernel, device_, request_.flags, node.frame.data(),
                                      &required, &preferred),
          "workspace_size");
  node.workspace_bytes = std::max(required, preferred);
}

// Gives each temporary the first gap between the temporaries that live at the same time.
void Executable::place_temporaries() {
  struct Life {
    size_t value, first, last;
    uint64_t begin = 0, end = 0;
  };
  std::vector<Life> lives;
  for (size_t value = 0; value < program_.values.size(); ++value) {
    if (program_.values[value].role != BP_VALUE_TEMPORARY) continue;
    Life life{value, program_.nodes.size(), 0};
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      if (std::ranges::count(program_.nodes[n].values, value) == 0) continue;
      life.first = std::min(life.first, n);
      life.last = n;
    }
    const uint64_t size_bytes = rounded(program_.values[value].size_bytes());
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
    offsets_[value] = life.begin;
    scratch_offset_ = std::max(scratch_offset_, life.end);
    lives.push_back(life);
  }
}

bp_buffer* Executable::allocate(uint64_t size_bytes) {
  bp_allocate_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_ALLOCATE_DESC;
  desc.size_bytes = size_bytes;
  desc.alignment_bytes = kWorkspaceAlignmentBytes;
  bp_buffer* buffer = nullptr;
  require(backend_.memory.allocate(backend_.memory.self, device_, &desc, &buffer), "allocate");
  constant_bytes_ += size_bytes;
  return buffer;
}

// Uploads the constants on a new stream, and waits for this stream alone.
void Executable::upload_constants() {
  uint64_t size_bytes = 0;
  for (size_t i = 0; i < program_.values.size(); ++i) {
    places_[i].byte_offset = size_bytes;
    size_bytes += rounded(program_.values[i].data.size());
  }
  request_.begin_step();
  const bp_stream_ops& streams = backend_.streams;
  bp_stream* stream = nullptr;
  require(streams.create(streams.self, device_, nullptr, &stream), "stream.create");
  const auto end_stream = [&](bp_stream* s) {
    // If compiling fails, submitted work still uses memory that is freed next.
    static_cast<void>(streams.synchronize(streams.self, s, UINT64_MAX));
    static_cast<void>(streams.destroy(streams.self, s));
  };
  const std::unique_ptr<bp_stream, decltype(end_stream)> owned(stream, end_stream);
  if (size_bytes != 0) constants_ = allocate(size_bytes);
  for (size_t i = 0; i < program_.values.size(); ++i) {
    if (program_.values[i].is_constant()) place_constant(i, stream);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) prepare(i, stream);
  require(streams.synchronize(streams.self, stream, UINT64_MAX), "the copy of constants");
  for (const Node& node : nodes_) {
    workspace_bytes_ = std::max(workspace_bytes_, rounded(node.workspace_bytes));
  }
  workspace_bytes_ += scratch_offset_;
}

void Executable::copy_constant(const bp_buffer_ref& to, const void* data, bp_stream* stream) const {
  require(backend_.memory.copy_from_host(backend_.memory.self, stream, &to, data,
                                         BP_BORROW_DURING_CALL),
          "the copy of constants");
}

void Executable::place_constant(size_t index, bp_stream* stream) {
  ProgramValue& value = program_.values[index];
  if (value.buffer.buffer != nullptr) {
    check_lent(value.buffer, index);
    places_[index] = value.buffer;
  } else if (!value.key.empty()) {
    share_constant(index, stream);
    value.source = nullptr;
  } else if (!value.data.empty()) {
    places_[index].buffer = constants_;
    places_[index].size_bytes = value.data.size();
    copy_constant(places_[index], value.data.data(), stream);
  }
}

// Checks a buffer of the caller.
void Executable::check_lent(const bp_buffer_ref& range, size_t value) const {
  if (backend_.memory.buffer_info == nullptr) return;
  const std::string name = "compile: value " + std::to_string(value) + ": buffer";
  bp_buffer_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_BUFFER_INFO;
  if (backend_.memory.buffer_info(backend_.memory.self, range.buffer, &info) != BP_OK) {
    throw StatusError(BP_INVALID_ARGUMENT, name + " is not one of this backend");
  }
  if (info.device != device_) {
    throw StatusError(BP_INVALID_ARGUMENT, name + " is of another device");
  }
  const bool is_inside = range.byte_offset <= info.size_bytes &&
                         range.size_bytes <= info.size_bytes - range.byte_offset;
  if (!is_inside) throw StatusError(BP_INVALID_ARGUMENT, name + ": the range leaves the buffer");
}

// Finds a constant with a key, or writes it.
void Executable::share_constant(size_t index, bp_stream* stream) {
  const ProgramValue& value = program_.values[index];
  const std::string name = "compile: value " + std::to_string(index);
  const auto constant = held_.emplace_back(shared_.find(device_, generation_, value, name));
  const std::lock_guard lock(constant->mutex);
  const uint64_t size_bytes = constant->size_bytes;
  if (constant->buffer == nullptr && size_bytes != 0) {
    if (value.source == nullptr) {
      throw StatusError(BP_NOT_FOUND, name + ": no executable holds a constant with the key \"" +
                                          value.key + "\", and its data is not given");
    }
    bp_buffer* const buffer = allocate(size_bytes);
    constant_bytes_ -= size_bytes;
    try {
      copy_constant({buffer, 0, size_bytes}, value.source, stream);
      require(backend_.streams.synchronize(backend_.streams.self, stream, UINT64_MAX),
              "the copy of constants");
    } catch (...) {
      static_cast<void>(backend_.streams.synchronize(backend_.streams.self, stream, UINT64_MAX));
      free(buffer, nullptr);
      throw;
    }
    constant->buffer = buffer;
  }
  places_[index] = {constant->buffer, 0, size_bytes};
}

// Makes a plan for a node whose kernel has plans, over the constants among its arguments.
void Executable::prepare(size_t index, bp_stream* stream) {
  Node& node = nodes_[index];
  if (node.kernel->prepare == nullptr || !request_.makes_plans) return;
  request_.begin_step();
  bp_prepare_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_PREPARE_DESC;
  desc.flags = request_.flags;
  OwnedFrame frame = node.frame.clone();
  std::vector<uint32_t> constants;
  for (size_t i = 0; i < frame.tensors().size(); ++i) {
    const uint32_t value = program_.nodes[index].values[i];
    if (value == BP_NO_VALUE || !program_.values[value].is_constant()) continue;
    constants.push_back(static_cast<uint32_t>(i));
    frame.tensors()[i]->buffer = places_[value].buffer;
    frame.tensors()[i]->byte_offset += places_[value].byte_offset;
  }
  desc.constant_args = constants.data();
  desc.constant_arg_count = constants.size();
  const bp_status status =
      node.kernel->prepare(node.kernel, device_, &desc, frame.data(), &node.plan);
  if (status == BP_UNSUPPORTED) {
    node.plan = nullptr;  // The kernel serves the frame without a plan.
    return;
  }
  require(status, "prepare");
  pack(node, frame.data(), stream);
}

void Executable::pack(Node& node, const void* args, bp_stream* stream) {
  bp_plan_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_PLAN_INFO;
  require(node.kernel->plan_info(node.kernel, node.plan, &info), "plan_info");
  node.workspace_bytes = std::max(info.workspace_required_bytes, info.workspace_preferred_bytes);
  if (info.packed_size_bytes == 0) return;
  node.packed = allocate(info.packed_size_bytes);
  bp_buffer* const workspace = allocate(rounded(node.workspace_bytes));
  constant_bytes_ -= rounded(node.workspace_bytes);
  bp_launch launch{};
  launch.device = device_;
  launch.stream = stream;
  launch.workspace = {workspace, 0, node.workspace_bytes};
  launch.plan = node.plan;
  launch.flags = request_.flags;
  const bp_buffer_ref packed{node.packed, 0, info.packed_size_bytes};
  const bp_status status = node.kernel->plan_pack(node.kernel, &launch, args, &packed);
  static_cast<void>(backend_.memory.deallocate(backend_.memory.self, workspace, stream));
  require(status, "plan_pack");
}

void Executable::make_kernel() {
  kernel_.struct_size = sizeof(bp_kernel);
  kernel_.struct_type = BP_STRUCT_KERNEL;
  kernel_.state = this;
  kernel_.name = "program";
  kernel_.spec_revision = kSpecRevision;
  kernel_.args_size_bytes = sizeof(bp_program_args);
  kernel_.flags = BP_KERNEL_CAPTURABLE | BP_KERNEL_DETERMINISTIC;
  for (const Node& node : nodes_) kernel_.flags &= node.kernel->flags;
  kernel_.layouts = BP_LAYOUT_ANY;
  kernel_.workspace_size = [](const bp_kernel* self, bp_device*, bp_launch_flags, const void*,
                              uint64_t* required, uint64_t* preferred) -> bp_status {
    const auto* const executable = static_cast<const Executable*>(self->state);
    if (required != nullptr) *required = executable->workspace_bytes_;
    if (preferred != nullptr) *preferred = executable->workspace_bytes_;
    return BP_OK;
  };
  kernel_.launch = [](const bp_kernel* self, const bp_launch* launch, const void* args) {
    auto* const e = static_cast<Executable*>(self->state);
    return guarded(*e->backend_.host, [&]() -> bp_status {
      if (launch == nullptr || args == nullptr) {
        throw StatusError(BP_INVALID_ARGUMENT, "program: launch or args is NULL");
      }
      const auto& frame = *static_cast<const bp_program_args*>(args);
      if (e->backend_.captures == nullptr || !e->backend_.captures->is_capturing(launch->stream)) {
        return e->launch(*launch, frame, false);
      }
      return e->backend_.captures->launch(*self, *launch, args,
                                          [&] { return e->launch(*launch, frame, true); });
    });
  };
}

// ---- Launch -------------------------------------------------------------------------------------

void Executable::check_args(const bp_program_args& args) const {
  if (args.struct_size < sizeof(bp_program_args) || args.flags != 0) {
    throw StatusError(BP_UNSUPPORTED, "program: the frame has " + std::to_string(args.struct_size) +
                                          " bytes and flags " + std::to_string(args.flags) +
                                          "; it needs at least " +
                                          std::to_string(sizeof(bp_program_args)) +
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
  for (size_t i = 0; i < program_.values.size(); ++i) {
    const ProgramValue& value = program_.values[i];
    if (!value.is_argument()) continue;
    const bp_tensor& tensor = args.tensors[argument_of_[i]];
    const std::string name = "program: tensor " + std::to_string(argument_of_[i]);
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

bp_buffer_ref Executable::place_of(uint32_t value, const bp_program_args& args,
                                   const bp_buffer_ref& workspace) const {
  const bp_value_role role = program_.values[value].role;
  if (role == BP_VALUE_CONSTANT) return places_[value];
  if (role == BP_VALUE_TEMPORARY) {
    return {workspace.buffer, workspace.byte_offset + offsets_[value], 0};
  }
  const bp_tensor& tensor = args.tensors[argument_of_[value]];
  return {tensor.buffer, tensor.byte_offset, 0};
}

std::unique_ptr<Executable::Frames> Executable::take_frames() {
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

bp_status Executable::launch(const bp_launch& launch, const bp_program_args& args,
                             bool only_checks) {
  if (is_lost()) {
    throw StatusError(BP_DEVICE_LOST,
                      "program: the executable was made before its device was reset");
  }
  if ((launch.flags & ~request_.flags & ~bp_launch_flags{BP_LAUNCH_DEVICE_CURRENT}) != 0) {
    throw StatusError(BP_UNSUPPORTED, "program: launch flags are " + std::to_string(launch.flags) +
                                          ", and it was compiled for " +
                                          std::to_string(request_.flags));
  }
  if (launch.plan != nullptr) throw StatusError(BP_INVALID_ARGUMENT, "program: it has no plans");
  check_args(args);
  check_workspace(launch.workspace, workspace_bytes_, "program");
  if (only_checks) return BP_OK;
  std::unique_ptr<Frames> frames = take_frames();
  const bp_status status = run(launch, args, *frames);
  if (has_memory()) mark_use(launch.stream);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(frames));
  return status;
}

bp_status Executable::run(const bp_launch& launch, const bp_program_args& args,
                          Frames& frames) const {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    const std::vector<bp_tensor*>& tensors = frames[n].tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i] == nullptr) continue;
      const bp_buffer_ref place = place_of(program_.nodes[n].values[i], args, launch.workspace);
      tensors[i]->buffer = place.buffer;
      tensors[i]->byte_offset = place.byte_offset + node.frame.tensors()[i]->byte_offset;
    }
    bp_launch own = launch;
    own.plan = node.plan;
    own.workspace = {};
    if (node.workspace_bytes != 0) {
      own.workspace = {launch.workspace.buffer, launch.workspace.byte_offset + scratch_offset_,
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
