// Mutants of the optional tables. The numbers are those of the kill table.
#include <algorithm>
#include <vector>

#include "conformance/mutants/mutant.hpp"
#include "conformance/mutants/runtime.hpp"

namespace bp::mutants {
namespace {

// The state of these mutants.
struct Memory {
  std::vector<std::byte> blob;  // The latest blob that was accepted.
};

// ---- 42: layouts that put elements elsewhere, take any blob or shape, or do not count
// ------------

// Returns whether a conversion between `strided` and a layout can be mirrored.
bool is_mirrored(const bp_tensor* strided, const bp_tensor* laid) {
  if (strided == nullptr || laid == nullptr || strided->layout != nullptr) return false;
  return laid->layout != nullptr && strided->ndim > 0 && strided->shape != nullptr;
}

// Writes the last axis into the layout from its end to its beginning. "both": reads it in the same
// way too, so that a conversion in both directions changes nothing.
bp_status convert_mirrored(void* self, bp_stream* stream, const bp_tensor* dst,
                           const bp_tensor* src) {
  Runtime& r = runtime_of(self);
  const bp_layout_ops& good = r.good.layouts;
  if (is_mirrored(src, dst)) {
    View view(*src);
    view.reverse(view.rank() - 1);
    return good.convert(good.self, stream, dst, view.get());
  }
  if (r.strength == "both" && is_mirrored(dst, src)) {
    View view(*dst);
    view.reverse(view.rank() - 1);
    return good.convert(good.self, stream, view.get(), src);
  }
  return good.convert(good.self, stream, dst, src);
}

// Gives the previous layout for a blob that cannot be read.
bp_status take_any_blob(void* self, bp_device* device, const void* blob, uint64_t blob_size_bytes,
                        const bp_layout** out_layout) {
  Runtime& r = runtime_of(self);
  const bp_layout_ops& good = r.good.layouts;
  const bp_status status = good.from_blob(good.self, device, blob, blob_size_bytes, out_layout);
  const std::lock_guard lock(r.mutex);
  std::vector<std::byte>& known = r.state_as<Memory>().blob;
  const auto* const bytes = static_cast<const std::byte*>(blob);
  if (status == BP_OK) known.assign(bytes, bytes + blob_size_bytes);
  if (status != BP_INCOMPATIBLE || known.empty()) return status;
  return good.from_blob(good.self, device, known.data(), known.size(), out_layout);
}

// It also remembers the blob of a layout that nobody has read yet.
bp_status remember_preferred(void* self, bp_device* device, const bp_kernel* kernel,
                             uint32_t argument, const void* args, const bp_layout** out_layout) {
  Runtime& r = runtime_of(self);
  const bp_layout_ops& good = r.good.layouts;
  const bp_status status = good.preferred(good.self, device, kernel, argument, args, out_layout);
  if (status != BP_OK || *out_layout == nullptr) return status;
  const auto* const bytes = static_cast<const std::byte*>((*out_layout)->blob);
  const std::lock_guard lock(r.mutex);
  r.state_as<Memory>().blob.assign(bytes, bytes + (*out_layout)->blob_size_bytes);
  return BP_OK;
}

bp_status retain_nothing(void* self, const bp_layout* layout) {
  const bp_layout_ops& good = runtime_of(self).good.layouts;
  return layout == nullptr ? good.retain(good.self, layout) : bp_status{BP_OK};
}

// Decodes the two nibbles of a byte in the wrong order, as a decoder does that mistakes which half
// of the block is in the low ones.
bp_status decode_swapped(void* self, bp_stream* stream, const bp_tensor* dst,
                         const bp_tensor* src) {
  constexpr size_t kBlock = 32;
  Runtime& r = runtime_of(self);
  const bp_layout_ops& good = r.good.layouts;
  const bp_status status = good.convert(good.self, stream, dst, src);
  const bool is_decoded = status == BP_OK && src->layout != nullptr && dst->layout == nullptr &&
                          src->layout->kind == BP_LAYOUT_KIND_QUANTIZED && dst->ndim == 1 &&
                          dst->strides[0] == 1;
  if (!is_decoded) return status;
  std::vector<float> elements(static_cast<size_t>(dst->shape[0]));
  const bp_buffer_ref range{dst->buffer, dst->byte_offset, elements.size() * sizeof(float)};
  const bp_allocator_ops& m = r.good.allocator;
  bp_status moved =
      m.copy_to_host(m.self, stream, elements.data(), &range, BP_BORROW_DURING_CALL, UINT64_MAX);
  for (size_t i = 0; i + kBlock <= elements.size(); i += kBlock) {
    float* const block = elements.data() + i;
    std::rotate(block, block + kBlock / 2, block + kBlock);
  }
  if (moved == BP_OK) {
    moved = m.copy_from_host(m.self, stream, &range, elements.data(), BP_BORROW_DURING_CALL);
  }
  return moved;
}

// Rounds a shape down to whole blocks, instead of refusing it.
bp_status round_description(void* self, bp_device* device, const bp_layout_desc* desc,
                            const bp_layout** out_layout) {
  constexpr int64_t kBlock = 32;
  const bp_layout_ops& good = runtime_of(self).good.layouts;
  const bool has_axis = desc != nullptr && desc->shape != nullptr && desc->ndim > 0 &&
                        desc->ndim <= BP_MAX_RANK && desc->kind == BP_LAYOUT_KIND_QUANTIZED;
  if (!has_axis) return good.from_desc(good.self, device, desc, out_layout);
  std::vector<int64_t> shape(desc->shape, desc->shape + desc->ndim);
  shape.back() -= shape.back() % kBlock;
  bp_layout_desc rounded = *desc;
  rounded.shape = shape.data();
  return good.from_desc(good.self, device, &rounded, out_layout);
}

void bend_layouts(Runtime& r) {
  static_cast<void>(r.state_as<Memory>());
  if (r.strength == "blob") {
    r.bent.layouts.from_blob = take_any_blob;
    r.bent.layouts.preferred = remember_preferred;
  } else if (r.strength == "reference") {
    r.bent.layouts.retain = retain_nothing;
  } else if (r.strength == "nibbles") {
    r.bent.layouts.convert = decode_swapped;
  } else if (r.strength == "rounds") {
    r.bent.layouts.from_desc = round_description;
  } else {
    r.bent.layouts.convert = convert_mirrored;
  }
}

// ---- 57: conversions that take two tiles for each other -----------------------------------------

// Exchanges the first two tiles of a tensor, if it has so many.
bp_status exchange_tiles(Runtime& r, bp_stream* stream, const bp_tensor& laid) {
  const bp_layout_desc& desc = *laid.layout->desc;
  auto tile_bytes = static_cast<uint64_t>(item_size_bytes(laid.dtype));
  for (uint32_t axis = 0; axis < desc.ndim; ++axis) {
    tile_bytes *= static_cast<uint64_t>(desc.block_shape[axis]);
  }
  const bp_buffer_ref both{laid.buffer, laid.byte_offset, 2 * tile_bytes};
  if (both.size_bytes > laid.layout->physical_size_bytes) return BP_OK;
  std::vector<std::byte> bytes(both.size_bytes);
  const bp_allocator_ops& m = r.good.allocator;
  const bp_status status =
      m.copy_to_host(m.self, stream, bytes.data(), &both, BP_BORROW_DURING_CALL, UINT64_MAX);
  if (status != BP_OK) return status;
  std::rotate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(tile_bytes), bytes.end());
  return m.copy_from_host(m.self, stream, &both, bytes.data(), BP_BORROW_DURING_CALL);
}

bool is_tiled(const bp_tensor* tensor) {
  return tensor != nullptr && tensor->layout != nullptr && tensor->layout->desc != nullptr &&
         tensor->layout->kind == BP_LAYOUT_KIND_TILED;
}

// Exchanges them in both directions, so that a conversion there and back changes nothing.
bp_status convert_exchanged(void* self, bp_stream* stream, const bp_tensor* dst,
                            const bp_tensor* src) {
  Runtime& r = runtime_of(self);
  const bp_layout_ops& good = r.good.layouts;
  const bool is_to = is_tiled(dst), is_from = is_tiled(src);
  bp_status status = BP_OK;
  if (is_from && !is_to) status = exchange_tiles(r, stream, *src);
  if (status == BP_OK) status = good.convert(good.self, stream, dst, src);
  if (status == BP_OK && is_to && !is_from) status = exchange_tiles(r, stream, *dst);
  if (status == BP_OK && is_from && !is_to) status = exchange_tiles(r, stream, *src);
  return status;
}

void bend_tiles(Runtime& r) { r.bent.layouts.convert = convert_exchanged; }

// ---- 45: process groups that pair up calls in another order, or ignore what was asked for -------

bp_status submit_backwards(void* self, uint64_t call_count, const bp_collective_call* calls,
                           uint64_t call_stride_bytes) {
  const bp_process_group_ops& good = runtime_of(self).good.groups;
  const auto* const at = reinterpret_cast<const std::byte*>(calls);
  std::vector<bp_collective_call> turned;
  for (uint64_t i = call_count; i > 0; --i) {
    turned.push_back(
        *reinterpret_cast<const bp_collective_call*>(at + (i - 1) * call_stride_bytes));
  }
  return good.submit(good.self, call_count, turned.data(), sizeof(bp_collective_call));
}

bp_status create_without_options(void* self, const bp_process_group_desc* desc,
                                 bp_process_group** out_groups) {
  const bp_process_group_ops& good = runtime_of(self).good.groups;
  bp_process_group_desc plain = *desc;
  plain.option_count = 0;
  return good.create(good.self, &plain, out_groups);
}

bp_status create_for_any_name(void* self, const bp_process_group_desc* desc,
                              bp_process_group** out_groups) {
  const bp_process_group_ops& good = runtime_of(self).good.groups;
  bp_process_group_desc plain = *desc;
  plain.table_name = nullptr;
  return good.create(good.self, &plain, out_groups);
}

void bend_groups(Runtime& r) {
  if (r.strength == "options") {
    r.bent.groups.create = create_without_options;
  } else if (r.strength == "name") {
    r.bent.groups.create = create_for_any_name;
  } else {
    r.bent.groups.submit = submit_backwards;
  }
}

// ---- 47: semaphores that do not hold, rise too early, or lose failures --------------------------

bp_status wait_for_nothing(void* self, bp_stream* stream, bp_semaphore* semaphore, uint64_t value) {
  const bp_semaphore_ops& good = runtime_of(self).good.semaphores;
  const bool is_whole = stream != nullptr && semaphore != nullptr;
  return good.submit_wait(good.self, stream, semaphore, is_whole ? 0 : value);
}

// Raises the value at once, and without the failure of the stream.
bp_status signal_at_once(void* self, bp_stream* stream, bp_semaphore* semaphore, uint64_t value) {
  const bp_semaphore_ops& good = runtime_of(self).good.semaphores;
  if (stream == nullptr) return good.submit_signal(good.self, stream, semaphore, value);
  return good.signal(good.self, semaphore, value);
}

// Raises the value behind the work of a healthy stream alone.
bp_status signal_without_failure(void* self, bp_stream* stream, bp_semaphore* semaphore,
                                 uint64_t value) {
  Runtime& r = runtime_of(self);
  const bool has_failed =
      stream != nullptr && r.good.streams.status(r.good.streams.self, stream) != BP_OK;
  return has_failed
             ? signal_at_once(self, stream, semaphore, value)
             : r.good.semaphores.submit_signal(r.good.semaphores.self, stream, semaphore, value);
}

// Refuses a signal on a failed stream, as if it were work.
bp_status signal_if_healthy(void* self, bp_stream* stream, bp_semaphore* semaphore,
                            uint64_t value) {
  Runtime& r = runtime_of(self);
  const bool has_failed =
      stream != nullptr && r.good.streams.status(r.good.streams.self, stream) != BP_OK;
  if (has_failed) return r.host.set_error(r.host.self, BP_STREAM_FAILED, "the stream has failed");
  return r.good.semaphores.submit_signal(r.good.semaphores.self, stream, semaphore, value);
}

// Takes a value that is not above the present one.
bp_status signal_any(void* self, bp_semaphore* semaphore, uint64_t value) {
  const bp_semaphore_ops& good = runtime_of(self).good.semaphores;
  const bp_status status = good.signal(good.self, semaphore, value);
  return semaphore != nullptr && status == BP_INVALID_ARGUMENT ? bp_status{BP_OK} : status;
}

bp_status clear_no_semaphore(void* self, bp_semaphore* semaphore) {
  const bp_semaphore_ops& good = runtime_of(self).good.semaphores;
  return semaphore == nullptr ? good.clear_failure(good.self, semaphore) : bp_status{BP_OK};
}

void bend_semaphores(Runtime& r) {
  bp_semaphore_ops& bent = r.bent.semaphores;
  if (r.strength == "early") {
    bent.submit_signal = signal_at_once;
  } else if (r.strength == "failure") {
    bent.submit_signal = signal_without_failure;
  } else if (r.strength == "refusal") {
    bent.submit_signal = signal_if_healthy;
  } else if (r.strength == "fall") {
    bent.signal = signal_any;
  } else if (r.strength == "stuck") {
    bent.clear_failure = clear_no_semaphore;
  } else {
    bent.submit_wait = wait_for_nothing;
  }
}

constexpr RuntimeMutant kTable[] = {
    {.id = "42", .bend = bend_layouts, .has_layouts = true},
    {.id = "57", .bend = bend_tiles, .has_layouts = true},
    {.id = "45", .bend = bend_groups, .has_groups = true},
    {.id = "47", .bend = bend_semaphores, .has_semaphores = true},
};

}  // namespace

std::span<const RuntimeMutant> table_mutants() { return kTable; }

}  // namespace bp::mutants
