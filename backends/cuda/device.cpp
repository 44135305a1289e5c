#include "backends/cuda/device.hpp"

#include <algorithm>
#include <cstring>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/staging.hpp"
#include "backends/cuda/stream.hpp"
#include "backplane/shell/deadline.hpp"

namespace bp::cuda {

// Memory whose end waits for an event.
struct Device::Ending {
  Ending(Device& device, const OwnedMemory& its_memory)
      : memory(its_memory), event(device, false) {}
  OwnedMemory memory;
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
  const std::lock_guard lock(mutex_);
  if (is_lost_) return;
  loss_ = name_ + " is lost: " + error.what() +
          "; CUDA serves this process no more: end it and start another";
  is_lost_.store(true, std::memory_order_release);
}

// Events may have been recorded on other devices, so all devices end their handles before one ends.
void Device::end_handles() {
  for (Event* const event : events_) delete event;
  for (Stream* const stream : streams_) delete stream;
  for (Buffer* const buffer : buffers_) {
    buffer->memory().end();
    delete buffer;
  }
  for (const std::unique_ptr<Ending>& ending : endings_) ending->memory.end();
  for (const OwnedMemory& memory : kept_) memory.end();
  kept_.clear();
  events_.clear();
  streams_.clear();
  buffers_.clear();
  endings_.clear();
  buried_.clear();
  recorder_.reset();
}

// At the exit of the process the driver may be gone before: what fails then had nothing left to
// free.
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

// The pool keeps nothing back: caching is the host's. Allocation is on a stream of its own, on
// which nothing else runs, so that waiting for it waits for nothing; nor may the pool let it wait
// for streams whose work still uses what was freed behind it, as it would by itself.
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

FaultReport* Device::take_fault_report() {
  constexpr size_t kReportsPerPage = 256;
  const std::lock_guard lock(reports_mutex_);
  if (free_reports_ == 0) {
    const Current current(*this);
    void* page = nullptr;
    check(driver(),
          driver().cudaHostAlloc(&page, kReportsPerPage * sizeof(FaultReport),
                                 cudaHostAllocMapped | cudaHostAllocPortable),
          "cudaHostAlloc");
    std::memset(page, 0, kReportsPerPage * sizeof(FaultReport));
    report_pages_.push_back(page);
    free_reports_ = kReportsPerPage;
  }
  return static_cast<FaultReport*>(report_pages_.back()) + --free_reports_;
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

// ---- Handles ------------------------------------------------------------------------------------

Stream* Device::add(std::shared_ptr<Lane> lane) {
  auto stream = std::make_unique<Stream>();
  stream->lane = std::move(lane);
  const std::lock_guard lock(mutex_);
  streams_.insert(stream.get());
  return stream.release();
}

Stream* Device::default_stream() {
  {
    const std::lock_guard lock(mutex_);
    if (default_stream_ != nullptr) return default_stream_;
  }
  Stream* const made = add(make_lane(*this, 0));
  const std::lock_guard lock(mutex_);
  if (default_stream_ == nullptr) {
    default_stream_ = made;
  } else {  // Another thread was quicker.
    streams_.erase(made);
    delete made;
  }
  return default_stream_;
}

bool Device::is_default_stream(const Stream* stream) {
  const std::lock_guard lock(mutex_);
  return stream == default_stream_;
}

std::shared_ptr<Lane> Device::lane_with(cudaStream_t native) {
  {
    const std::lock_guard lock(mutex_);
    for (const Stream* stream : streams_) {
      if (stream->lane->native() == native) return stream->lane;
    }
  }
  return std::make_shared<Lane>(*this, native, false);
}

void Device::bury(std::shared_ptr<Lane> lane) {
  const std::lock_guard lock(mutex_);
  buried_.push_back(std::move(lane));
}

// Never fails: who sweeps does something else. What cannot be asked now is asked again, unless the
// device is lost.
bool Device::has_come(const Ending& ending) {
  try {
    return ending.event.is_complete();
  } catch (const CudaError& e) {
    return failure_of(e.error()) == Failure::kLoss;
  }
}

void Device::sweep() {
  // What they hold ends behind the lock.
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
  for (const std::unique_ptr<Ending>& ending : ended) ending->memory.end();
}

// Where there is no event to wait for, the memory lives as long as the device.
void Device::end_later(const OwnedMemory& memory, Lane& lane) {
  std::unique_ptr<Ending> ending;
  try {
    const Current current(lane.device());
    ending = std::make_unique<Ending>(lane.device(), memory);
    check(driver(), driver().cudaEventRecord(ending->event.get(), lane.native()),
          "cudaEventRecord");
  } catch (const CudaError& e) {
    note(e);
    const std::lock_guard lock(mutex_);
    kept_.push_back(memory);
    return;
  }
  const std::lock_guard lock(mutex_);
  endings_.push_back(std::move(ending));
}

void Device::remove(Stream* stream) {
  sweep();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(closing_, [](const std::weak_ptr<Lane>& lane) { return lane.expired(); });
    closing_.push_back(stream->lane);
    streams_.erase(stream);
  }
  stream->magic = 0;
  delete stream;
}

std::vector<std::shared_ptr<Lane>> Device::live_lanes() {
  std::vector<std::shared_ptr<Lane>> lanes;
  const std::lock_guard lock(mutex_);
  for (const Stream* stream : streams_) lanes.push_back(stream->lane);
  for (const std::weak_ptr<Lane>& closing : closing_) {
    if (std::shared_ptr<Lane> lane = closing.lock()) lanes.push_back(std::move(lane));
  }
  return lanes;
}

bool Device::wait(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  for (const std::shared_ptr<Lane>& lane : live_lanes()) {
    if (!lane->wait(deadline.left_ns())) return false;
  }
  return true;
}

void Device::abandon_work() {
  for (const std::shared_ptr<Lane>& lane : live_lanes()) lane->abandon();
}

bool Device::add(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  const bool is_owner = buffer->kind != BufferKind::kWrapped;
  if (is_owner && !places_.add(buffer->address, buffer->size_bytes, buffer)) return false;
  try {
    buffers_.insert(buffer);
  } catch (...) {
    places_.remove(buffer->address, buffer);
    throw;
  }
  return true;
}

void Device::remove(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  buffers_.erase(buffer);
  places_.remove(buffer->address, buffer);
}

void Device::add(Event* event) {
  const std::lock_guard lock(mutex_);
  events_.insert(event);
}

void Device::remove(Event* event) {
  const std::lock_guard lock(mutex_);
  events_.erase(event);
}

bool Device::find(uint64_t address, bp_address_info& info) {
  const std::lock_guard lock(mutex_);
  Buffer* const found = places_.find(address);
  if (found == nullptr) return false;
  info.device = reinterpret_cast<bp_device*>(this);
  info.buffer = reinterpret_cast<bp_buffer*>(found);
  info.byte_offset = address - found->address;
  info.size_bytes = found->size_bytes;
  return true;
}

// ---- Handles of devices -------------------------------------------------------------------------

Device* device_or_null(const Instance& i, bp_device* handle) {
  for (const std::unique_ptr<Device>& device : i.cards) {
    if (reinterpret_cast<Device*>(handle) == device.get()) return device.get();
  }
  return nullptr;
}

Device& any_device_of(const Instance& i, bp_device* handle, const char* call, const char* what) {
  if (Device* const device = device_or_null(i, handle); device != nullptr) return *device;
  refuse(BP_INVALID_ARGUMENT,
         std::string(call) + ": " + what + " is NULL or not one of this backend");
}

Device& device_of(const Instance& i, bp_device* handle, const char* call, const char* what) {
  Device& device = any_device_of(i, handle, call, what);
  if (device.is_lost()) refuse(BP_DEVICE_LOST, std::string(call) + ": " + device.loss());
  return device;
}

}  // namespace bp::cuda
