#include "backends/cuda/device.hpp"

#include <algorithm>
#include <cstring>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/staging.hpp"
#include "backends/cuda/stream.hpp"

namespace bp::cuda {

// What waits for an event to end.
struct Device::Ending {
  Ending(Device& device, std::function<void()> its_end)
      : end(std::move(its_end)), event(device, false) {}
  std::function<void()> end;
  NativeEvent event;
};

Device::Device(Instance& instance, const Site& site)
    : instance_(instance),
      name_(site.name),
      bus_id_(site.bus_id),
      ordinal_(site.ordinal),
      staging_(std::make_unique<StagingBlocks>(*this)) {}

// ---- Context and loss ---------------------------------------------------------------------------

CUcontext Device::context() {
  if (CUcontext made = context_.load(std::memory_order_acquire); made != nullptr) return made;
  open();
  const std::lock_guard lock(opening_);
  if (CUcontext made = context_.load(std::memory_order_relaxed); made != nullptr) return made;
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(driver(), driver().cuDeviceGet(&device, ordinal_), "cuDeviceGet");
  check(driver(), driver().cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  context_.store(context, std::memory_order_release);
  return context;
}

Current::Current(Device& device) : driver_(device.driver()) {
  const CUcontext wanted = device.context();
  check(driver_, driver_.cuCtxGetCurrent(&previous_), "cuCtxGetCurrent");
  if (previous_ == wanted) return;
  check(driver_, driver_.cuCtxSetCurrent(wanted), "cuCtxSetCurrent");
  is_changed_ = true;
}

Current::~Current() {
  if (is_changed_) driver_.cuCtxSetCurrent(previous_);
}

void Device::note(const CudaError& error) {
  if (failure_of(error.error()) != Failure::kLoss) return;
  {
    const std::lock_guard lock(mutex_);
    if (is_lost_) return;
    loss_ = name_ + " is lost: " + error.what() +
            "; CUDA serves this process no more: end it and start another";
    is_lost_.store(true, std::memory_order_release);
  }
  lose_semaphores({.status = BP_DEVICE_LOST, .text = loss_});
}

bool Device::settle(uint64_t timeout_ns) const {
  return poll(timeout_ns, [this] {
    return std::ranges::all_of(streams_.live_work(), [](const std::shared_ptr<Lane>& lane) {
      return lane->has_ended_on_device();
    });
  });
}

// Ends the handles. All devices do this before one device ends, because events may have been
// recorded on other devices.
void Device::end_handles() {
  events_.delete_all();
  semaphores_.delete_all();
  streams_.delete_all();
  buffers_.end_all([](Buffer* buffer) {
    buffer->memory().end();
    delete buffer;
  });
  recorder_.reset();
  buried_.clear();
  for (const std::unique_ptr<Ending>& ending : endings_) ending->end();
  for (const auto& end : kept_) end();
  kept_.clear();
  endings_.clear();
}

// When the process exits, the driver may already be gone. Calls that fail for this reason had
// nothing to free.
Device::~Device() {
  if (!has_context()) return;
  quietly([this](const Driver& driver) {
    staging_->clear();
    for (void* const page : report_pages_) driver.cudaFreeHost(page);
    if (memory_stream_ != nullptr) driver.cudaStreamDestroy(memory_stream_);
    if (pool_ != nullptr) driver.cudaMemPoolDestroy(pool_);
  });
  CUdevice device = 0;
  if (driver().cuDeviceGet(&device, ordinal_) == CUDA_SUCCESS) {
    driver().cuDevicePrimaryCtxRelease(device);
  }
}

// ---- Memory that all handles share --------------------------------------------------------------

// Makes the pool, which caches nothing, because the host caches. Allocations have their own stream,
// on which nothing else runs, so that a wait for them returns at once. The pool is also told not to
// make an allocation wait for streams that still use freed memory.
void Device::make_pool() {
  const Current current(*this);
  cudaStream_t stream = nullptr;
  check(driver(), driver().cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0),
        "cudaStreamCreateWithPriority");
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = ordinal_;
  cudaMemPool_t pool = nullptr;
  int waits = 0;
  try {
    check(driver(), driver().cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
    check(driver(),
          driver().cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &waits),
          "cudaMemPoolSetAttribute");
  } catch (const CudaError&) {
    if (pool != nullptr) driver().cudaMemPoolDestroy(pool);
    driver().cudaStreamDestroy(stream);
    throw;
  }
  memory_stream_ = stream;
  pool_.store(pool, std::memory_order_release);
}

cudaMemPool_t Device::pool() {
  if (cudaMemPool_t made = pool_.load(std::memory_order_acquire); made != nullptr) return made;
  static_cast<void>(context());
  if (!has_pool_) return nullptr;
  const std::lock_guard lock(opening_);
  if (pool_.load(std::memory_order_relaxed) == nullptr) make_pool();
  return pool_;
}

cudaStream_t Device::memory_stream() { return memory_stream_; }

std::shared_ptr<Lane> Device::recorder() {
  if (recorder_ == nullptr) recorder_ = make_lane(*this, 0);
  return recorder_;
}

BadDataReport* Device::take_bad_data_report() {
  constexpr size_t kReportsPerPage = 256;
  const std::lock_guard lock(reports_mutex_);
  if (free_reports_.empty()) {
    const Current current(*this);
    void* page = nullptr;
    check(driver(),
          driver().cudaHostAlloc(&page, kReportsPerPage * sizeof(BadDataReport),
                                 cudaHostAllocMapped | cudaHostAllocPortable),
          "cudaHostAlloc");
    std::memset(page, 0, kReportsPerPage * sizeof(BadDataReport));
    report_pages_.push_back(page);
    auto* const reports = static_cast<BadDataReport*>(page);
    for (size_t i = kReportsPerPage; i > 0; --i) free_reports_.push_back(reports + i - 1);
  }
  BadDataReport* const report = free_reports_.back();
  free_reports_.pop_back();
  return report;
}

void Device::give_back(BadDataReport* report) {
  const std::lock_guard lock(reports_mutex_);
  *report = {};
  free_reports_.push_back(report);
}

void Device::enable_peer(Device& peer) {
  if (&peer == this) return;
  const cudaMemPool_t pool = peer.pool();
  const CUcontext others = peer.context();
  static_cast<void>(others);
  static_cast<void>(context());
  const std::lock_guard lock(opening_);
  if (peers_.contains(&peer)) return;
  int can = 0;
  check(driver(), driver().cudaDeviceCanAccessPeer(&can, ordinal_, peer.ordinal_),
        "cudaDeviceCanAccessPeer");
  if (can != 0) {
    const Current current(*this);
    const cudaError_t error = driver().cudaDeviceEnablePeerAccess(peer.ordinal_, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      driver().cudaGetLastError();
    } else {
      check(driver(), error, "cudaDeviceEnablePeerAccess");
    }
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = ordinal_;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    if (pool != nullptr) {
      check(driver(), driver().cudaMemPoolSetAccess(pool, &access, 1), "cudaMemPoolSetAccess");
    }
  }
  peers_.insert(&peer);
}

// A request for less than before would take back what another launch relies on.
cudaError_t Device::allow_shared_bytes(const void* kernel, size_t bytes) {
  const std::lock_guard lock(shared_mutex_);
  size_t& allowed = shared_bytes_[kernel];
  if (allowed >= bytes) return cudaSuccess;
  const cudaError_t error = driver().cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) allowed = bytes;
  return error;
}

// ---- Handles ------------------------------------------------------------------------------------

Stream* Device::create_stream(int32_t priority) {
  return streams_.add(std::make_unique<Stream>(make_lane(*this, priority)));
}

Stream* Device::default_stream() {
  return streams_.default_stream([this] { return std::make_unique<Stream>(make_lane(*this, 0)); });
}

Stream* Device::wrap_stream(cudaStream_t native) {
  Stream* const known =
      streams_.add_copy([native](const Stream& stream) { return stream.lane->native() == native; });
  if (known != nullptr) return known;
  return streams_.add(std::make_unique<Stream>(std::make_shared<Lane>(*this, native, false)));
}

void Device::bury(std::shared_ptr<Lane> lane) {
  const std::lock_guard lock(mutex_);
  buried_.push_back(std::move(lane));
}

// Returns whether the event of `ending` has come. It never fails, because callers sweep beside
// other work. If CUDA cannot answer, a later sweep asks again, unless the device is lost.
bool Device::has_come(const Ending& ending) {
  try {
    return ending.event.is_complete();
  } catch (const CudaError& e) {
    return failure_of(e.error()) == Failure::kLoss;
  }
}

void Device::sweep() {
  // They are destroyed after the lock is released.
  std::vector<std::shared_ptr<Lane>> lanes;
  std::vector<std::unique_ptr<Ending>> ended;
  {
    const std::lock_guard lock(mutex_);
    lanes.swap(buried_);
    for (size_t i = 0; i < endings_.size();) {
      if (!has_come(*endings_[i])) {
        ++i;
        continue;
      }
      ended.push_back(std::move(endings_[i]));
      endings_[i] = std::move(endings_.back());
      endings_.pop_back();
    }
  }
  for (const std::unique_ptr<Ending>& ending : ended) ending->end();
}

void Device::end_later(std::function<void()> end, cudaStream_t stream) {
  std::unique_ptr<Ending> ending;
  try {
    const Current current(*this);
    ending = std::make_unique<Ending>(*this, end);
    check(driver(), driver().cudaEventRecord(ending->event.get(), stream), "cudaEventRecord");
  } catch (const CudaError& e) {
    note(e);
    return end_with_handles(std::move(end));
  }
  const std::lock_guard lock(mutex_);
  endings_.push_back(std::move(ending));
}

void Device::end_with_handles(std::function<void()> end) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(end));
}

void Device::destroy_stream(Stream* stream) {
  sweep();
  DeviceHandles::destroy_stream(stream);
}

bool Device::add(Buffer* buffer) {
  return buffers_.add(buffer, buffer->address, buffer->kind != BufferKind::kWrapped);
}

}  // namespace bp::cuda
