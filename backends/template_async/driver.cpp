// The pretended driver. Nothing else in this backend knows that the device is pretended.
#include "driver.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "backplane/shell/bytes.hpp"
#include "backplane/shell/entry.hpp"

namespace acme_async {

std::vector<DeviceInfo> find_devices() {
  constexpr uint64_t kBytes = uint64_t{1} << 30;
  return {{.name = "pretended device",
           .device_class = BP_DEVICE_SIMULATED,
           .memory_bytes = kBytes,
           .max_allocation_bytes = kBytes}};
}

// ---- Memory -------------------------------------------------------------------------------------

bool Context::take(uint64_t size_bytes) {
  uint64_t used = used_bytes_;
  do {
    if (size_bytes > memory_bytes_ - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + size_bytes));
  return true;
}

Memory::Memory(std::shared_ptr<Context> context, uint64_t size_bytes)
    : context_(std::move(context)),
      size_bytes_(size_bytes),
      bytes_(new std::byte[std::max<uint64_t>(size_bytes, 1)]) {
  if (context_->take(size_bytes)) return;
  bp::refuse(BP_OUT_OF_MEMORY, "allocate: " + std::to_string(size_bytes) +
                                   " bytes were asked for, and the device has " +
                                   std::to_string(context_->free_bytes()) + " free");
}

Memory::~Memory() { context_->give_back(size_bytes_); }

// ---- Commands -----------------------------------------------------------------------------------

CommandQueue::~CommandQueue() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CommandQueue::copy(const Place& dst, const Place& src, uint64_t size_bytes) {
  run([=] {
    std::byte* const to = dst.memory->bytes() + dst.byte_offset;
    const std::byte* const from = src.memory->bytes() + src.byte_offset;
    if (to != from) bp::copy_bytes(to, from, size_bytes);
  });
}

void CommandQueue::write(const Place& dst, const std::byte* src, uint64_t size_bytes,
                         std::shared_ptr<const void> kept) {
  run([=, kept = std::move(kept)] {
    bp::copy_bytes(dst.memory->bytes() + dst.byte_offset, src, size_bytes);
  });
}

void CommandQueue::read(std::byte* dst, const Place& src, uint64_t size_bytes,
                        std::shared_ptr<const void> kept) {
  run([=, kept = std::move(kept)] {
    bp::copy_bytes(dst, src.memory->bytes() + src.byte_offset, size_bytes);
  });
}

void CommandQueue::fill(const Place& dst, uint64_t size_bytes, const std::byte* pattern,
                        uint64_t pattern_size_bytes) {
  std::array<std::byte, bp::kMaxPatternBytes> bytes{};
  std::copy_n(pattern, pattern_size_bytes, bytes.begin());
  run([=] {
    bp::fill_bytes(dst.memory->bytes() + dst.byte_offset, size_bytes, bytes.data(),
                   pattern_size_bytes);
  });
}

void CommandQueue::run(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(task));
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
}

void CommandQueue::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return commands_.empty() && !is_running_; });
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

// The pretended device. It runs the commands behind a failed one too.
void CommandQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_stopping_ || !commands_.empty(); });
    if (commands_.empty()) return;
    std::function<void()> command = std::move(commands_.front());
    commands_.pop_front();
    is_running_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      command();
    } catch (...) {
      failure = std::current_exception();
    }
    command = nullptr;  // It lets go of its memory before anyone learns that it has ended.
    lock.lock();
    if (failure_ == nullptr) failure_ = failure;
    is_running_ = false;
    changed_.notify_all();
  }
}

}  // namespace acme_async
