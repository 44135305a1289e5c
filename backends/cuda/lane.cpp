#include "backends/cuda/lane.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "backends/cuda/stream.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::cuda {

// ---- Bad data -----------------------------------------------------------------------------------

BadDataSlot::BadDataSlot(Device& device)
    : device_(device), report_(device.take_bad_data_report()) {}

BadDataSlot::~BadDataSlot() { device_.give_back(report_); }

// The name is stored before the number is given to a launch, so that a report of the launch finds
// its name.
Reporter BadDataSlot::next(const CheckedIndices& checked) {
  const std::lock_guard lock(mutex_);
  const uint32_t launch = last_.load(std::memory_order_relaxed) + 1;
  launches_[launch % launches_.size()] = checked;
  last_.store(launch, std::memory_order_release);
  return {report_, launch};
}

uint32_t BadDataSlot::reported() const {
  return std::atomic_ref(report_->launch).load(std::memory_order_acquire);
}

std::string BadDataSlot::text() const {
  const std::lock_guard lock(mutex_);
  const uint32_t launch = reported();
  const int64_t index = std::atomic_ref(report_->index).load(std::memory_order_relaxed);
  const bool is_kept = last_.load(std::memory_order_relaxed) - launch < launches_.size();
  if (!is_kept) return "a kernel: an index is " + std::to_string(index) + ", which is out of range";
  const CheckedIndices& checked = launches_[launch % launches_.size()];
  const uint64_t place = std::atomic_ref(report_->place).load(std::memory_order_relaxed);
  const auto distance = static_cast<int64_t>(place - reinterpret_cast<uintptr_t>(checked.first));
  return bad_index_text(checked.op, checked.argument, distance / checked.item_size_bytes, index,
                        checked.extent);
}

// ---- Native events ------------------------------------------------------------------------------

NativeEvent::NativeEvent(Device& device, bool is_timed) : device_(device) {
  const Current current(device);
  check(device.driver(),
        device.driver().cudaEventCreateWithFlags(
            &event_, is_timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
}

// Streams that wait for the event go on waiting.
NativeEvent::~NativeEvent() {
  device_.quietly([this](const Driver& driver) { driver.cudaEventDestroy(event_); });
}

bool NativeEvent::is_complete() const {
  const Current current(device_);
  const cudaError_t error = device_.driver().cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    device_.driver().cudaGetLastError();
    return false;
  }
  check(device_.driver(), error, "cudaEventQuery");
  return true;
}

void NativeEvent::synchronize() const {
  const Current current(device_);
  check(device_.driver(), device_.driver().cudaEventSynchronize(event_), "cudaEventSynchronize");
}

// ---- Lanes --------------------------------------------------------------------------------------

std::shared_ptr<Lane> make_lane(Device& device, int32_t priority) {
  const Driver& driver = device.driver();
  const Current current(device);
  int least = 0, greatest = 0;  // CUDA's priorities go down: the greatest is the lowest number.
  check(driver, driver.cudaDeviceGetStreamPriorityRange(&least, &greatest),
        "cudaDeviceGetStreamPriorityRange");
  const int native_priority = std::clamp(priority < -least ? least : -priority, greatest, least);
  cudaStream_t native = nullptr;
  check(driver,
        driver.cudaStreamCreateWithPriority(&native, cudaStreamNonBlocking, native_priority),
        "cudaStreamCreateWithPriority");
  return std::make_shared<Lane>(device, native, true);
}

Lane::Lane(Device& device, cudaStream_t native, bool is_owner)
    : device_(device),
      native_(native),
      is_owner_(is_owner),
      queue_(std::make_shared<Queue>(*device.owner().host, device.owner().executor, false)) {}

// Submitted work still runs, because cudaStreamDestroy() does not wait for it.
Lane::~Lane() {
  std::vector<std::shared_ptr<BadDataSlot>> slots;
  for (BadDataMark& mark : inherited_) slots.push_back(std::move(mark.slot));
  if (slot_ != nullptr) slots.push_back(std::move(slot_));
  if (!is_owner_) {
    // The caller may have ended the CUDA stream, so nothing can tell when its work has ended.
    if (!slots.empty()) device_.end_with_handles([slots = std::move(slots)] {});
    return;
  }
  retire(std::move(slots));
  device_.quietly([this](const Driver& driver) { driver.cudaStreamDestroy(native_); });
}

// Returns whether something other than the queue has failed the stream.
bool Lane::has_own_failure() {
  if (device_.is_lost()) return true;
  if (has_marks_.load(std::memory_order_acquire)) look_for_bad_data();
  return has_failed_.load(std::memory_order_acquire);
}

bp_status Lane::surface() {
  if (has_own_failure()) {
    const Outcome failure = outcome();
    if (failure.status != BP_OK) return device_.owner().fail(failure.status, failure.text);
  }
  return queue_->surface();
}

bp_status Lane::admit() {
  if (has_own_failure()) {
    const Outcome failure = outcome();
    if (failure.status != BP_OK) return refuse_behind(*device_.owner().host, failure);
  }
  return queue_->admit();
}

// After a failure of the queue no work is submitted. So bad data was met by earlier work, and is
// the first failure, even if it is seen later.
void Lane::look_for_bad_data() {
  const std::lock_guard lock(mutex_);
  if (failure_.status != BP_OK) return;
  const auto take = [&](const BadDataSlot& slot) {
    failure_ = {.status = BP_DATA_FAILURE, .text = slot.text(), .lets_queued_work_run = true};
    has_failed_.store(true, std::memory_order_release);
  };
  if (slot_ != nullptr && slot_->reported() != 0) return take(*slot_);
  for (const BadDataMark& mark : inherited_) {
    if (mark.has_fired()) return take(*mark.slot);
  }
}

bp_status Lane::submit_always(std::function<void(const Outcome&)> task) {
  return queue_->submit_always(
      [lane = shared_from_this(), task = std::move(task)](const Outcome& before) {
        const Outcome outcome = lane->outcome();
        task(outcome.status == BP_OK ? before : outcome);
      },
      true);
}

// Returns a copy, because the host is told without a lock.
Outcome Lane::outcome() {
  if (!has_own_failure()) return {};
  if (device_.is_lost()) return {.status = BP_DEVICE_LOST, .text = device_.loss()};
  const std::lock_guard lock(mutex_);
  return failure_;
}

bp_status Lane::wait_for(const std::shared_ptr<Record>& record) {
  const bp_status status = admit();
  if (status != BP_OK) return status;
  const auto wait = [this, record] {
    if (record->native == nullptr) return;
    check(device_.driver(), device_.driver().cudaStreamWaitEvent(native_, record->native->get(), 0),
          "cudaStreamWaitEvent");
    inherit(record->marks);
  };
  const bool has_come = record->submitted->is_complete();
  if (has_come && record->submitted->outcome().status == BP_OK) return submit(wait);
  const bp_status held = queue_->wait_for(record->submitted);
  return held == BP_OK && !has_come ? hold(wait) : held;
}

bp_status Lane::wait_for(const std::shared_ptr<Point>& point) {
  const bp_status status = admit();
  return status == BP_OK ? queue_->wait_for(point) : status;
}

Reporter Lane::next_reporter(const CheckedIndices& checked) {
  const std::lock_guard lock(mutex_);
  if (slot_ == nullptr || slot_->last() == UINT32_MAX) {
    if (slot_ != nullptr) retire({std::move(slot_)});
    slot_ = std::make_shared<BadDataSlot>(device_);
    has_marks_.store(true, std::memory_order_release);
  }
  return slot_->next(checked);
}

void Lane::use(std::shared_ptr<BadDataSlot> slot) {
  const std::lock_guard lock(mutex_);
  slot_ = std::move(slot);
}

std::vector<BadDataMark> Lane::marks() {
  if (!has_marks_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  std::vector<BadDataMark> marks = inherited_;
  if (slot_ != nullptr) marks.push_back({slot_, slot_->last()});
  return marks;
}

void Lane::inherit(const std::vector<BadDataMark>& marks) {
  if (marks.empty()) return;
  const std::lock_guard lock(mutex_);
  for (const BadDataMark& mark : marks) {
    const auto known = std::ranges::find(inherited_, mark.slot, &BadDataMark::slot);
    if (mark.slot == slot_) continue;
    if (known == inherited_.end()) {
      inherited_.push_back(mark);
    } else {
      known->last = std::max(known->last, mark.last);
    }
  }
  has_marks_.store(true, std::memory_order_release);
}

// Returns true if `error` says that the work has ended. The work of a lost device has ended.
bool Lane::has_ended(cudaError_t error, const char* what) {
  if (error == cudaErrorNotReady) {
    device_.driver().cudaGetLastError();
    return false;
  }
  try {
    check(device_.driver(), error, what);
  } catch (const CudaError& e) {
    device_.note(e);
    if (!device_.is_lost()) throw;
  }
  return true;
}

bool Lane::is_done() { return queue_->is_idle() && has_ended_on_device(); }

bool Lane::has_ended_on_device() {
  if (device_.is_lost()) return true;
  const Current current(device_);
  return has_ended(device_.driver().cudaStreamQuery(native_), "cudaStreamQuery");
}

bool Lane::wait(uint64_t timeout_ns) {
  const Deadline deadline(timeout_ns);
  if (!queue_->wait(timeout_ns)) return false;
  if (device_.is_lost()) return true;
  std::vector<BadDataMark> awaited;
  {
    const std::lock_guard lock(mutex_);
    awaited = inherited_;
  }
  const Current current(device_);
  if (timeout_ns == UINT64_MAX) {
    has_ended(device_.driver().cudaStreamSynchronize(native_), "cudaStreamSynchronize");
  } else if (!poll(deadline.left_ns(), [this] {
               return has_ended(device_.driver().cudaStreamQuery(native_), "cudaStreamQuery");
             })) {
    return false;
  }
  forget(awaited);
  return true;
}

// Launches that have ended without a report never make one.
void Lane::forget(const std::vector<BadDataMark>& ended) {
  const std::lock_guard lock(mutex_);
  std::erase_if(inherited_, [&](const BadDataMark& mark) {
    return !mark.has_fired() && std::ranges::any_of(ended, [&](const BadDataMark& other) {
      return other.slot == mark.slot && other.last == mark.last;
    });
  });
}

void Lane::clear_failure() {
  queue_->clear_failure();
  const std::lock_guard lock(mutex_);
  failure_ = {};
  has_failed_.store(false, std::memory_order_release);
  // Launches that still run may write to the old reports, which nobody reads any more.
  std::vector<std::shared_ptr<BadDataSlot>> old;
  if (slot_ != nullptr && slot_->reported() != 0) old.push_back(std::move(slot_));
  std::erase_if(inherited_, [&](const BadDataMark& mark) {
    const bool has_fired = mark.has_fired();
    if (has_fired) old.push_back(mark.slot);
    return has_fired;
  });
  retire(std::move(old));
}

// Keeps the slots until the work submitted so far, which may report there, has ended.
void Lane::retire(std::vector<std::shared_ptr<BadDataSlot>> slots) {
  if (!slots.empty()) device_.end_later([slots = std::move(slots)] {}, native_);
}

// Fails the stream. A held stream fails when its queue reaches the failure.
void Lane::fail(bp_status status, const std::string& text) {
  if (!is_free()) {
    static_cast<void>(queue_->submit([=] { throw StatusError(status, text); }));
    return;
  }
  fail_now(status, text);
}

void Lane::fail_now(bp_status status, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (failure_.status != BP_OK || queue_->has_failed()) return;
  failure_ = {.status = status, .text = text};
  has_failed_.store(true, std::memory_order_release);
}

// ---- The recorder -------------------------------------------------------------------------------

Recorder::Recorder(Device& device)
    : device_(device),
      lock_(device.recording_mutex()),
      stream_(device.recorder()),
      slot_(std::make_shared<BadDataSlot>(device)) {
  lane().use(slot_);
}

bool poll(uint64_t timeout_ns, const std::function<bool()>& done) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  auto pause = std::chrono::nanoseconds(0);
  while (!done()) {
    const auto passed = static_cast<uint64_t>((Clock::now() - begin).count());
    if (passed >= timeout_ns) return false;
    if (pause.count() == 0) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
    }
    // At first it polls without a pause, because the end is near. Later the pauses grow.
    if (passed > 50'000) pause = std::chrono::nanoseconds(std::min<uint64_t>(passed / 16, 200'000));
  }
  return true;
}

}  // namespace bp::cuda
