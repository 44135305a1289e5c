#include "registry/services/captures.hpp"

#include <algorithm>
#include <utility>

#include "registry/boundary/error_slot.hpp"
#include "registry/services/cache_set.hpp"

namespace bp::services {

CaptureParts::CaptureParts(CacheSet& caches, std::shared_ptr<LaunchRecorder> recorder)
    : pool_(caches.create_pool("capture", true)), recorder_(std::move(recorder)) {}

CaptureParts::~CaptureParts() {
  if (end() != BP_OK) static_cast<void>(core::take_error());
}

void CaptureParts::keep(std::shared_ptr<const void> kept, bp_block* block) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::count(kept_, kept, &Kept::object) != 0) return;
  kept_.push_back({std::move(kept), block});
}

bp_status CaptureParts::use(bp_stream* stream) {
  pool_->caches->add_user(*pool_, stream);
  const std::lock_guard lock(mutex_);
  for (const Kept& kept : kept_) {
    if (kept.block == nullptr) continue;
    const bp_status status = Cache::record_stream(kept.block, stream);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

uint64_t CaptureParts::kept_count() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

bp_status CaptureParts::end() {
  std::vector<Kept> ending;
  {
    const std::lock_guard lock(mutex_);
    ending.swap(kept_);
  }
  ending.clear();
  return end_pool(std::exchange(pool_, nullptr));
}

void Captures::add(uint64_t id, std::shared_ptr<CaptureParts> parts) {
  const std::lock_guard lock(mutex_);
  open_.push_back({id, nullptr, std::move(parts)});
  count_.fetch_add(1, std::memory_order_relaxed);
}

bool Captures::add_program(bp_stream* stream, std::shared_ptr<CaptureParts> parts) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::count(open_, stream, &Open::stream) != 0) return false;
  open_.push_back({0, stream, std::move(parts)});
  ++program_count_;
  count_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Captures::remove(const CaptureParts& parts) {
  std::shared_ptr<CaptureParts> last;  // It ends after the unlock.
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(open_, [&](const Open& open) { return open.parts.get() == &parts; });
  if (found == open_.end()) return;
  if (found->stream != nullptr) --program_count_;
  last = std::move(found->parts);
  open_.erase(found);
  count_.fetch_sub(1, std::memory_order_relaxed);
}

bp_status Captures::find(bp_stream* stream, std::shared_ptr<CaptureParts>& out_parts) const {
  out_parts = nullptr;
  if (stream == nullptr) stream = target_.default_stream;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(open_, stream, &Open::stream);
    if (found != open_.end()) out_parts = found->parts;
    // Without captures of the backend there is nothing to ask the backend, which may have none.
    if (out_parts != nullptr || program_count_ == open_.size()) return BP_OK;
  }
  bp_capture_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_CAPTURE_INFO;
  const bp_graph_ops& graphs = *target_.graphs;
  const bp_status status = graphs.capture_info(graphs.self, stream, &info);
  if (status != BP_OK || info.capture_id == 0) return status;
  const std::lock_guard lock(mutex_);
  for (const Open& open : open_) {
    if (open.id == info.capture_id) out_parts = open.parts;
  }
  return BP_OK;
}

bp_status Captures::keep(bp_stream* stream, std::shared_ptr<const void> kept,
                         bp_block* block) const {
  std::shared_ptr<CaptureParts> parts;
  const bp_status status = find(stream, parts);
  if (parts != nullptr) parts->keep(std::move(kept), block);
  return status;
}

}  // namespace bp::services
