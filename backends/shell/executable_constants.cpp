// The constants of an executable, and the plans over them.
#include <algorithm>
#include <cstddef>
#include <string>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/executable.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp {

// Throws StatusError if an entry of the backend's tables fails. The text stays in the error slot.
void Executable::require(bp_status status, const char* what) const {
  if (status != BP_OK) throw StatusError(status, named(std::string(what) + " failed"));
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
    const ProgramValue& value = program_.values[i];
    if (value.has_own_data()) size_bytes += rounded_for_workspace(value.size_bytes());
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
  for (size_t i = 0; i < plans_.size(); ++i) prepare(i, stream);
  require(streams.synchronize(streams.self, stream, UINT64_MAX), "the copy of constants");
  adopt_plans(*preferred_);
  workspace_bytes_ = preferred_->workspace_bytes();
  for (const auto& resolved : recent_) {
    adopt_plans(*resolved);
    workspace_bytes_ = std::max(workspace_bytes_, resolved->workspace_bytes());
  }
}

void Executable::copy_constant(const bp_buffer_ref& to, const void* data, bp_stream* stream) const {
  require(backend_.memory.copy_from_host(backend_.memory.self, stream, &to, data,
                                         BP_BORROW_DURING_CALL),
          "the copy of constants");
}

// Writes a constant from the bytes of the host, which are row-major beside a layout of tiles.
void Executable::write_constant(const ProgramValue& value, const bp_buffer_ref& to,
                                const void* data, bp_stream* stream) {
  const bool is_converted =
      value.layout_words && value.layout_words->kind != BP_LAYOUT_KIND_QUANTIZED;
  if (!is_converted) return copy_constant(to, data, stream);
  const uint64_t size_bytes = value.data_size_bytes();
  bp_buffer* const rows = allocate(size_bytes);
  constant_bytes_ -= size_bytes;
  const auto end_rows = [&](bp_buffer* buffer) { free(buffer, stream); };
  const std::unique_ptr<bp_buffer, decltype(end_rows)> owned(rows, end_rows);
  copy_constant({rows, 0, size_bytes}, data, stream);
  bp_tensor src = value.tensor(), dst = src;
  src.layout = nullptr;
  src.buffer = rows;
  dst.buffer = to.buffer;
  dst.byte_offset = to.byte_offset;
  require(backend_.layout_table.convert(backend_.layout_table.self, stream, &dst, &src),
          "the conversion of a constant to its layout");
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
    places_[index].size_bytes = value.size_bytes();
    write_constant(value, places_[index], value.data.data(), stream);
  }
}

// Checks a buffer of the caller.
void Executable::check_lent(const bp_buffer_ref& range, size_t value) const {
  if (backend_.memory.buffer_info == nullptr) return;
  const std::string name = named("value " + std::to_string(value) + ": buffer");
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
  const std::string name = named("value " + std::to_string(index));
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
      write_constant(value, {buffer, 0, size_bytes}, value.source, stream);
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
  const Resolved::Node& node = preferred_->nodes()[index];
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
  bp_plan* plan = nullptr;
  const bp_status status = node.kernel->prepare(node.kernel, device_, &desc, frame.data(), &plan);
  if (status == BP_UNSUPPORTED) return;  // The kernel serves the frame without a plan.
  require(status, "prepare");
  plans_[index].kernel = node.kernel;
  plans_[index].plan = plan;
  pack(index, frame.data(), stream);
}

void Executable::pack(size_t index, const void* args, bp_stream* stream) {
  NodePlan& node = plans_[index];
  bp_plan_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_PLAN_INFO;
  require(node.kernel->plan_info(node.kernel, node.plan, &info), "plan_info");
  node.workspace_bytes = std::max(info.workspace_required_bytes, info.workspace_preferred_bytes);
  if (info.packed_size_bytes == 0) return;
  node.packed = allocate(info.packed_size_bytes);
  bp_buffer* const workspace = allocate(rounded_for_workspace(node.workspace_bytes));
  constant_bytes_ -= rounded_for_workspace(node.workspace_bytes);
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

// Gives the nodes their plans. A plan is for one frame: at other extents only the nodes that name
// none have the frame of their plan.
void Executable::adopt_plans(Resolved& resolved) const {
  const bool is_preferred = &resolved == preferred_.get();
  for (size_t i = 0; i < plans_.size(); ++i) {
    Resolved::Node& node = resolved.nodes()[i];
    const bool has_its_frame = is_preferred || !program_.names_extents(i);
    if (plans_[i].plan == nullptr || plans_[i].kernel != node.kernel || !has_its_frame) continue;
    node.plan = plans_[i].plan;
    node.workspace_bytes = plans_[i].workspace_bytes;
  }
}

}  // namespace bp
