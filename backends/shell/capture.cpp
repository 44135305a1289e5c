#include "backplane/shell/capture.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "backplane/shell/bytes.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/graph.hpp"
#include "backplane/shell/lookup.hpp"

namespace bp {
namespace {

bool overlap(const bp_buffer_ref& a, const bp_buffer_ref& b) {
  return a.buffer == b.buffer && a.byte_offset < b.byte_offset + b.size_bytes &&
         b.byte_offset < a.byte_offset + a.size_bytes;
}

void merge(std::vector<uint64_t>& into, const std::vector<uint64_t>& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

}  // namespace

Captures::Captures(const CaptureBackend& backend) : backend_(backend) {}

Captures::~Captures() {
  for (GraphInstance* instance : instances_) delete instance;
  for (Graph* graph : graphs_) delete graph;
}

// ---- Questions ----------------------------------------------------------------------------------

bool Captures::has_seat(bp_stream* stream) const {
  const std::lock_guard lock(mutex_);
  return seats_.contains(backend_.queue_of(stream));
}

bool Captures::has_mark(bp_event* event) const {
  const std::lock_guard lock(mutex_);
  return marks_.contains(event);
}

Captures::Seat* Captures::find_seat(bp_stream* stream) {
  const auto found = seats_.find(backend_.queue_of(stream));
  return found == seats_.end() ? nullptr : &found->second;
}

bp_status Captures::refuse(const char* call) const {
  return fail(
      BP_INVALID_ARGUMENT,
      std::string(call) +
          ": the stream captures; launches, conversions, copies between buffers, fills, record "
          "and wait are legal");
}

bp_status Captures::refuse_captured(const char* call) const {
  return fail(BP_INVALID_ARGUMENT,
              std::string(call) + ": the latest record of the event was captured, and never ran");
}

bp_status Captures::refuse_kernel(const bp_kernel& kernel) const {
  return fail(BP_INVALID_ARGUMENT, std::string(kernel.name) +
                                       ": the stream captures, and the kernel has no "
                                       "BP_KERNEL_CAPTURABLE");
}

void Captures::check_range(const bp_buffer_ref* range, const std::string& what) const {
  if (range == nullptr) throw StatusError(BP_INVALID_ARGUMENT, what + " is NULL");
  uint64_t size_bytes = 0;
  if (!backend_.size_of(range->buffer, size_bytes)) refuse_buffer(what);
  if (!is_inside(*range, size_bytes)) refuse_range(*range, size_bytes, what);
}

// Returns the bytes of a range that check_range() has checked.
ByteRange Captures::bytes_of(const bp_buffer_ref& range) const {
  return {backend_.address_of(range.buffer) + range.byte_offset, range.size_bytes};
}

bp_status Captures::admit(bp_stream* stream, const char* call) const {
  const bp_status status = backend_.streams.status(backend_.streams.self, stream);
  if (status == BP_OK || status == BP_DEVICE_LOST) return status;
  return fail(BP_STREAM_FAILED, std::string(call) + ": the stream has failed: status() says why");
}

// ---- Begin and end ------------------------------------------------------------------------------

// Returns an id that no other instance of this library gives, because ids grow with the clock.
uint64_t Captures::next_id() {
  const auto now_ns =
      std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  const uint64_t place = reinterpret_cast<uintptr_t>(this) >> 6 & 0x3FF;
  last_id_ = std::max(last_id_ + 0x400, static_cast<uint64_t>(now_ns) << 10 | place);
  return last_id_;
}

std::vector<bp_buffer_ref> Captures::read_slots(const bp_capture_desc& desc) const {
  if (desc.slot_count != 0 && desc.slots == nullptr) {
    throw StatusError(BP_INVALID_ARGUMENT, "begin_capture: slots is NULL, and slot_count is " +
                                               std::to_string(desc.slot_count));
  }
  std::vector<bp_buffer_ref> slots(desc.slots, desc.slots + desc.slot_count);
  for (size_t i = 0; i < slots.size(); ++i) {
    check_range(&slots[i], "begin_capture: slot " + std::to_string(i));
    for (size_t j = 0; j < i; ++j) {
      if (!overlap(slots[i], slots[j])) continue;
      throw StatusError(BP_INVALID_ARGUMENT, "begin_capture: slots " + std::to_string(j) + " and " +
                                                 std::to_string(i) + " overlap");
    }
  }
  return slots;
}

bp_status Captures::begin(bp_stream* stream, const bp_capture_desc* desc) {
  const void* const queue = backend_.queue_of(stream);
  if (queue == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "begin_capture: stream is NULL or not one of this backend");
  }
  const auto request =
      read_desc(desc, kFirstSize<bp_capture_desc>, BP_STRUCT_CAPTURE_DESC, "begin_capture");
  auto capture = std::make_shared<Capture>();
  capture->origin = queue;
  capture->device = backend_.device_of(backend_.streams.self, stream);
  capture->generation = generation_of(backend_.devices, capture->device);
  capture->slots = read_slots(request);
  capture->clocks = {{0}};
  const bp_status status = admit(stream, "begin_capture");
  if (status != BP_OK) return status;
  const std::lock_guard lock(mutex_);
  if (seats_.contains(queue)) {
    throw StatusError(BP_INVALID_ARGUMENT, "begin_capture: the stream captures already");
  }
  capture->id = next_id();
  seats_[queue] = {std::move(capture), 0};
  backend_.hooks->open_captures.fetch_add(1, std::memory_order_relaxed);
  return BP_OK;
}

bp_status Captures::info(bp_stream* stream, bp_capture_info* out_info) {
  if (backend_.queue_of(stream) == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "capture_info: stream is NULL or not one of this backend");
  }
  check_offer(out_info, kFirstSize<bp_capture_info>, "capture_info: out_info");
  const std::lock_guard lock(mutex_);
  const Seat* const seat = find_seat(stream);
  const bool is_on = seat != nullptr;
  out_info->node_count = is_on ? seat->capture->works.size() : 0;
  out_info->capture_id = is_on ? seat->capture->id : 0;
  out_info->is_valid = is_on ? 1 : 0;
  out_info->is_origin = is_on && seat->place == 0 ? 1 : 0;
  return BP_OK;
}

bp_status Captures::end(bp_stream* stream, bp_graph** out_graph) {
  if (backend_.queue_of(stream) == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "end_capture: stream is NULL or not one of this backend");
  }
  auto graph = std::make_unique<Graph>();
  const std::lock_guard lock(mutex_);
  const Seat* const seat = find_seat(stream);
  if (seat == nullptr) {
    throw StatusError(BP_INVALID_ARGUMENT, "end_capture: the stream does not capture");
  }
  if (seat->place != 0) {
    throw StatusError(BP_INVALID_ARGUMENT, "end_capture: the capture began on another stream");
  }
  const std::shared_ptr<Capture> capture = seat->capture;
  std::erase_if(seats_, [&](const auto& entry) { return entry.second.capture == capture; });
  backend_.hooks->open_captures.fetch_sub(1, std::memory_order_relaxed);
  if (out_graph == nullptr) return BP_OK;
  Clock& known = capture->clocks[0];
  known.resize(capture->clocks.size());
  for (size_t place = 1; place < known.size(); ++place) {
    if (known[place] == capture->clocks[place][place]) continue;
    throw StatusError(BP_INVALID_ARGUMENT, "end_capture: stream " + std::to_string(place) +
                                               " of the capture was not joined again");
  }
  graph->device = capture->device;
  graph->generation = capture->generation;
  graph->slots = std::move(capture->slots);
  graph->works = std::move(capture->works);
  graphs_.insert(graph.get());
  *out_graph = reinterpret_cast<bp_graph*>(graph.release());
  return BP_OK;
}

// ---- What is submitted meanwhile ----------------------------------------------------------------

bp_status Captures::keep(bp_stream* stream, Work work) {
  const std::vector<Place> places = places_of(work);
  const std::lock_guard lock(mutex_);
  const Seat* const seat = find_seat(stream);
  if (seat == nullptr) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      std::string(work.name()) + ": the capture ended meanwhile");
  }
  Capture& capture = *seat->capture;
  for (const Place& place : places) slot_of(place, capture.slots);
  capture.works.push_back(std::move(work));
  ++capture.clocks[seat->place][seat->place];
  return BP_OK;
}

bp_status Captures::copy(const char* call, Work::Kind kind, bp_stream* stream,
                         const bp_buffer_ref* dst, const bp_buffer_ref* src) {
  check_range(dst, std::string(call) + ": dst");
  check_range(src, std::string(call) + ": src");
  check_copy(bytes_of(*dst), bytes_of(*src), call);
  return keep(stream, Work::copy(kind, *dst, *src));
}

bp_status Captures::fill(bp_stream* stream, const bp_buffer_ref* dst, const void* pattern,
                         uint64_t pattern_size_bytes) {
  check_range(dst, "fill: dst");
  check_pattern(pattern, pattern_size_bytes, dst->size_bytes);
  return keep(stream, Work::fill(*dst, pattern, pattern_size_bytes));
}

bp_status Captures::record(bp_event* event, bp_stream* stream) {
  const EventState state = backend_.state_of(event);
  if (!state.is_known) {
    return fail(BP_INVALID_ARGUMENT, "event.record: event is NULL or not one of this backend");
  }
  if (state.is_host_signalled) {
    return fail(BP_INVALID_ARGUMENT, "event.record: only the host signals this event");
  }
  const std::lock_guard lock(mutex_);
  const Seat* const seat = find_seat(stream);
  if (seat == nullptr) {
    throw StatusError(BP_INVALID_ARGUMENT, "event.record: the capture ended meanwhile");
  }
  const Capture& capture = *seat->capture;
  marks_[event] = {seat->capture, capture.clocks[seat->place], capture.device};
  mark_count_.store(static_cast<uint32_t>(marks_.size()), std::memory_order_relaxed);
  return BP_OK;
}

void Captures::forget(bp_event* event) {
  const std::lock_guard lock(mutex_);
  marks_.erase(event);
  mark_count_.store(static_cast<uint32_t>(marks_.size()), std::memory_order_relaxed);
}

void Captures::lose(bp_device* device) {
  const std::lock_guard lock(mutex_);
  for (const auto& [queue, seat] : seats_) {
    if (seat.place != 0 || seat.capture->device != device) continue;
    backend_.hooks->open_captures.fetch_sub(1, std::memory_order_relaxed);
  }
  std::erase_if(seats_, [&](const auto& entry) { return entry.second.capture->device == device; });
  std::erase_if(marks_, [&](const auto& entry) { return entry.second.device == device; });
  mark_count_.store(static_cast<uint32_t>(marks_.size()), std::memory_order_relaxed);
}

// Lets a stream that does not capture join the capture. It must be of the capture's device, because
// a replay runs on this device.
bp_status Captures::join(bp_stream* stream, bp_status before,
                         const std::shared_ptr<Capture>& capture) {
  if (backend_.device_of(backend_.streams.self, stream) != capture->device) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      "stream.wait_event: the stream is of another device than the capture");
  }
  if (before != BP_OK) return before;
  const size_t place = capture->clocks.size();
  capture->clocks.emplace_back(place + 1).back() = 1;
  seats_[backend_.queue_of(stream)] = {capture, place};
  return BP_OK;
}

bp_status Captures::wait_in_capture(bp_stream* stream, bp_status before, const Mark& mark) {
  const std::shared_ptr<Capture> capture = mark.capture.lock();
  const bool is_on = capture != nullptr && std::ranges::any_of(seats_, [&](const auto& entry) {
                       return entry.second.capture == capture;
                     });
  Seat* seat = find_seat(stream);
  if (!is_on || (seat != nullptr && seat->capture != capture)) {
    throw StatusError(BP_INVALID_ARGUMENT,
                      "stream.wait_event: the event was recorded in a capture that has ended, or "
                      "in another than that of the stream");
  }
  if (seat == nullptr) {
    if (const bp_status status = join(stream, before, capture); status != BP_OK) return status;
    seat = find_seat(stream);
  }
  merge(capture->clocks[seat->place], mark.clock);
  return BP_OK;
}

bp_status Captures::wait_event(bp_stream* stream, bp_event* event) {
  const EventState state = backend_.state_of(event);
  if (!state.is_known || backend_.queue_of(stream) == nullptr) {
    return fail(BP_INVALID_ARGUMENT,
                "stream.wait_event: stream or event is NULL or not one of this backend");
  }
  // A stream that joins must not have failed. This is checked before the lock is taken, because
  // the backend gives the host an error text.
  bp_status before = BP_OK;
  if (!is_capturing(stream)) before = admit(stream, "stream.wait_event");
  const std::lock_guard lock(mutex_);
  if (const auto mark = marks_.find(event); mark != marks_.end()) {
    return wait_in_capture(stream, before, mark->second);
  }
  if (!state.was_recorded) return BP_OK;
  throw StatusError(BP_INVALID_ARGUMENT,
                    "stream.wait_event: the stream captures, and the event was recorded outside "
                    "of the capture");
}

void Captures::refuse_collective(bp_stream* stream, const std::string& name) const {
  if (!is_capturing(stream)) return;
  bp::refuse(BP_UNSUPPORTED, name + "the stream captures, and collectives are not recorded");
}

// ---- Launches -----------------------------------------------------------------------------------

bool is_capturing(const Captures& captures, bp_stream* stream) {
  return captures.is_capturing(stream);
}

bp_status launch_in_capture(Captures& captures, const bp_kernel& kernel, const bp_launch& launch,
                            const void* args,
                            const std::function<bp_status(bool only_checks)>& body) {
  if (!captures.is_capturing(launch.stream)) return body(false);
  return captures.launch(kernel, launch, args, [&] { return body(true); });
}

}  // namespace bp
