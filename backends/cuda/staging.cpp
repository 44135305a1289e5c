#include "backends/cuda/staging.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backplane/shell/bytes.hpp"
#include "backplane/shell/entry.hpp"

namespace bp::cuda {
namespace {

constexpr size_t kMinBlockBytes = 4096;

// How many busy blocks are asked for one that is needed. Each take asks others, in turn.
constexpr size_t kAskedBlocks = 4;

// Returns whether CUDA knows `pointer`, so that it needs no staging.
bool is_pinned(const Driver& driver, const void* pointer) {
  cudaPointerAttributes attributes{};
  const cudaError_t error = driver.cudaPointerGetAttributes(&attributes, pointer);
  if (error != cudaSuccess) {
    driver.cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeManaged;
}

// One step of a copy, which the host makes when the stream reaches it.
struct HostCopy {
  void* to;
  const void* from;
  size_t size_bytes;
  std::shared_ptr<std::byte[]> kept;  // The owner of `from` or `to`, if staged.
};

void CUDART_CB run_host_copy(void* data) {
  const std::unique_ptr<HostCopy> copy(static_cast<HostCopy*>(data));
  std::memcpy(copy->to, copy->from, copy->size_bytes);
}

void submit_host_copy(Lane& lane, HostCopy copy) {
  const Driver& driver = lane.device().driver();
  auto data = std::make_unique<HostCopy>(std::move(copy));
  check(driver, driver.cudaLaunchHostFunc(lane.native(), run_host_copy, data.get()),
        "cudaLaunchHostFunc");
  static_cast<void>(data.release());
}

void submit_copy(Lane& lane, void* to, const void* from, size_t size_bytes, cudaMemcpyKind kind) {
  const Driver& driver = lane.device().driver();
  check(driver, driver.cudaMemcpyAsync(to, from, size_bytes, kind, lane.native()),
        kind == cudaMemcpyHostToDevice ? "copy_from_host" : "copy_to_host");
}

// Holds a block while a copy is submitted with it. Submitted work reads the block even if a later
// step fails.
class BlockInUse {
 public:
  BlockInUse(Lane& lane, size_t size_bytes)
      : lane_(lane), block_(lane.device().staging().take(size_bytes)) {}
  BlockInUse(const BlockInUse&) = delete;
  ~BlockInUse() {
    try {
      lane_.device().staging().give_behind(block_, lane_.native());
    } catch (const StatusError&) {  // It stays with the device, unused.
    } catch (const std::bad_alloc&) {
    }
  }
  std::byte* memory() const { return block_.memory; }

 private:
  Lane& lane_;
  const StagingBlocks::Block block_;
};

// Copies pageable memory part by part. The host fills a block when the stream reaches the part.
void submit_parts_in(Lane& lane, std::byte* to, const std::byte* from, uint64_t size_bytes,
                     const std::shared_ptr<std::byte[]>& kept) {
  const BlockInUse block(lane, std::min<uint64_t>(size_bytes, StagingBlocks::kMaxBlockBytes));
  for (uint64_t done = 0; done < size_bytes;) {
    const uint64_t part = std::min<uint64_t>(size_bytes - done, StagingBlocks::kMaxBlockBytes);
    submit_host_copy(lane, {block.memory(), from + done, part, kept});
    submit_copy(lane, to + done, block.memory(), part, cudaMemcpyHostToDevice);
    done += part;
  }
}

void submit_parts_out(Lane& lane, std::byte* to, const std::byte* from, uint64_t size_bytes,
                      const std::shared_ptr<std::byte[]>& kept) {
  const BlockInUse block(lane, std::min<uint64_t>(size_bytes, StagingBlocks::kMaxBlockBytes));
  for (uint64_t done = 0; done < size_bytes;) {
    const uint64_t part = std::min<uint64_t>(size_bytes - done, StagingBlocks::kMaxBlockBytes);
    submit_copy(lane, block.memory(), from + done, part, cudaMemcpyDeviceToHost);
    submit_host_copy(lane, {to + done, block.memory(), part, kept});
    done += part;
  }
}

// Submits a copy of a few bytes, which are read now.
void submit_small(Lane& lane, std::byte* to, const void* from, uint64_t size_bytes) {
  const BlockInUse block(lane, size_bytes);
  std::memcpy(block.memory(), from, size_bytes);
  submit_copy(lane, to, block.memory(), size_bytes, cudaMemcpyHostToDevice);
}

// Copies through memory that the work keeps, because nothing may write `to` after a timeout. CUDA's
// own copy to pageable memory would block for as long as it takes.
bp_status copy_out_in_time(Lane& lane, void* to, const std::byte* from, uint64_t size_bytes,
                           uint64_t timeout_ns) {
  const std::shared_ptr<Lane> its_lane = lane.shared_from_this();
  const std::shared_ptr<std::byte[]> kept(new std::byte[size_bytes]);
  bp_status status = lane.surface();
  if (status == BP_OK && size_bytes > 0) {
    status = lane.submit([&lane, kept, from, size_bytes] {
      submit_parts_out(lane, kept.get(), from, size_bytes, kept);
    });
  }
  if (status != BP_OK) return status;
  if (!lane.wait(timeout_ns)) refuse_timeout("copy_to_host", timeout_ns);
  status = lane.surface();
  if (status == BP_OK) copy_bytes(to, kept.get(), size_bytes);
  return status;
}

}  // namespace

// ---- Blocks -------------------------------------------------------------------------------------

StagingBlocks::Block StagingBlocks::take(size_t size_bytes) {
  const size_t wanted = std::bit_ceil(std::max(size_bytes, kMinBlockBytes));
  const std::lock_guard lock(mutex_);
  for (size_t asked = 0; asked < kAskedBlocks && !busy_.empty(); ++asked) {
    next_busy_ %= busy_.size();
    if (!busy_[next_busy_].last_use->is_complete()) {
      ++next_busy_;
      continue;
    }
    free_.push_back(std::exchange(busy_[next_busy_], busy_.back()));
    busy_.pop_back();
  }
  const auto found = std::ranges::find(free_, wanted, &Block::size_bytes);
  if (found != free_.end()) {
    Block block = *found;
    free_.erase(found);
    block.last_use = nullptr;
    return block;
  }
  void* memory = nullptr;
  const Driver& driver = device_.driver();
  check(driver, driver.cudaHostAlloc(&memory, wanted, cudaHostAllocPortable), "cudaHostAlloc");
  all_.push_back(static_cast<std::byte*>(memory));
  return {all_.back(), wanted, nullptr};
}

void StagingBlocks::give_behind(Block block, cudaStream_t stream) {
  const Driver& driver = device_.driver();
  block.last_use = std::make_shared<NativeEvent>(device_, false);
  check(driver, driver.cudaEventRecord(block.last_use->get(), stream), "cudaEventRecord");
  const std::lock_guard lock(mutex_);
  busy_.push_back(std::move(block));
}

void StagingBlocks::clear() {
  const std::lock_guard lock(mutex_);
  for (std::byte* const memory : all_) device_.driver().cudaFreeHost(memory);
  all_.clear();
  free_.clear();
  busy_.clear();
}

// ---- Copies -------------------------------------------------------------------------------------

bp_status copy_in(Lane& lane, std::byte* to, const void* from, uint64_t size_bytes,
                  bp_borrow borrow) {
  if (size_bytes == 0) return lane.admit();
  const auto* const bytes = static_cast<const std::byte*>(from);
  if (borrow == BP_BORROW_UNTIL_COMPLETE) {
    return lane.submit([&lane, to, bytes, size_bytes] {
      if (is_pinned(lane.device().driver(), bytes)) {
        return submit_copy(lane, to, bytes, size_bytes, cudaMemcpyHostToDevice);
      }
      submit_parts_in(lane, to, bytes, size_bytes, nullptr);
    });
  }
  if (lane.is_free() && size_bytes <= StagingBlocks::kMaxBlockBytes) {
    return lane.submit([&lane, to, from, size_bytes] { submit_small(lane, to, from, size_bytes); });
  }
  // On an idle stream CUDA's own staging waits only for the copy, and is faster. Where the device
  // reads pageable memory by itself (HMM, ATS), CUDA may return before that.
  if (lane.is_free() && lane.is_done()) {
    const bp_status status = lane.submit([&lane, to, from, size_bytes] {
      submit_copy(lane, to, from, size_bytes, cudaMemcpyHostToDevice);
    });
    if (status == BP_OK) lane.wait(UINT64_MAX);
    return status;
  }
  // The caller may overwrite its bytes as soon as this function returns.
  const std::shared_ptr<std::byte[]> kept(new std::byte[size_bytes]);
  copy_bytes(kept.get(), from, size_bytes);
  return lane.submit([&lane, to, kept, size_bytes] {
    if (size_bytes <= StagingBlocks::kMaxBlockBytes) {
      return submit_small(lane, to, kept.get(), size_bytes);
    }
    submit_parts_in(lane, to, kept.get(), size_bytes, kept);
  });
}

bp_status copy_out(Lane& lane, void* to, const std::byte* from, uint64_t size_bytes,
                   bp_borrow borrow, uint64_t timeout_ns) {
  auto* const bytes = static_cast<std::byte*>(to);
  if (borrow == BP_BORROW_UNTIL_COMPLETE) {
    if (size_bytes == 0) return lane.admit();
    return lane.submit([&lane, bytes, from, size_bytes] {
      if (is_pinned(lane.device().driver(), bytes)) {
        return submit_copy(lane, bytes, from, size_bytes, cudaMemcpyDeviceToHost);
      }
      submit_parts_out(lane, bytes, from, size_bytes, nullptr);
    });
  }
  if (timeout_ns != UINT64_MAX) return copy_out_in_time(lane, to, from, size_bytes, timeout_ns);
  // Waits for what holds the stream back, then in CUDA's own copy.
  const std::shared_ptr<Lane> kept = lane.shared_from_this();
  bp_status status = lane.admit();
  if (status == BP_OK && !lane.is_free()) lane.wait(UINT64_MAX);
  if (status == BP_OK && size_bytes > 0) {
    status = lane.submit([&lane, bytes, from, size_bytes] {
      submit_copy(lane, bytes, from, size_bytes, cudaMemcpyDeviceToHost);
    });
  }
  if (status != BP_OK) return status;
  lane.wait(UINT64_MAX);
  return lane.admit();
}

}  // namespace bp::cuda
