#include "registry/services/transfers.hpp"

#include <cstring>
#include <string>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::services {
namespace {

// Asks for a callback behind an event, which holds no stream. Returns false if that is not
// possible.
bool call_by_event(const bp_target& target, bp_stream* stream, const Completion& completion) {
  const bp_event_ops& events = *target.events;
  bp_event* event = nullptr;
  if (events.create(events.self, target.device, nullptr, &event) != BP_OK) return false;
  const bool is_called =
      events.record(events.self, event, stream) == BP_OK &&
      events.on_complete(events.self, event, completion.call, completion.user_data) == BP_OK;
  static_cast<void>(events.destroy(events.self, event));
  return is_called;
}

// Calls move(element of `tensor`, offset in the packed elements) for runs of bytes: each run is the
// last axis if its elements lie side by side, else one element.
template <typename Move>
void for_runs(const bp_tensor& tensor, Move&& move) {
  if (!tensors::has_elements(tensor)) return;
  const uint64_t size = bp_dtype_bits(tensor.dtype) / 8;
  auto* const first = reinterpret_cast<unsigned char*>(tensor.buffer) + tensor.byte_offset;
  const uint32_t last = tensor.ndim == 0 ? 0 : tensor.ndim - 1;
  const bool has_rows = tensor.ndim != 0 && tensor.strides[last] == 1;
  const uint32_t outer = has_rows ? last : tensor.ndim;
  const uint64_t run = has_rows ? size * static_cast<uint64_t>(tensor.shape[last]) : size;
  int64_t index[BP_MAX_RANK] = {};
  for (uint64_t packed = 0;; packed += run) {
    int64_t offset = 0;
    for (uint32_t i = 0; i < outer; ++i) offset += index[i] * tensor.strides[i];
    move(first + offset * static_cast<int64_t>(size), packed, run);
    uint32_t axis = outer;
    while (axis > 0 && ++index[axis - 1] == tensor.shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

// Ends a copy of a block without memory.
bp_status end_now(const Completion& completion) {
  if (completion.call != nullptr) completion.call(completion.user_data, BP_OK);
  return BP_OK;
}

}  // namespace

void call_when_done(const bp_target& target, bp_stream* stream, const Completion& completion) {
  if (completion.call == nullptr) return;
  const std::string words = core::take_error();
  if (!call_by_event(target, stream, completion)) {
    const bp_stream_ops& streams = *target.streams;
    if (streams.add_callback(streams.self, stream, completion.call, completion.user_data) !=
        BP_OK) {
      completion.call(completion.user_data, streams.synchronize(streams.self, stream, UINT64_MAX));
    }
  }
  core::set_error(nullptr, BP_OK, words.c_str());
}

bp_status check_not_capturing(const bp_target& target, bp_stream* stream) {
  const bp_stream_ops& streams = *target.streams;
  uint32_t is_capturing = 0;
  if (streams.is_capturing(streams.self, stream, &is_capturing) != BP_OK) {
    core::set_error(nullptr, BP_OK, "");  // The device has no captures.
    return BP_OK;
  }
  if (is_capturing == 0) return BP_OK;
  return fail(BP_INVALID_ARGUMENT,
              std::string(target.name) +
                  ": the stream captures, so that the copy does not run now and `release` would be "
                  "called too early; give no release, and keep the memory as long as the graph");
}

bp_status upload(const bp_target& target, bp_stream* stream, const bp_buffer_ref& dst,
                 const void* src, const Completion& completion) {
  bp_status status =
      completion.call == nullptr ? bp_status{BP_OK} : check_not_capturing(target, stream);
  if (status != BP_OK) return status;
  if (dst.buffer == nullptr) return end_now(completion);
  const bp_allocator_ops& memory = *target.allocator;
  const bp_borrow borrow =
      completion.call == nullptr ? BP_BORROW_DURING_CALL : BP_BORROW_UNTIL_COMPLETE;
  status = memory.copy_from_host(memory.self, stream, &dst, src, borrow);
  if (status == BP_OK) call_when_done(target, stream, completion);
  return status;
}

bp_status download(const bp_target& target, bp_stream* stream, void* dst, const bp_buffer_ref& src,
                   const Completion& completion) {
  bp_status status =
      completion.call == nullptr ? bp_status{BP_OK} : check_not_capturing(target, stream);
  if (status != BP_OK) return status;
  if (src.buffer == nullptr) return end_now(completion);
  const bp_allocator_ops& memory = *target.allocator;
  status =
      memory.copy_to_host(memory.self, stream, dst, &src, BP_BORROW_UNTIL_COMPLETE, UINT64_MAX);
  if (status == BP_OK) call_when_done(target, stream, completion);
  return status;
}

void gather(const bp_tensor& src, unsigned char* dst) {
  for_runs(src, [&](const unsigned char* run, uint64_t packed, uint64_t size) {
    std::memcpy(dst + packed, run, size);
  });
}

void scatter(const unsigned char* src, const bp_tensor& dst) {
  for_runs(dst, [&](unsigned char* run, uint64_t packed, uint64_t size) {
    std::memcpy(run, src + packed, size);
  });
}

}  // namespace bp::services
