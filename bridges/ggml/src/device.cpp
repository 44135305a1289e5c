#include "device.h"

#include <algorithm>

#include "host_memory.h"
#include "log.h"
#include "view.h"

namespace bpg {
namespace {

constexpr BlockFormat kFormats[] = {
#define BP_BLOCK_FORMAT(id, number, name, elements, bytes, scale_dtype) \
  {number, name, elements, bytes},
#include "backplane/block_formats.def"
};

bp_layout_desc layout_desc(const BlockFormat& format, const std::vector<int64_t>& shape) {
  bp_layout_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_LAYOUT_DESC;
  desc.shape = shape.data();
  desc.ndim = static_cast<uint32_t>(shape.size());
  desc.kind = BP_LAYOUT_KIND_QUANTIZED;
  desc.dtype = BP_F32;
  desc.format_name = format.name;
  return desc;
}

}  // namespace

const BlockFormat* block_format(ggml_type type) {
  for (const BlockFormat& format : kFormats) {
    if (format.number != static_cast<int>(type)) continue;
    // The table of the library and that of this ggml must mean the same bytes.
    const bool is_same = ggml_blck_size(type) == format.elements &&
                         static_cast<int64_t>(ggml_type_size(type)) == format.bytes;
    return is_same ? &format : nullptr;
  }
  return nullptr;
}

Device::Device(const bp_target* the_target) : target(the_target), name(the_target->name) {
  description = target->properties->name;
  pinned_name = name + " pinned";
  takes_host_memory = bpg::takes_host_memory(target);
  has_pinned_memory = bpg::has_pinned_memory(target);
  pinned_type.iface = pinned_type_functions();
  pinned_type.device = &ggml;
  pinned_type.context = this;
  buffer_type.iface = buffer_type_functions();
  buffer_type.device = &ggml;
  buffer_type.context = this;
  ggml.iface = device_functions();
  ggml.reg = nullptr;
  ggml.context = this;
}

const bp_layout* Device::blocks(const BlockFormat& format, const std::vector<int64_t>& shape) {
  if (!bp_target_has_table(target, BP_STRUCT_LAYOUT_OPS)) {
    throw Refusal("the device has no layouts for blocks");
  }
  const std::lock_guard lock(mutex_);
  const bp_layout*& layout = layouts_[{format.number, shape}];
  if (layout != nullptr) return layout;
  const bp_layout_desc desc = layout_desc(format, shape);
  const bp_layout_ops* const ops = target->layouts;
  const bp_status status = ops->from_desc(ops->self, target->device, &desc, &layout);
  if (status != BP_OK) {
    layouts_.erase({format.number, shape});
    throw Refusal(failure_text(status, "layout.from_desc"));
  }
  return layout;
}

bool Device::can_encode(const BlockFormat& format) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = encodes_.find(format.number);
    if (found != encodes_.end()) return found->second;
  }
  const bool answer = try_encode(format);
  const std::lock_guard lock(mutex_);
  return encodes_[format.number] = answer;
}

bool Device::try_encode(const BlockFormat& format) {
  bp_block *from = nullptr, *to = nullptr;
  bool is_done = false;
  try {
    const std::vector<int64_t> shape{1, format.elements};
    const std::vector<int64_t> strides{format.elements, 1};
    const bp_layout* const layout = blocks(format, shape);
    const uint64_t bytes = format.elements * sizeof(float);
    check(bp_block_allocate(target, nullptr, bytes, &from), "block_allocate");
    check(bp_block_allocate(target, nullptr, format.bytes, &to), "block_allocate");
    const bp_allocator_ops* const memory = target->allocator;
    const uint32_t zero = 0;
    const bp_buffer_ref all{from->ref.buffer, from->ref.byte_offset, bytes};
    check(memory->fill(memory->self, target->default_stream, &all, &zero, sizeof(zero)), "fill");
    bp_tensor x{};
    x.buffer = from->ref.buffer;
    x.byte_offset = from->ref.byte_offset;
    x.shape = shape.data();
    x.strides = strides.data();
    x.ndim = 2;
    x.dtype = BP_F32;
    bp_tensor y = x;
    y.buffer = to->ref.buffer;
    y.byte_offset = to->ref.byte_offset;
    y.layout = layout;
    const bp_layout_ops* const ops = target->layouts;
    is_done = ops->convert(ops->self, target->default_stream, &y, &x) == BP_OK;
  } catch (const std::runtime_error&) {
    is_done = false;
  }
  bp_block_free(from);
  bp_block_free(to);
  return is_done;
}

void Device::add_stream(bp_stream* stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}

void Device::remove_stream(bp_stream* stream) {
  const std::lock_guard lock(mutex_);
  std::erase(streams_, stream);
}

void Device::synchronize() {
  const std::lock_guard lock(mutex_);
  const bp_stream_ops* const streams = target->streams;
  streams->synchronize(streams->self, target->default_stream, UINT64_MAX);
  for (bp_stream* stream : streams_) streams->synchronize(streams->self, stream, UINT64_MAX);
}

void Device::free_block(bp_block* block) {
  const std::lock_guard lock(mutex_);
  for (bp_stream* stream : streams_) bp_block_record_stream(block, stream);
  const bp_status status = bp_block_free(block);
  if (status != BP_OK) log_error(failure_text(status, "a buffer on " + name + " is not freed"));
}

}  // namespace bpg
