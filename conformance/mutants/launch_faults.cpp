// Faults of launches: the good kernel gets another frame than the caller's, or the launch has
// another effect than the results.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <thread>

#include "conformance/mutants/kernel_fault.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::faults {
namespace {

using mutants::Values;
using mutants::View;

// A copy of the frame in which members can be replaced.
class Frame {
 public:
  explicit Frame(const void* args) {
    uint32_t size_bytes;
    std::memcpy(&size_bytes, args, sizeof(size_bytes));
    words_.resize((size_bytes + 7) / 8);
    std::memcpy(words_.data(), args, size_bytes);
    size_bytes_ = size_bytes;
  }

  const void* data() const { return words_.data(); }
  bool has(const Member& member) const { return member.offset + 8 <= size_bytes_; }

  template <typename T>
  T get(const Member& member) const {
    T value;
    std::memcpy(&value, bytes() + member.offset, sizeof(T));
    return value;
  }
  template <typename T>
  void set(const Member& member, T value) {
    std::ranges::copy(std::as_bytes(std::span(&value, 1)), bytes() + member.offset);
  }

 private:
  std::byte* bytes() { return reinterpret_cast<std::byte*>(words_.data()); }
  const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(words_.data()); }

  std::vector<uint64_t> words_;
  size_t size_bytes_;
};

bool has_memory(const bp_tensor& t) {
  return t.buffer != nullptr && t.layout == nullptr && tensors::has_elements(t) &&
         std::all_of(t.strides, t.strides + t.ndim, [](int64_t stride) { return stride >= 0; });
}

std::vector<Argument> inputs_of(const FaultyLaunch& launch) {
  std::vector<Argument> inputs;
  std::ranges::copy_if(launch.tensors, std::back_inserter(inputs), [](const Argument& a) {
    return !a.member->is_output() && !a.member->is_list() && has_memory(*a.tensor);
  });
  return inputs;
}

bool writes_to_inputs(const FaultyLaunch& launch) {
  return std::ranges::any_of(launch.tensors, [&](const Argument& a) {
    if (a.member->kind.starts_with("inout")) return true;
    return a.member->is_output() && std::ranges::any_of(launch.tensors, [&](const Argument& other) {
             return !other.member->is_output() && other.tensor->buffer == a.tensor->buffer;
           });
  });
}

// Returns whether an output differs from what a good launch has written, beyond what is allowed.
bool differs(const FaultyLaunch& launch, const bp_tensor& output, const Values& good) {
  const Values now(launch.call, output);
  if (now.status() != BP_OK) return false;
  const double scale = largest_of(good);
  for (size_t i = 0; i < now.size(); ++i) {
    if (is_beyond(launch, output.dtype, good[i], now[i], scale)) return true;
  }
  return false;
}

// Launches with the good frame first, to see whether the other one gives other results.
bp_status launch_compared(const FaultyLaunch& launch, const Frame& frame) {
  const bp_kernel* good = launch.call.wrapped.good;
  const bp_launch& l = *launch.call.launch;
  const bool is_refused =
      good->supports != nullptr && good->supports(good, l.device, l.flags, frame.data()) != nullptr;
  const std::vector<const bp_tensor*> outputs = plain_outputs(launch);
  if (is_refused || outputs.empty() || writes_to_inputs(launch)) {
    return launch.call.run(launch.args);
  }
  if (const bp_status status = launch.call.run(launch.args); status != BP_OK) return status;
  std::deque<Values> results;
  for (const bp_tensor* output : outputs) {
    if (results.emplace_back(launch.call, *output).status() != BP_OK) return BP_OK;
  }
  bp_launch again = l;
  again.plan = nullptr;  // The plan belongs to the good frame.
  if (const bp_status status = good->launch(good, &again, frame.data()); status != BP_OK) {
    return status;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (differs(launch, *outputs[i], results[i])) {
      launch.note_change();
      break;
    }
  }
  return BP_OK;
}

// Returns an input that `test` takes, or none.
template <typename Test>
std::optional<Argument> chosen_input(const FaultyLaunch& launch, Test test) {
  std::vector<Argument> inputs = inputs_of(launch);
  std::erase_if(inputs, [&](const Argument& a) { return !test(*a.tensor); });
  if (inputs.empty()) return std::nullopt;
  return inputs[mixed(launch.fault().number, 4) % inputs.size()];
}

// Returns whether the elements in row-major order would lie within the memory that the tensor
// reaches.
bool reaches_dense(const bp_tensor& t) {
  int64_t span = 1;
  for (uint32_t axis = 0; axis < t.ndim; ++axis) span += (t.shape[axis] - 1) * t.strides[axis];
  return !tensors::is_contiguous(t) && tensors::element_count(t) <= span;
}

bp_status replace_input(const FaultyLaunch& launch, Frame& frame) {
  const bool drops_offset = launch.fault().kind == "offset_dropped";
  const auto input = chosen_input(launch, [&](const bp_tensor& t) {
    return drops_offset ? t.byte_offset != 0 : reaches_dense(t);
  });
  if (!input) return launch.call.run(launch.args);
  View view(*input->tensor);
  if (drops_offset) {
    view.byte_offset() = 0;
  } else {
    tensors::set_contiguous_strides(view.rank(), view.get()->shape, &view.stride(0));
  }
  frame.set(*input->member, view.get());
  return launch_compared(launch, frame);
}

bool is_same_shape(const bp_tensor& a, const bp_tensor& b) {
  return a.dtype == b.dtype && a.ndim == b.ndim && std::equal(a.shape, a.shape + a.ndim, b.shape);
}

bp_status exchange_inputs(const FaultyLaunch& launch, Frame& frame) {
  const std::vector<Argument> inputs = inputs_of(launch);
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (!is_same_shape(*inputs[0].tensor, *inputs[i].tensor)) continue;
    frame.set(*inputs[0].member, inputs[i].tensor);
    frame.set(*inputs[i].member, inputs[0].tensor);
    return launch_compared(launch, frame);
  }
  return launch.call.run(launch.args);
}

bp_status drop_optional(const FaultyLaunch& launch, Frame& frame) {
  std::vector<Argument> optional = inputs_of(launch);
  std::erase_if(optional, [](const Argument& a) { return a.member->kind != "tensor_opt"; });
  if (optional.empty()) return launch.call.run(launch.args);
  const Argument& dropped = optional[mixed(launch.fault().number, 4) % optional.size()];
  frame.set(*dropped.member, static_cast<const bp_tensor*>(nullptr));
  return launch_compared(launch, frame);
}

bp_status change_number(const FaultyLaunch& launch, Frame& frame) {
  std::vector<const Member*> numbers;
  for (const Member& m : launch.state.op->members) {
    if (m.kind == "f64" && frame.has(m) && frame.get<double>(m) != 0) numbers.push_back(&m);
  }
  if (numbers.empty()) return launch.call.run(launch.args);
  const Member& changed = *numbers[mixed(launch.fault().number, 4) % numbers.size()];
  frame.set(changed, frame.get<double>(changed) * 1.125);
  return launch_compared(launch, frame);
}

bp_status write_input(const FaultyLaunch& launch) {
  if (const bp_status status = launch.call.run(launch.args); status != BP_OK) return status;
  if (writes_to_inputs(launch)) return BP_OK;
  const auto input = chosen_input(launch, [](const bp_tensor& t) {
    return dtype_of("f32") == t.dtype || mutants::item_size_bytes(t.dtype) > 1;
  });
  if (!input) return BP_OK;
  Values x(launch.call, *input->tensor);
  if (x.status() != BP_OK) return BP_OK;
  const size_t at = mixed(launch.fault().number, 0) % x.size();
  x.set_bits(at, x.bits(at) ^ 1);
  launch.note_change();
  return x.write();
}

// Overwrites 16 bytes beside an output, which may be another tensor's or nobody's.
bp_status write_beside(const FaultyLaunch& launch) {
  constexpr uint64_t kBytes = 16;
  if (const bp_status status = launch.call.run(launch.args); status != BP_OK) return status;
  const std::vector<const bp_tensor*> outputs = plain_outputs(launch);
  if (outputs.empty() || !has_memory(*outputs[0])) return BP_OK;
  const bp_tensor& y = *outputs[0];
  uint64_t end = 1;
  for (uint32_t axis = 0; axis < y.ndim; ++axis) {
    end += static_cast<uint64_t>((y.shape[axis] - 1) * y.strides[axis]);
  }
  end = y.byte_offset + end * static_cast<uint64_t>(mutants::item_size_bytes(y.dtype));
  const bool is_before = launch.fault().kind == "written_before";
  bp_buffer_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_BUFFER_INFO;
  const bp_allocator_ops& allocator = *launch.call.wrapped.allocator;
  if (allocator.buffer_info(allocator.self, y.buffer, &info) != BP_OK) return BP_OK;
  if (is_before ? y.byte_offset < kBytes : end + kBytes > info.size_bytes) return BP_OK;
  const uint64_t at = is_before ? y.byte_offset - kBytes : end;
  if (launch.call.scribble({y.buffer, at, kBytes}) == BP_OK) launch.note_change();
  return BP_OK;
}

bp_status leak(const FaultyLaunch& launch) {
  const bp_host& host = *launch.call.wrapped.host;
  bool has_leaked = false;
  if (launch.fault().kind == "host_leak") {
    void* lost = nullptr;
    has_leaked = host.allocate(host.self, 64, 16, &lost) == BP_OK;
  } else {
    bp_allocate_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_ALLOCATE_DESC;
    desc.size_bytes = 64 << 10;
    bp_buffer* lost = nullptr;
    const bp_allocator_ops& allocator = *launch.call.wrapped.allocator;
    has_leaked =
        allocator.allocate(allocator.self, launch.call.launch->device, &desc, &lost) == BP_OK;
  }
  if (has_leaked) launch.note_change();
  return launch.call.run(launch.args);
}

bp_status block(const FaultyLaunch& launch) {
  const bp_status status = launch.call.run(launch.args);
  if (status != BP_OK) return status;
  const bp_stream_ops& streams = *launch.call.wrapped.streams;
  static_cast<void>(streams.synchronize(streams.self, launch.call.launch->stream, UINT64_MAX));
  launch.note_change();
  return BP_OK;
}

bp_status launch_on_default_stream(const FaultyLaunch& launch) {
  const bp_stream_ops& streams = *launch.call.wrapped.streams;
  bp_launch other = *launch.call.launch;
  if (streams.default_stream(streams.self, other.device, &other.stream) == BP_OK &&
      other.stream != launch.call.launch->stream) {
    launch.note_change();
  }
  const bp_kernel* good = launch.call.wrapped.good;
  return good->launch(good, &other, launch.args);
}

// Destroys a stream or an event. Work that was submitted before still completes.
template <typename Ops>
struct DestroyBy {
  const Ops* ops;
  template <typename Handle>
  void operator()(Handle* handle) const {
    static_cast<void>(ops->destroy(ops->self, handle));
  }
};

using OwnEvent = std::unique_ptr<bp_event, DestroyBy<bp_event_ops>>;
using OwnStream = std::unique_ptr<bp_stream, DestroyBy<bp_stream_ops>>;

// A launch whose work runs later than its stream. Two callbacks share it.
struct LateLaunch {
  KernelState* state = nullptr;
  Sightings* sightings = nullptr;
  bool can_show = false;  // The launch has results.
  OwnEvent begin;         // The host signals it. The work waits for it.
  std::atomic<bool> has_passed = false;
};
using Shared = std::shared_ptr<LateLaunch>;

// Lets the work begin after the host has had the time to read a small result.
void begin_later(const Shared& launch) {
  constexpr size_t kMostThreads = 16;
  const std::lock_guard lock(launch->state->mutex);
  std::deque<std::jthread>& threads = launch->state->openers;
  if (threads.size() == kMostThreads) threads.pop_front();
  threads.emplace_back([launch] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const bp_event_ops& events = *launch->begin.get_deleter().ops;
    static_cast<void>(events.signal(events.self, launch->begin.get(), BP_OK));
  });
}

// Runs on the stream of the launch, where the work should have ended.
void pass(void* user_data, bp_status) {
  const std::unique_ptr<Shared> own(static_cast<Shared*>(user_data));
  (*own)->has_passed = true;
  begin_later(*own);
}

// Runs behind the work.
void end_late_work(void* user_data, bp_status) {
  const std::unique_ptr<Shared> own(static_cast<Shared*>(user_data));
  const LateLaunch& launch = **own;
  if (launch.has_passed && launch.can_show) {
    std::atomic_ref(launch.sightings->changed).fetch_add(1);
  }
}

bp_status call_back(const bp_stream_ops& streams, bp_stream* stream,
                    bp_stream_callback_fn* callback, const Shared& launch) {
  auto own = std::make_unique<Shared>(launch);
  const bp_status status = streams.add_callback(streams.self, stream, callback, own.get());
  if (status == BP_OK) static_cast<void>(own.release());
  return status;
}

OwnEvent make_event(const FaultyLaunch& launch, bp_event_flags flags) {
  const bp_event_ops& events = *launch.call.wrapped.events;
  bp_event_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_EVENT_DESC;
  desc.flags = flags;
  bp_event* event = nullptr;
  static_cast<void>(events.create(events.self, launch.call.launch->device, &desc, &event));
  return {event, {&events}};
}

// Submits the good launch to a stream of its own, behind what the caller's stream has by now, and
// behind an event that is signalled when the caller's stream has passed the launch. A device
// without such events gets a good launch.
bp_status launch_behind_the_stream(const FaultyLaunch& launch) {
  const mutants::Wrapped& wrapped = launch.call.wrapped;
  const bp_stream_ops& streams = *wrapped.streams;
  const bp_event_ops& events = *wrapped.events;
  bp_launch late = *launch.call.launch;
  bp_stream* const stream = late.stream;
  const OwnEvent before = make_event(launch, 0);
  const auto shared = std::make_shared<LateLaunch>();
  shared->state = &launch.state;
  shared->sightings = wrapped.sightings;
  shared->can_show = !plain_outputs(launch).empty();
  shared->begin = make_event(launch, BP_EVENT_HOST_SIGNAL);
  // The kernel itself refuses a launch on a stream that has failed.
  const bool is_well = streams.status(streams.self, stream) == BP_OK;
  if (!is_well || before == nullptr || shared->begin == nullptr ||
      streams.create(streams.self, late.device, nullptr, &late.stream) != BP_OK) {
    return launch.call.run(launch.args);
  }
  const OwnStream own_stream(late.stream, {&streams});
  bp_status status = events.record(events.self, before.get(), stream);
  if (status == BP_OK) status = streams.wait_event(streams.self, late.stream, before.get());
  if (status != BP_OK) return status;
  status = call_back(streams, stream, pass, shared);
  if (status == BP_OK) status = streams.wait_event(streams.self, late.stream, shared->begin.get());
  if (status == BP_OK) status = wrapped.good->launch(wrapped.good, &late, launch.args);
  return status == BP_OK ? call_back(streams, late.stream, end_late_work, shared) : status;
}

}  // namespace

bp_status launch_with_wrong_frame(const FaultyLaunch& launch) {
  Frame frame(launch.args);
  const std::string_view kind = launch.fault().kind;
  if (kind == "exchanged") return exchange_inputs(launch, frame);
  if (kind == "optional_dropped") return drop_optional(launch, frame);
  if (kind == "number_off") return change_number(launch, frame);
  return replace_input(launch, frame);
}

bp_status launch_with_wrong_effect(const FaultyLaunch& launch) {
  const std::string_view kind = launch.fault().kind;
  if (kind == "input_written") return write_input(launch);
  if (kind == "written_behind" || kind == "written_before") return write_beside(launch);
  if (kind == "device_leak" || kind == "host_leak") return leak(launch);
  if (kind == "blocking") return block(launch);
  if (kind == "wrong_stream") return launch_on_default_stream(launch);
  if (kind == "late") return launch_behind_the_stream(launch);
  const bp_host& host = *launch.call.wrapped.host;
  if (kind == "refused") {
    launch.note_change();
    return host.set_error(host.self, BP_UNSUPPORTED, "the kernel does not take this call");
  }
  if (!plain_outputs(launch).empty()) launch.note_change();  // The kind is "skipped".
  return BP_OK;
}

}  // namespace bp::faults
