#include "conformance/streams/runner.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "conformance/streams/addition.hpp"
#include "conformance/streams/generator.hpp"

namespace bp::conformance {
namespace {

using namespace std::chrono_literals;

constexpr uint8_t kOverwritten = 0xBB;  // The value of sources after a call that stages them has
                                        // returned.
constexpr uint8_t kNotYetRead = 0xCC;   // The value of destinations before a copy.
constexpr uint64_t kPatienceNs = 10'000'000'000;  // The time limit for what must end.

// Thrown by a step with a wrong result; run_program() catches it.
struct Failure {
  Deviation deviation;
};

// How long callbacks may sleep. Each callback points to one of these constants, so that no other
// object has to stay alive.
constexpr std::array<std::chrono::microseconds, 5> kPauses{20us, 50us, 90us, 140us, 200us};

void pause(void* length, bp_status) {
  std::this_thread::sleep_for(*static_cast<const std::chrono::microseconds*>(length));
}

// The host memory that copies borrow.
struct HostMemory {
  std::deque<std::vector<uint8_t>> sources, downloads;
};

// One run. It keeps what it made until the device is idle again, also after a failure.
class Run {
 public:
  Run(const bp_target& target, const Program& program, const Model& model, bool may_hold,
      uint64_t delay_seed)
      : target_(target),
        program_(program),
        model_(model),
        may_hold_(may_hold),
        has_delays_(delay_seed != 0),
        draw_(delay_seed) {}
  Run(const Run&) = delete;

  // Opens the gates, waits, and ends the handles.
  ~Run() {
    static_cast<void>(open_gates());
    const bp_device_ops& devices = *target_.devices;
    if (devices.synchronize(devices.self, target_.device, kPatienceNs) != BP_OK) {
      // Work may still run and use what it borrows, so all of it stays.
      static_cast<void>(host_.release());
      return;
    }
    const bp_stream_ops& streams = *target_.streams;
    const bp_event_ops& events = *target_.events;
    const bp_allocator_ops& memory = *target_.allocator;
    for (bp_stream* stream : streams_) static_cast<void>(streams.destroy(streams.self, stream));
    for (bp_event* event : events_) static_cast<void>(events.destroy(events.self, event));
    for (bp_event* event : ends_) static_cast<void>(events.destroy(events.self, event));
    for (bp_buffer* buffer : buffers_) {
      static_cast<void>(memory.deallocate(memory.self, buffer, nullptr));
    }
  }

  void run() {
    set_up();
    for (at_ = 0; at_ < program_.steps.size(); ++at_) {
      const Step& step = program_.steps[at_];
      if (needs_stream(step)) delay(step.stream);
      if (is_blocking(step)) expect_ok(open_gates(), "event.signal");
      take(step);
      if (is_blocking(step)) is_drawn_.assign(program_.stream_count, false);
    }
    finish();
    compare();
  }

 private:
  [[noreturn]] void fail(std::string what, const char* cause, const char* tag) const {
    throw Failure{{std::move(what), tag, cause}};
  }

  void expect_ok(bp_status status, const char* call) const {
    if (status == BP_OK) return;
    std::string where = at_ < program_.steps.size() ? "step " + std::to_string(at_ + 1) + ", " +
                                                          text_of(program_.steps[at_])
                                                    : std::string("after the last step");
    where += ": " + std::string(call) + ": " + bp_status_name(status) + ": " + bp_error_text();
    bp_error_clear();
    if (status == BP_TIMEOUT) fail(std::move(where), "timeout", "STREAM-12");
    fail(std::move(where), "status", "");
  }

  static bool needs_stream(const Step& step) {
    return step.kind != StepKind::kSyncEvent && step.kind != StepKind::kSyncDevice;
  }

  bp_stream* make_stream() {
    bp_stream* stream = nullptr;
    expect_ok(target_.streams->create(target_.streams->self, target_.device, nullptr, &stream),
              "stream.create");
    return stream;
  }

  bp_event* make_event(bp_event_flags flags) {
    bp_event_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_EVENT_DESC;
    desc.flags = flags;
    bp_event* event = nullptr;
    expect_ok(target_.events->create(target_.events->self, target_.device, &desc, &event),
              "event.create");
    return event;
  }

  bp_buffer* make_buffer() {
    bp_allocate_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_ALLOCATE_DESC;
    desc.size_bytes = program_.buffer_bytes;
    bp_buffer* buffer = nullptr;
    const bp_allocator_ops& memory = *target_.allocator;
    expect_ok(memory.allocate(memory.self, target_.device, &desc, &buffer), "allocate");
    return buffer;
  }

  void set_up() {
    const bp_allocator_ops& memory = *target_.allocator;
    is_drawn_.assign(program_.stream_count, false);
    for (uint32_t i = 0; i < program_.stream_count; ++i) streams_.push_back(make_stream());
    for (uint32_t i = 0; i < program_.event_count; ++i) events_.push_back(make_event(0));
    for (uint32_t i = 0; i < program_.buffer_count; ++i) {
      buffers_.push_back(make_buffer());
      const bp_buffer_ref whole{buffers_.back(), 0, program_.buffer_bytes};
      const std::vector<uint8_t>& bytes =
          host_->sources.emplace_back(program_bytes(program_.content + i, program_.buffer_bytes));
      expect_ok(memory.copy_from_host(memory.self, streams_[0], &whole, bytes.data(),
                                      BP_BORROW_UNTIL_COMPLETE),
                "copy_from_host");
    }
    wait_for(streams_[0]);
  }

  void wait_for(bp_stream* stream) const {
    expect_ok(target_.streams->synchronize(target_.streams->self, stream, kPatienceNs),
              "stream.synchronize");
  }

  // Before a step, may hold its stream back until the host waits, or may let the stream pause.
  void delay(uint32_t stream) {
    if (!has_delays_) return;
    const bp_stream_ops& streams = *target_.streams;
    if (may_hold_ && !is_drawn_[stream] && draw_.chance(2)) {
      bp_event* const gate = make_event(BP_EVENT_HOST_SIGNAL);
      gates_.push_back(gate);
      expect_ok(streams.wait_event(streams.self, streams_[stream], gate), "stream.wait_event");
    }
    is_drawn_[stream] = true;
    if (!draw_.chance(8)) return;
    const std::chrono::microseconds* const length = &kPauses[draw_.below(kPauses.size())];
    expect_ok(streams.add_callback(streams.self, streams_[stream], pause,
                                   const_cast<std::chrono::microseconds*>(length)),
              "stream.add_callback");
  }

  // Opens the gates that hold streams back, in a drawn order.
  bp_status open_gates() {
    const bp_event_ops& events = *target_.events;
    bp_status first = BP_OK;
    while (!gates_.empty()) {
      const size_t which = draw_.below(static_cast<uint32_t>(gates_.size()));
      bp_event* const gate = gates_[which];
      gates_.erase(gates_.begin() + static_cast<std::ptrdiff_t>(which));
      const bp_status status = events.signal(events.self, gate, BP_OK);
      if (first == BP_OK) first = status;
      static_cast<void>(events.destroy(events.self, gate));
      if (!gates_.empty() && draw_.chance(2)) {
        std::this_thread::sleep_for(std::chrono::microseconds(30));
      }
    }
    return first;
  }

  bp_buffer_ref ref(const Bytes& bytes) const {
    return {buffers_[bytes.buffer], bytes.offset, bytes.size};
  }

  void take(const Step& step) {
    switch (step.kind) {
      case StepKind::kFill:
      case StepKind::kCopy:
      case StepKind::kUpload:
      case StepKind::kDownload:
        return copy(step);
      case StepKind::kLaunch:
        return launch(step);
      case StepKind::kRenewStream:
      case StepKind::kRenewBuffer:
        return renew(step);
      default:
        return relate(step);
    }
  }

  void copy(const Step& step) {
    const bp_allocator_ops& memory = *target_.allocator;
    bp_stream* const stream = streams_[step.stream];
    const bp_buffer_ref to = ref(step.to), from = ref(step.from);
    const bp_borrow borrow = step.until_complete ? BP_BORROW_UNTIL_COMPLETE : BP_BORROW_DURING_CALL;
    if (step.kind == StepKind::kFill) {
      std::vector<uint8_t> pattern = program_bytes(step.data, step.pattern_bytes);
      expect_ok(memory.fill(memory.self, stream, &to, pattern.data(), step.pattern_bytes), "fill");
      std::ranges::fill(pattern, kOverwritten);
    } else if (step.kind == StepKind::kCopy) {
      expect_ok(memory.copy(memory.self, stream, &to, &from), "copy");
    } else if (step.kind == StepKind::kUpload) {
      std::vector<uint8_t>& bytes =
          host_->sources.emplace_back(program_bytes(step.data, step.to.size));
      expect_ok(memory.copy_from_host(memory.self, stream, &to, bytes.data(), borrow),
                "copy_from_host");
      if (!step.until_complete) std::ranges::fill(bytes, kOverwritten);
    } else {
      const size_t number = host_->downloads.size();
      std::vector<uint8_t>& bytes = host_->downloads.emplace_back(step.from.size, kNotYetRead);
      expect_ok(memory.copy_to_host(memory.self, stream, bytes.data(), &from, borrow, UINT64_MAX),
                "copy_to_host");
      if (!step.until_complete) compare_download(number);
    }
  }

  void launch(const Step& step) {
    const bp_status status = Addition{BP_I32}.submit(target_, streams_[step.stream], ref(step.to),
                                                     ref(step.from), ref(step.other));
    expect_ok(status, "launch of add.i32");
  }

  // The work of the old stream still runs; an event shows when it has ended.
  void renew(const Step& step) {
    if (step.kind == StepKind::kRenewBuffer) {
      const bp_allocator_ops& memory = *target_.allocator;
      bp_buffer*& buffer = buffers_[step.to.buffer];
      expect_ok(memory.deallocate(memory.self, buffer, streams_[step.stream]), "deallocate");
      buffer = nullptr;
      buffer = make_buffer();
      return;
    }
    const bp_event_ops& events = *target_.events;
    bp_stream*& stream = streams_[step.stream];
    ends_.push_back(make_event(0));
    expect_ok(events.record(events.self, ends_.back(), stream), "event.record");
    bp_stream* const old = std::exchange(stream, make_stream());
    is_drawn_[step.stream] = false;
    expect_ok(target_.streams->destroy(target_.streams->self, old), "stream.destroy");
  }

  void relate(const Step& step) {
    const bp_stream_ops& streams = *target_.streams;
    const bp_event_ops& events = *target_.events;
    bp_stream* const stream = streams_[step.stream];
    bp_event* const event = events_[step.event];
    uint32_t done = 0;
    switch (step.kind) {
      case StepKind::kRecord:
        return expect_ok(events.record(events.self, event, stream), "event.record");
      case StepKind::kWait:
        return expect_ok(streams.wait_event(streams.self, stream, event), "stream.wait_event");
      case StepKind::kSyncStream:
        return wait_for(stream);
      case StepKind::kSyncEvent:
        return expect_ok(events.synchronize(events.self, event, kPatienceNs), "event.synchronize");
      case StepKind::kSyncDevice:
        return expect_ok(
            target_.devices->synchronize(target_.devices->self, target_.device, kPatienceNs),
            "device.synchronize");
      case StepKind::kFlush:
        return expect_ok(streams.flush(streams.self, stream), "stream.flush");
      default:
        return expect_ok(streams.query(streams.self, stream, &done), "stream.query");
    }
  }

  void finish() {
    expect_ok(open_gates(), "event.signal");
    const bp_event_ops& events = *target_.events;
    for (bp_stream* stream : streams_) wait_for(stream);
    for (bp_event* event : ends_) {
      expect_ok(events.synchronize(events.self, event, kPatienceNs), "event.synchronize");
    }
  }

  void compare_download(size_t number) const {
    const std::vector<uint8_t>& got = host_->downloads[number];
    const std::vector<uint8_t>& want = model_.downloads()[number];
    const auto [g, w] = std::ranges::mismatch(got, want);
    if (g == got.end()) return;
    const bool is_blank = at_ < program_.steps.size() && *g == kNotYetRead;
    fail("download " + std::to_string(number + 1) + ", byte " + std::to_string(g - got.begin()) +
             ": got " + std::to_string(*g) + ", expected " + std::to_string(*w),
         "order",
         is_blank             ? "MEMORY-10"
         : *g == kOverwritten ? "MEMORY-9"
                              : "");
  }

  void compare() {
    for (size_t i = 0; i < host_->downloads.size(); ++i) compare_download(i);
    for (uint32_t b = 0; b < program_.buffer_count; ++b) compare_buffer(b);
  }

  // Compares the last contents of a buffer. The read relies only on the order of one stream.
  void compare_buffer(uint32_t number) {
    const bp_allocator_ops& memory = *target_.allocator;
    std::vector<uint8_t>& bytes = host_->sources.emplace_back(program_.buffer_bytes, kNotYetRead);
    const bp_buffer_ref whole{buffers_[number], 0, program_.buffer_bytes};
    expect_ok(memory.copy_to_host(memory.self, streams_[0], bytes.data(), &whole,
                                  BP_BORROW_UNTIL_COMPLETE, UINT64_MAX),
              "copy_to_host");
    wait_for(streams_[0]);
    const std::vector<Model::Cell>& cells = model_.buffer(number);
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (!cells[i].is_defined || bytes[i] == cells[i].value) continue;
      std::string what = "b" + std::to_string(number) + "[" + std::to_string(i) + "]: got " +
                         std::to_string(bytes[i]) + ", expected " + std::to_string(cells[i].value);
      const int32_t writer = cells[i].writer_step;
      what += writer < 0 ? " as at the beginning" : " by step " + std::to_string(writer + 1);
      fail(std::move(what), "order", bytes[i] == kOverwritten ? "MEMORY-9" : "");
    }
  }

  const bp_target& target_;
  const Program& program_;
  const Model& model_;
  const bool may_hold_, has_delays_;
  Draw draw_;
  size_t at_ = 0;
  std::vector<bp_stream*> streams_;
  std::vector<bp_event*> events_, ends_, gates_;
  std::vector<bp_buffer*> buffers_;
  std::vector<bool> is_drawn_;  // For each stream, whether it is held back until the host waits.
  std::unique_ptr<HostMemory> host_ = std::make_unique<HostMemory>();
};

}  // namespace

StreamAbilities stream_abilities(const bp_target& target) {
  StreamAbilities abilities;
  const bp_event_ops& events = *target.events;
  bp_event_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_EVENT_DESC;
  desc.flags = BP_EVENT_HOST_SIGNAL;
  bp_event* event = nullptr;
  if (events.create(events.self, target.device, &desc, &event) == BP_OK) {
    abilities.has_host_signals = true;
    static_cast<void>(events.destroy(events.self, event));
  }
  bp_error_clear();
  if (!has_addition(target, BP_I32)) return abilities;
  const bp_heap& heap = *target.properties->heaps;
  const uint64_t alignment = std::max<uint64_t>(heap.tensor_offset_alignment_bytes, kElementBytes);
  constexpr uint32_t kWholeBuffers = 1u << 30;
  abilities.launch_alignment_bytes =
      heap.suballocation_granularity_bytes == 0 ? kWholeBuffers : static_cast<uint32_t>(alignment);
  return abilities;
}

std::optional<Deviation> run_program(const bp_target& target, const Program& program,
                                     const Model& model, const StreamAbilities& abilities,
                                     uint64_t delay_seed) {
  try {
    Run(target, program, model, abilities.has_host_signals, delay_seed).run();
  } catch (const Failure& failure) {
    return failure.deviation;
  }
  return std::nullopt;
}

std::string suspect_tag(const Program& shortest, const Deviation& deviation) {
  if (!deviation.tag.empty()) return deviation.tag;
  const auto has = [&](StepKind kind) {
    return std::ranges::any_of(shortest.steps, [&](const Step& step) { return step.kind == kind; });
  };
  if (deviation.cause != "order") return "STREAM-3";
  if (has(StepKind::kWait) || has(StepKind::kSyncEvent)) return "EVENT-2";
  return "STREAM-3";
}

}  // namespace bp::conformance
