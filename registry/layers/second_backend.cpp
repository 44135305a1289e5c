#include "registry/layers/second_backend.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

#include "registry/boundary/fail.hpp"
#include "registry/calls/call.hpp"
#include "registry/layers/footprint.hpp"

namespace bp::layers {
namespace {

// The copies keep the alignment of offsets up to this value.
constexpr uint64_t kAlignment = 512;

bp_buffer_ref copy_of(const Part& part, const BlockHandle& block) {
  return {block->ref.buffer, block->ref.byte_offset + part.begin % kAlignment, part.bytes.size()};
}

// A frame that points to copies of the tensors.
struct ShadowFrame {
  alignas(8) std::byte bytes[core::kMaxFrameBytes];
  std::deque<bp_tensor> tensors;
  std::deque<std::vector<const bp_tensor*>> lists;
};

// Fills the frame, and puts the tensors that `copy` returns in place of its own.
template <typename Copy>
void fill_shadow(const core::OpRow& row, const void* args, ShadowFrame& shadow, Copy&& copy) {
  std::memcpy(shadow.bytes, args, core::frame_size(args));
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const core::TensorArgument& a = row.tensors[i];
    const void* pointer = nullptr;
    if (!a.is_list()) {
      pointer = copy(core::tensor_at(args, a));
    } else {
      const core::TensorList list = core::list_at(args, a);
      auto& items = shadow.lists.emplace_back();
      for (uint64_t n = 0; n < list.count; ++n) items.push_back(copy(list.items[n]));
      pointer = items.data();
    }
    std::memcpy(shadow.bytes + a.offset, &pointer, sizeof(pointer));
  }
}

}  // namespace

Parts parts_of(const std::vector<FrameTensor>& arguments) {
  Parts parts;
  for (const FrameTensor& argument : arguments) {
    const Footprint where = footprint_of(*argument.tensor);
    if (where.is_empty()) continue;
    Part& part = parts[where.buffer];
    part.begin = std::min(part.begin, where.begin);
    part.end = std::max(part.end, where.end);
  }
  for (auto& [buffer, part] : parts) part.bytes.resize(part.end - part.begin);
  return parts;
}

bp_status read_parts(const bp_allocator_ops& memory, bp_stream* stream, Parts& parts) {
  for (auto& [buffer, part] : parts) {
    const bp_buffer_ref range{buffer, part.begin, part.end - part.begin};
    const bp_status status = memory.copy_to_host(memory.self, stream, part.bytes.data(), &range,
                                                 BP_BORROW_DURING_CALL, UINT64_MAX);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

bp_status SecondBackend::load(const Setup& setup, const std::string& name_or_path) {
  bp_registry_flags flags = BP_REGISTRY_FORBID_HOST_FALLBACK | BP_REGISTRY_COMPILE_OPS;
  if (setup.ignores_environment) flags |= BP_REGISTRY_IGNORE_ENVIRONMENT;
  const bp_registry_desc desc{
      .struct_size = sizeof(bp_registry_desc),
      .struct_type = BP_STRUCT_REGISTRY_DESC,
      .flags = flags,
      .search_path = setup.has_search_path ? setup.search_path.c_str() : nullptr,
      .log_line = setup.log.log,
      .user_data = setup.log.user_data,
      .layers = ""};
  registry_ = std::make_unique<Registry>(&desc);
  if (registry_->get() == nullptr) return BP_OUT_OF_MEMORY;
  const bp_plugin* plugin = nullptr;
  const Status status = registry_->load(name_or_path, {}, &plugin);
  if (!status.ok()) return fail(status.code, status.message);
  target_ = bp_registry_target(registry_->get(), 0);
  return target_ != nullptr ? BP_OK
                            : fail(BP_NOT_FOUND, "'" + name_or_path + "' loads but has no device");
}

void SecondBackend::unload() {
  target_ = nullptr;
  registry_.reset();
}

Status SecondBackend::fill(const Parts& parts, Blocks& blocks) {
  const bp_allocator_ops& memory = *target_->allocator;
  for (const auto& [buffer, part] : parts) {
    BlockHandle& block = blocks[buffer];
    Status status =
        allocate(*target_, nullptr, part.bytes.size() + part.begin % kAlignment, &block);
    if (!status.ok()) return status;
    const bp_buffer_ref range = copy_of(part, block);
    const bp_status copied = memory.copy_from_host(memory.self, target_->default_stream, &range,
                                                   part.bytes.data(), BP_BORROW_DURING_CALL);
    if (copied != BP_OK) return status_of(copied);
  }
  return {};
}

Status SecondBackend::run(const core::OpRow& row, bp_launch_flags flags, const void* args,
                          Parts& parts) {
  Status status = submit(row, flags, args, parts);
  const bp_stream_ops& streams = *target_->streams;
  if (!status.ok()) {
    static_cast<void>(streams.clear_failure(streams.self, target_->default_stream));
  }
  return status;
}

Status SecondBackend::submit(const core::OpRow& row, bp_launch_flags flags, const void* args,
                             Parts& parts) {
  Blocks blocks;
  if (Status status = fill(parts, blocks); !status.ok()) return status;
  ShadowFrame shadow;
  fill_shadow(row, args, shadow, [&](const bp_tensor* tensor) -> const bp_tensor* {
    if (tensor == nullptr) return nullptr;
    bp_tensor& own = shadow.tensors.emplace_back(*tensor);
    own.next = nullptr;  // The links are hints for the backend that is compared.
    const auto part = parts.find(tensor->buffer);
    if (part == parts.end()) {
      own.buffer = nullptr;  // The tensor has no elements.
      return &own;
    }
    const bp_buffer_ref range = copy_of(part->second, blocks.at(part->first));
    own.buffer = range.buffer;
    own.byte_offset = range.byte_offset + tensor->byte_offset - part->second.begin;
    return &own;
  });
  flags &= ~uint32_t{BP_LAUNCH_DEVICE_CURRENT};
  const bp_status launched = bp_op_launch(target_, nullptr, flags, row.op, shadow.bytes);
  if (launched != BP_OK) return status_of(launched);
  const bp_allocator_ops& memory = *target_->allocator;
  for (auto& [buffer, part] : parts) {
    const bp_buffer_ref range = copy_of(part, blocks.at(buffer));
    const bp_status copied =
        memory.copy_to_host(memory.self, target_->default_stream, part.bytes.data(), &range,
                            BP_BORROW_DURING_CALL, UINT64_MAX);
    if (copied != BP_OK) return status_of(copied);
  }
  return {};
}

}  // namespace bp::layers
