#include "backends/vulkan/staging.hpp"

#include <algorithm>
#include <utility>

namespace bp::vulkan {
namespace {

// Returns the coherent heap that suits best. Every device has one.
size_t choose_heap(const Physical& physical, bool is_read_by_host) {
  const auto rank = [&](const PhysicalHeap& heap) {
    if ((heap.flags & BP_HEAP_HOST_COHERENT) == 0) return 0;
    const bool is_local = (heap.flags & BP_HEAP_DEVICE_LOCAL) != 0;
    return is_read_by_host ? ((heap.flags & BP_HEAP_HOST_CACHED) != 0 ? 3 : 1) : (is_local ? 1 : 2);
  };
  const auto best = std::ranges::max_element(physical.heaps, {}, rank);
  return static_cast<size_t>(best - physical.heaps.begin());
}

}  // namespace

Staging::Staging(std::shared_ptr<Context> context, bool is_read_by_host)
    : context_(std::move(context)), heap_(choose_heap(context_->physical, is_read_by_host)) {}

Slice Staging::cut(uint64_t size_bytes) {
  const std::shared_ptr<Memory>& chunk = chunks_.back();
  const uint64_t begin = cut_bytes_;
  cut_bytes_ += (size_bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  return {chunk, begin, size_bytes, chunk->map() + begin};
}

// Moves a chunk that nobody holds to the end, and frees surplus chunks.
bool Staging::find_idle_chunk() {
  const auto is_idle = [](const std::shared_ptr<Memory>& chunk) { return chunk.use_count() == 1; };
  const auto found = std::ranges::find_if(chunks_, is_idle);
  if (found == chunks_.end()) return false;
  std::iter_swap(found, std::prev(chunks_.end()));
  cut_bytes_ = 0;
  auto idle = static_cast<size_t>(std::ranges::count_if(chunks_, is_idle));
  for (size_t k = 0; k + 1 < chunks_.size() && idle > kMostIdleChunks;) {
    if (!is_idle(chunks_[k])) {
      ++k;
      continue;
    }
    chunks_.erase(chunks_.begin() + static_cast<ptrdiff_t>(k));
    --idle;
  }
  return true;
}

Slice Staging::take(uint64_t size_bytes, const char* call) {
  if (size_bytes > kChunkBytes / 4) {  // It is too large to share a chunk.
    auto alone = std::make_shared<Memory>(context_, heap_, size_bytes, kAlignmentBytes, call);
    std::byte* const pointer = alone->map();
    return {std::move(alone), 0, size_bytes, pointer};
  }
  const std::lock_guard lock(mutex_);
  if (!chunks_.empty() && kChunkBytes - cut_bytes_ >= size_bytes) return cut(size_bytes);
  if (!find_idle_chunk()) {
    chunks_.push_back(
        std::make_shared<Memory>(context_, heap_, kChunkBytes, kAlignmentBytes, call));
    cut_bytes_ = 0;
  }
  return cut(size_bytes);
}

}  // namespace bp::vulkan
