#include "registry/services/pinned_memory.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/services/capturing.hpp"

namespace bp::services {
namespace {

// How well a heap serves: 0 if it does not.
int rank_of(const bp_heap& heap) {
  constexpr bp_heap_flags kHost = BP_HEAP_HOST_VISIBLE | BP_HEAP_HOST_COHERENT;
  if (heap.struct_size == 0 || (heap.flags & kHost) != kHost) return 0;
  if ((heap.flags & BP_HEAP_DEVICE_LOCAL) != 0) return 1;
  return (heap.flags & BP_HEAP_HOST_CACHED) == 0 ? 2 : 3;
}

std::optional<uint64_t> host_heap(const bp_target& target) {
  std::optional<uint64_t> best;
  int best_rank = 0;
  for (uint64_t i = 0; i < target.properties->heap_count; ++i) {
    const int rank = rank_of(heap_at(target, i));
    if (rank <= best_rank) continue;
    best = i;
    best_rank = rank;
  }
  return best;
}

bp_status not_pinned(const char* call) {
  return fail(BP_INVALID_ARGUMENT, std::string("pinned.") + call +
                                       ": memory is none that bp_pinned_allocate() gave for this "
                                       "target, or it was freed");
}

}  // namespace

PinnedMemory::PinnedMemory(const bp_target& target, CacheSet& caches)
    : target_(target), caches_(caches), pool_(caches.create_pool("pinned")) {
  const std::optional<uint64_t> heap = host_heap(target);
  has_heap_ = heap.has_value();
  source_.heap_index = heap.value_or(0);
  is_direct_ = has_heap_ && (heap_at(target, *heap).flags & BP_HEAP_HOST_CONCURRENT) != 0;
}

// All work of the device has ended, but callbacks may still run.
PinnedMemory::~PinnedMemory() {
  for (const auto& [address, piece] : held_) end(*piece);
  for (const Owner& piece : freed_) {
    if (piece->loan != nullptr) piece->loan->wait();
    end(*piece);
  }
  static_cast<void>(end_pool(pool_));
}

bp_status PinnedMemory::allocate(uint64_t size_bytes, void** out_memory) {
  if (!has_heap_) {
    return fail(BP_UNSUPPORTED, std::string("pinned.allocate: ") + target_.name +
                                    " has no heap that is host_visible and host_coherent; use "
                                    "other memory of the host");
  }
  if (size_bytes == 0) {
    *out_memory = nullptr;
    return BP_OK;
  }
  sweep(false);
  const bp_status status = take(size_bytes, out_memory);
  if (status != BP_OUT_OF_MEMORY) return status;
  sweep(true);
  return take(size_bytes, out_memory);
}

bp_status PinnedMemory::take(uint64_t size_bytes, void** out_memory) {
  bp_block* block = nullptr;
  bp_status status = caches_.get(source_, pool_).take(target_.default_stream, size_bytes, &block);
  if (status != BP_OK) return status;
  BlockHandle owned(block);
  const bp_allocator_ops& memory = *target_.allocator;
  void* pointer = nullptr;
  status = memory.map(memory.self, &block->ref, &pointer);
  if (status != BP_OK) return status;
  const auto piece = std::make_shared<Piece>(Piece{block, static_cast<unsigned char*>(pointer)});
  const std::lock_guard lock(mutex_);
  held_.emplace(reinterpret_cast<uintptr_t>(pointer), piece);
  static_cast<void>(owned.release());
  *out_memory = pointer;
  return BP_OK;
}

PinnedMemory::Owner PinnedMemory::find_piece(const void* memory) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(reinterpret_cast<uintptr_t>(memory));
  return found == held_.end() ? nullptr : found->second;
}

PinnedMemory::Place PinnedMemory::find(const void* begin, uint64_t size_bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(begin);
  const std::lock_guard lock(mutex_);
  auto found = held_.upper_bound(address);
  if (found == held_.begin()) return {};
  const Piece& piece = *(--found)->second;
  const bp_buffer_ref& ref = piece.block->ref;
  const uint64_t offset = address - found->first;
  if (offset >= ref.size_bytes || size_bytes > ref.size_bytes - offset) return {};
  if (!is_direct_) return {piece.memory, {}};
  return {piece.memory, {ref.buffer, ref.byte_offset + offset, size_bytes}};
}

// A stream may end, and another one have its address, so that each record has an event of its own.
bp_status PinnedMemory::record(Piece& piece, bp_stream* stream) {
  const bp_event_ops& events = *target_.events;
  bp_event* event = nullptr;
  bp_status status = events.create(events.self, target_.device, nullptr, &event);
  if (status != BP_OK) return status;
  status = events.record(events.self, event, stream);
  if (status == BP_OK) {
    const std::lock_guard lock(mutex_);
    piece.events.push_back(event);
    return BP_OK;
  }
  const std::string words = core::take_error();
  static_cast<void>(events.destroy(events.self, event));
  return fail(status, words);
}

bp_status PinnedMemory::record_stream(void* memory, bp_stream* stream) {
  const Owner piece = find_piece(memory);
  if (piece == nullptr) return not_pinned("record_stream");
  if (is_capturing(target_, stream)) {
    return fail(BP_INVALID_ARGUMENT,
                std::string("pinned.record_stream: the stream captures on ") + target_.name +
                    "; free memory that a graph uses after the graph has ended");
  }
  return record(*piece, stream);
}

void PinnedMemory::use(void* memory, bp_stream* stream) {
  const Owner piece = find_piece(memory);
  if (piece == nullptr || record(*piece, stream) == BP_OK) return;
  const bp_stream_ops& streams = *target_.streams;
  static_cast<void>(streams.synchronize(streams.self, stream, UINT64_MAX));
  core::set_error(nullptr, BP_OK, "");  // A failure of the stream stays there.
}

bp_status PinnedMemory::free_behind(void* memory, std::shared_ptr<const Loan> loan) {
  if (memory == nullptr) return BP_OK;
  {
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(reinterpret_cast<uintptr_t>(memory));
    if (found == held_.end()) return not_pinned("free");
    found->second->loan = std::move(loan);
    freed_.push_back(found->second);
    held_.erase(found);
  }
  sweep(false);
  return BP_OK;
}

// query() may fail because the event carries the failure of its stream. Then synchronize() says
// whether the work has ended, because it returns BP_TIMEOUT as long as the work runs. The work of a
// lost device counts as running until the reset.
bool PinnedMemory::has_ended(bp_event* event) const {
  const bp_event_ops& ops = *target_.events;
  uint32_t done = 0;
  bp_status status = ops.query(ops.self, event, &done);
  if (status == BP_OK) return done != 0;
  if (status != BP_DEVICE_LOST) status = ops.synchronize(ops.self, event, 0);
  return status != BP_TIMEOUT && status != BP_DEVICE_LOST;
}

bool PinnedMemory::has_ended(const Piece& piece, bool waits) const {
  const bp_event_ops& ops = *target_.events;
  if (piece.loan != nullptr) {
    if (waits) piece.loan->wait();
    if (!piece.loan->has_ended()) return false;
  }
  return std::ranges::all_of(piece.events, [&](bp_event* event) {
    if (waits) {
      static_cast<void>(ops.synchronize(ops.self, event, UINT64_MAX));
      return true;
    }
    return has_ended(event);
  });
}

// Gives a piece back to its cache. No work uses it any more.
void PinnedMemory::end(const Piece& piece) {
  const bp_event_ops& events = *target_.events;
  for (bp_event* event : piece.events) static_cast<void>(events.destroy(events.self, event));
  const bp_allocator_ops& memory = *target_.allocator;
  if (!piece.is_lost) {
    static_cast<void>(memory.unmap(memory.self, piece.block->ref.buffer, piece.memory));
  }
  static_cast<void>(Cache::free(piece.block));
}

void PinnedMemory::sweep(bool waits) {
  std::vector<Owner> freed;
  {
    const std::lock_guard lock(mutex_);
    if (freed_.empty()) return;
    freed.swap(freed_);
  }
  const auto running = std::partition(freed.begin(), freed.end(), [&](const Owner& piece) {
    return piece->is_lost || has_ended(*piece, waits);
  });
  core::set_error(nullptr, BP_OK, "");  // A failure of the work is that of its stream.
  for (auto piece = freed.begin(); piece != running; ++piece) end(**piece);
  const std::lock_guard lock(mutex_);
  freed_.insert(freed_.end(), running, freed.end());
}

bp_status PinnedMemory::trim() {
  sweep(false);
  return caches_.trim(*pool_);
}

void PinnedMemory::wait_for_others() const {
  std::vector<std::shared_ptr<const Loan>> loans;
  {
    const std::lock_guard lock(mutex_);
    for (const Owner& piece : freed_) {
      if (piece->loan != nullptr) loans.push_back(piece->loan);
    }
  }
  for (const auto& loan : loans) loan->wait_for_writing();
}

void PinnedMemory::forget() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, piece] : held_) piece->is_lost = true;
    for (const Owner& piece : freed_) piece->is_lost = true;
  }
  sweep(false);
}

}  // namespace bp::services
