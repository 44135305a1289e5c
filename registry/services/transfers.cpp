#include "registry/services/transfers.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/services/capturing.hpp"
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

// Below the first size the event behind the copy would cost more than the copy. Above the second
// one much memory would be pinned for one copy.
constexpr uint64_t kLeastPinned = 64u << 10, kMostPinned = 32u << 20;

PinnedMemory::Place find_pinned(const DevicePlace& place, const void* memory) {
  if (place.pinned == nullptr) return {};
  return place.pinned->find(memory, place.range.size_bytes);
}

// Copies what fill(memory) writes to pinned memory, which the copy frees.
template <typename Fill>
bp_status copy_pinned(const DevicePlace& dst, void* pinned, Fill&& fill) {
  fill(static_cast<unsigned char*>(pinned));
  const bp_allocator_ops& memory = *dst.target.allocator;
  const PinnedMemory::Place from = find_pinned(dst, pinned);
  const bp_status status = memory.copy(memory.self, dst.stream, &dst.range, &from.ref);
  if (status == BP_OK) dst.pinned->use(pinned, dst.stream);
  static_cast<void>(dst.pinned->free(pinned));
  return status;
}

// Bytes of pinned memory that a callback of the stream copies to `dst`.
struct Landing {
  const void* pinned;
  void* dst;
  uint64_t size_bytes;
  std::shared_ptr<Loan> loan;
  Completion completion;
};

void on_landed(void* user_data, bp_status status) {
  const std::unique_ptr<Landing> landing(static_cast<Landing*>(user_data));
  if (status == BP_OK) std::memcpy(landing->dst, landing->pinned, landing->size_bytes);
  landing->loan->end();
  const Completion& completion = landing->completion;
  if (completion.call != nullptr) completion.call(completion.user_data, status);
}

// Copies the range to pinned memory, which the copy frees, and from there to `dst` in a callback
// that the stream waits for: `dst` is complete when the work of the stream has ended.
bp_status land(void* dst, const DevicePlace& src, void* pinned, const Completion& completion) {
  const bp_allocator_ops& memory = *src.target.allocator;
  const bp_stream_ops& streams = *src.target.streams;
  const PinnedMemory::Place to = find_pinned(src, pinned);
  const auto loan = std::make_shared<Loan>();
  auto landing =
      std::make_unique<Landing>(Landing{pinned, dst, src.range.size_bytes, loan, completion});
  const bp_status status = memory.copy(memory.self, src.stream, &to.ref, &src.range);
  if (status != BP_OK) {
    static_cast<void>(src.pinned->free(pinned));
    return status;
  }
  loan->end_writing();  // The device itself writes.
  static_cast<void>(src.pinned->free_behind(pinned, loan));
  if (streams.add_callback(streams.self, src.stream, on_landed, landing.get()) == BP_OK) {
    static_cast<void>(landing.release());
    return BP_OK;
  }
  // The failure of the work stays on the stream.
  on_landed(landing.release(), streams.synchronize(streams.self, src.stream, UINT64_MAX));
  core::set_error(nullptr, BP_OK, "");
  return BP_OK;
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
  if (!is_capturing(target, stream)) return BP_OK;
  return fail(BP_INVALID_ARGUMENT,
              std::string(target.name) +
                  ": the stream captures, so that the copy does not run now and `release` would be "
                  "called too early; give no release, and keep the memory as long as the graph");
}

void* take_pinned(const DevicePlace& place) {
  const uint64_t size = place.range.size_bytes;
  if (place.pinned == nullptr || !place.pinned->is_direct()) return nullptr;
  if (size < kLeastPinned || size > kMostPinned || is_capturing(place.target, place.stream)) {
    return nullptr;
  }
  void* memory = nullptr;
  if (place.pinned->allocate(size, &memory) != BP_OK) core::set_error(nullptr, BP_OK, "");
  return memory;
}

bp_status upload_filled(const DevicePlace& dst, const std::function<void(unsigned char*)>& fill) {
  const bp_allocator_ops& memory = *dst.target.allocator;
  void* const pinned = take_pinned(dst);
  if (pinned == nullptr) {
    std::vector<unsigned char> bytes(dst.range.size_bytes);
    fill(bytes.data());
    return memory.copy_from_host(memory.self, dst.stream, &dst.range, bytes.data(),
                                 BP_BORROW_DURING_CALL);
  }
  return copy_pinned(dst, pinned, fill);
}

bp_status upload(const DevicePlace& dst, const void* src, const Completion& completion) {
  const bp_target& target = dst.target;
  const bp_allocator_ops& memory = *target.allocator;
  if (completion.call == nullptr) {
    if (dst.range.buffer == nullptr) return BP_OK;
    // The bytes are copied once: here, or by the backend.
    if (void* const pinned = take_pinned(dst); pinned != nullptr) {
      return copy_pinned(dst, pinned,
                         [&](unsigned char* to) { std::memcpy(to, src, dst.range.size_bytes); });
    }
    return memory.copy_from_host(memory.self, dst.stream, &dst.range, src, BP_BORROW_DURING_CALL);
  }
  bp_status status = check_not_capturing(target, dst.stream);
  if (status != BP_OK) return status;
  if (dst.range.buffer == nullptr) return end_now(completion);
  const PinnedMemory::Place from = find_pinned(dst, src);
  status = from.ref.buffer != nullptr ? memory.copy(memory.self, dst.stream, &dst.range, &from.ref)
                                      : memory.copy_from_host(memory.self, dst.stream, &dst.range,
                                                              src, BP_BORROW_UNTIL_COMPLETE);
  if (status != BP_OK) return status;
  if (from.memory != nullptr) dst.pinned->use(from.memory, dst.stream);
  call_when_done(target, dst.stream, completion);
  return BP_OK;
}

bp_status download(void* dst, const DevicePlace& src, const Completion& completion) {
  const bp_target& target = src.target;
  bp_status status =
      completion.call == nullptr ? bp_status{BP_OK} : check_not_capturing(target, src.stream);
  if (status != BP_OK) return status;
  if (src.range.buffer == nullptr) return end_now(completion);
  const bp_allocator_ops& memory = *target.allocator;
  const PinnedMemory::Place to = find_pinned(src, dst);
  if (to.memory == nullptr) {
    if (void* const pinned = take_pinned(src); pinned != nullptr) {
      return land(dst, src, pinned, completion);
    }
  }
  status = to.ref.buffer != nullptr ? memory.copy(memory.self, src.stream, &to.ref, &src.range)
                                    : memory.copy_to_host(memory.self, src.stream, dst, &src.range,
                                                          BP_BORROW_UNTIL_COMPLETE, UINT64_MAX);
  if (status != BP_OK) return status;
  if (to.memory != nullptr) src.pinned->use(to.memory, src.stream);
  call_when_done(target, src.stream, completion);
  return BP_OK;
}

bp_status download_to(const std::function<void(const unsigned char*)>& read,
                      const DevicePlace& src) {
  const bp_allocator_ops& memory = *src.target.allocator;
  void* const pinned = take_pinned(src);
  if (pinned == nullptr) {
    std::vector<unsigned char> bytes(src.range.size_bytes);
    const bp_status status = memory.copy_to_host(memory.self, src.stream, bytes.data(), &src.range,
                                                 BP_BORROW_DURING_CALL, UINT64_MAX);
    if (status == BP_OK) read(bytes.data());
    return status;
  }
  const bp_stream_ops& streams = *src.target.streams;
  const PinnedMemory::Place to = find_pinned(src, pinned);
  bp_status status = memory.copy(memory.self, src.stream, &to.ref, &src.range);
  if (status == BP_OK) status = streams.synchronize(streams.self, src.stream, UINT64_MAX);
  if (status == BP_OK) read(static_cast<const unsigned char*>(pinned));
  const std::string words = core::take_error();
  static_cast<void>(src.pinned->free(pinned));
  return status == BP_OK ? status : fail(status, words);
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
