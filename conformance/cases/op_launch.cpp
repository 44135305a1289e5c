#include "conformance/cases/op_launch.hpp"

#include <algorithm>
#include <list>
#include <stdexcept>

#include "conformance/cases/host_call.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kTimeoutNs = 20'000'000'000;

// A stream of its own for each case: a failure on it ends with it.
class CaseStream {
 public:
  explicit CaseStream(Context& t) : target_(t.target()) {
    const bp_stream_ops& streams = *target_.streams;
    t.require_ok(streams.create(streams.self, target_.device, nullptr, &stream_), "stream.create");
  }
  ~CaseStream() { static_cast<void>(target_.streams->destroy(target_.streams->self, stream_)); }
  CaseStream(const CaseStream&) = delete;
  CaseStream& operator=(const CaseStream&) = delete;

  bp_stream* get() const { return stream_; }

 private:
  const bp_target& target_;
  bp_stream* stream_ = nullptr;
};

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

uint64_t offset_alignment(const Context& t) {
  return std::max<uint64_t>(t.target().properties->heaps->tensor_offset_alignment_bytes, 1);
}

// Workspace lies at multiples of 256 bytes, tensors at those of the heap's alignment.
MemoryPlace memory_place(const Context& t, bp_stream* stream) {
  const uint64_t alignment = std::max<uint64_t>(offset_alignment(t), 256);
  return {&t.target(), stream, round_up(std::max(t.options().canary_bytes, alignment), alignment)};
}

Placement placement_of(const TensorArgument& argument, const Variant& variant, int64_t row_stride) {
  if (variant.has_equal_rows && argument.shape.size() >= 2) {
    return place_rows(argument.shape, row_stride);
  }
  const bool is_kept =
      variant.has_layouts && (variant.has_broadcasts || !is_broadcast(argument.layout));
  return place(is_kept ? argument.layout : Layout::kDense, argument.shape);
}

// The tensors of a call in guarded memory, and the frame that names them.
class Call {
 public:
  Call(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant,
       bp_stream* stream);

  const Frame& frame() const { return frame_; }

  // Takes the memory away from every tensor of the frame.
  void strip_buffers();

  // Puts inline scalars into tensors, for a kernel that does not take them.
  void materialize_scalars();

  void prepare(Poison poison);
  void finish();
  void look(bool is_first, Observation& seen) const;
  bool is_untouched() const;  // Nothing at all has changed.

 private:
  struct Slot {
    const TensorArgument* argument;  // NULL: a scalar.
    const HostTensor* host;
    std::shared_ptr<GuardedTensor> memory;
    bool is_shared = false;  // An output in the memory of an input.
  };

  void add(const TensorArgument& argument, const HostTensor& host, const Variant& variant,
           int64_t row_stride);
  void set_tensor(std::string_view name, const bp_tensor* tensor);
  const bp_tensor* without_buffer(const GuardedTensor& memory);
  bp_dtype dtype_of_scalar(const FrameMember& member) const;
  bool is_output(const Slot& slot) const { return slot.host->role != Role::kInput; }

  Context& t_;
  const OpCase& case_;
  const CallData& data_;
  MemoryPlace place_;
  Frame frame_;
  std::vector<Slot> slots_;
  std::vector<HostTensor> scalars_;
  std::list<bp_tensor> stripped_;
};

Call::Call(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant,
           bp_stream* stream)
    : t_(t), case_(op_case), data_(data), place_(memory_place(t, stream)), frame_(op_case.op) {
  int64_t row_stride = 1;
  for (const TensorArgument& argument : op_case.tensors) {
    if (!argument.shape.empty()) row_stride = std::max(row_stride, argument.shape.back());
  }
  for (size_t i = 0; i < op_case.tensors.size(); ++i) {
    add(op_case.tensors[i], data.tensors()[i], variant, row_stride);
  }
  set_attributes(frame_, case_);
}

void Call::add(const TensorArgument& argument, const HostTensor& host, const Variant& variant,
               int64_t row_stride) {
  Slot slot{&argument, &host, nullptr};
  const auto original = std::ranges::find_if(slots_, [&](const Slot& other) {
    return !argument.alias.empty() && other.argument->name == argument.alias;
  });
  if (original != slots_.end()) {
    slot.memory = original->memory;
    if (argument.role != Role::kInput) slot.is_shared = original->is_shared = true;
  } else {
    GuardedSpec spec{argument.dtype, argument.shape, placement_of(argument, variant, row_stride)};
    spec.has_front_canary = variant.has_offsets;
    if (argument.layout == Layout::kOffset) {
      spec.small_offset_bytes = std::max(offset_alignment(t_), element_size(argument.dtype));
    }
    slot.memory = std::make_shared<GuardedTensor>(place_, std::move(spec));
  }
  if (!variant.has_empty_buffers && element_count(argument.shape) == 0) {
    set_tensor(argument.name, without_buffer(*slot.memory));
    slots_.push_back(std::move(slot));
    return;
  }
  set_tensor(argument.name, slot.memory->view());
  slots_.push_back(std::move(slot));
}

void Call::set_tensor(std::string_view name, const bp_tensor* tensor) {
  if (op_info(case_.op).member(name).is_list()) {
    frame_.add_tensor(name, tensor);
  } else {
    frame_.set_tensor(name, tensor);
  }
}

// The rule is a dtype, or like(x).
bp_dtype Call::dtype_of_scalar(const FrameMember& member) const {
  const std::string_view rule = member.dtype;
  if (rule.starts_with("like(")) return data_.tensor(rule.substr(5, rule.size() - 6)).dtype;
  return bp_dtype_from_name(std::string(rule).c_str());
}

void Call::materialize_scalars() {
  scalars_.reserve(case_.attributes.size());
  for (const Attribute& attribute : case_.attributes) {
    const auto* scalar = std::get_if<bp_scalar>(&attribute.value);
    if (scalar == nullptr) continue;
    const FrameMember& member = op_info(case_.op).member(attribute.name);
    const Shape shape = member.kind == "operand" ? case_.tensors.front().shape : Shape{};
    const bp_dtype dtype = dtype_of_scalar(member);
    scalars_.push_back({attribute.name, Role::kInput, dtype, shape,
                        std::vector<DoubleDouble>(static_cast<size_t>(element_count(shape)),
                                                  scalar_value(*scalar))});
    Slot slot{nullptr, &scalars_.back(),
              std::make_shared<GuardedTensor>(
                  place_, GuardedSpec{dtype, shape, place(Layout::kBroadcastAll, shape)})};
    frame_.set_tensor(attribute.name, slot.memory->view());
    slots_.push_back(std::move(slot));
  }
}

const bp_tensor* Call::without_buffer(const GuardedTensor& memory) {
  stripped_.push_back(*memory.view());
  stripped_.back().buffer = nullptr;
  return &stripped_.back();
}

void Call::strip_buffers() {
  frame_ = Frame(case_.op);
  set_attributes(frame_, case_);
  for (const Slot& slot : slots_) set_tensor(slot.host->name, without_buffer(*slot.memory));
}

void Call::prepare(Poison poison) {
  for (const Slot& slot : slots_) {
    if (slot.host->role == Role::kOutput) {
      if (!slot.is_shared) slot.memory->poison_elements(poison);
    } else {
      slot.memory->set_elements(slot.host->data);
    }
  }
  for (const Slot& slot : slots_) slot.memory->upload();
}

void Call::finish() {
  for (const Slot& slot : slots_) slot.memory->download();
}

std::string damage_text(std::string_view name, const Damage& damage) {
  std::string text = std::string(name) + ": " + std::to_string(damage.count) +
                     " bytes outside of its elements changed, the first ";
  if (damage.from_start < 0) return text + std::to_string(-damage.from_start) + " bytes before it";
  if (damage.from_end >= 0) {
    return text + std::to_string(damage.from_end) + " bytes behind its end";
  }
  return text + "in a gap, " + std::to_string(damage.from_start) + " bytes from its start";
}

bool Call::is_untouched() const {
  for (const Slot& slot : slots_) {
    if (slot.memory->damage()) return false;
    for (int64_t i = 0; i < element_count(slot.host->shape); ++i) {
      if (!slot.memory->is_unchanged(i)) return false;
    }
  }
  return true;
}

void Call::look(bool is_first, Observation& seen) const {
  size_t output = 0;
  for (const Slot& slot : slots_) {
    const int64_t count = element_count(slot.host->shape);
    if (const auto damage = slot.memory->damage(); damage && seen.damage.empty()) {
      seen.damage = damage_text(slot.host->name, *damage);
    }
    if (!is_output(slot)) {
      for (int64_t i = 0; i < count && !slot.is_shared && seen.modified_input.empty(); ++i) {
        if (slot.memory->is_unchanged(i)) continue;
        seen.modified_input =
            std::string(slot.host->name) + ": element " + std::to_string(i) + " changed";
      }
      continue;
    }
    if (is_first) {
      seen.outputs.push_back({slot.host->name, slot.host->dtype, slot.host->shape});
      seen.outputs.back().is_unwritten.resize(static_cast<size_t>(count), true);
    }
    OutputView& view = seen.outputs[output++];
    view.is_poisoned = slot.host->role == Role::kOutput && !slot.is_shared;
    view.value.clear();
    std::vector<uint64_t> bits;
    for (int64_t i = 0; i < count; ++i) {
      view.value.push_back(slot.memory->element(i));
      bits.push_back(slot.memory->element_word(i));
      if (!slot.memory->is_unchanged(i)) view.is_unwritten[static_cast<size_t>(i)] = false;
    }
    view.is_repeatable = is_first || bits == view.bits;
    view.bits = std::move(bits);
  }
}

bp_kernel_choice choose(Context& t, const OpCase& op_case, const Frame& frame) {
  bp_kernel_choice choice{};
  std::string reasons;
  for (const bp_kernel_sources source :
       {BP_KERNEL_NATIVE, BP_KERNEL_DECOMPOSED, BP_KERNEL_HOST_FALLBACK}) {
    const bp_status status =
        bp_kernel_find(&t.target(), 0, source, op_case.op, frame.data(), &choice);
    if (status == BP_OK) return choice;
    if (status != BP_UNSUPPORTED) t.require_ok(status, "bp_kernel_find");
    if (reasons.empty()) reasons = bp_error_text();
  }
  bp_error_clear();
  throw NoKernel{reasons};
}

// Ends the work of the stream, and its failure, so that results can be read.
void wait(Context& t, bp_stream* stream, Observation& seen) {
  const bp_stream_ops& streams = *t.target().streams;
  seen.stream_status = streams.synchronize(streams.self, stream, kTimeoutNs);
  if (seen.stream_status == BP_OK) return;
  seen.status_text = bp_error_text();
  bp_error_clear();
  t.require_ok(streams.clear_failure(streams.self, stream), "clear_failure");
}

// Launches a kernel of the backend directly, on workspace with canaries of its own.
bp_status launch_native(Context& t, const bp_kernel& kernel, const Frame& frame,
                        const MemoryPlace& place_in, Poison poison, bp_launch_flags flags,
                        Observation& seen) {
  const std::vector<uint64_t> words = frame.fitted(kernel.args_size_bytes);
  uint64_t required = 0, preferred = 0;
  if (kernel.workspace_size != nullptr) {
    const bp_status status =
        kernel.workspace_size(&kernel, t.target().device, words.data(), &required, &preferred);
    if (status != BP_OK) return status;
  }
  const Shape shape{static_cast<int64_t>(required)};
  GuardedTensor workspace(place_in, {BP_U8, shape, place(Layout::kDense, shape)});
  workspace.poison_elements(poison);
  workspace.upload();
  const bp_launch launch{.device = t.target().device,
                         .stream = place_in.stream,
                         .workspace = required == 0 ? bp_buffer_ref{} : workspace.ref(),
                         .flags = flags};
  const bp_status status = kernel.launch(&kernel, &launch, words.data());
  if (status != BP_OK) return status;
  wait(t, place_in.stream, seen);
  workspace.download();
  if (const auto damage = workspace.damage(); damage && seen.damage.empty()) {
    seen.damage = damage_text("workspace", *damage);
  }
  return BP_OK;
}

bp_status launch_fallback(Context& t, const bp_kernel& kernel, const Frame& frame,
                          bp_stream* stream, Observation& seen) {
  const bp_status status = bp_kernel_launch(&t.target(), stream, 0, &kernel, frame.data());
  if (status != BP_OK) return status;
  wait(t, stream, seen);
  return BP_OK;
}

Poison first_poison(const Context& t) {
  if (t.options().poison == "ff") return Poison::kOnes;
  return t.options().poison == "random" ? Poison::kNoise : Poison::kNan;
}

// Over two kinds of poison, so that an element that was not written shows.
Observation launch_twice(Context& t, Call& call, const bp_kernel_choice& choice,
                         bp_stream* stream) {
  Observation seen;
  seen.kernel = choice.kernel;
  seen.source = choice.source;
  const bool is_native = choice.source == BP_KERNEL_NATIVE;
  if (is_native && (choice.kernel->flags & BP_KERNEL_TAKES_SCALAR) == 0) {
    call.materialize_scalars();
  }
  const Poison first = first_poison(t);
  const Poison poisons[] = {first, first == Poison::kOnes ? Poison::kNan : Poison::kOnes};
  for (const Poison poison : poisons) {
    call.prepare(poison);
    t.progress(poison == first ? "launch 1" : "launch 2");
    const MemoryPlace place_in = memory_place(t, stream);
    seen.launch_status =
        is_native ? launch_native(t, *choice.kernel, call.frame(), place_in, poison, 0, seen)
                  : launch_fallback(t, *choice.kernel, call.frame(), stream, seen);
    if (seen.launch_status != BP_OK) {
      seen.status_text = bp_error_text();
      bp_error_clear();
      return seen;
    }
    t.progress("verify");
    call.finish();
    call.look(poison == first, seen);
  }
  return seen;
}

// Why each kernel is or is not taken, a line each.
std::string explanation(Context& t, const OpCase& op_case, const Frame& frame) {
  uint64_t size = 0;
  t.require_ok(bp_kernel_explain(&t.target(), 0, op_case.op, frame.data(), 0, nullptr, &size),
               "bp_kernel_explain");
  std::string text(size, '\0');
  t.require_ok(
      bp_kernel_explain(&t.target(), 0, op_case.op, frame.data(), size, text.data(), &size),
      "bp_kernel_explain");
  return text;
}

}  // namespace

Observation observe(Context& t, const OpCase& op_case, const CallData& data,
                    const Variant& variant) {
  t.progress("setup");
  const CaseStream stream(t);
  Call call(t, op_case, data, variant, stream.get());
  if (bp_op_check(op_case.op, call.frame().data()) != BP_OK) {
    throw std::runtime_error(std::string("the case is not a legal call: ") + bp_error_text());
  }
  const bp_kernel_choice choice = choose(t, op_case, call.frame());
  return launch_twice(t, call, choice, stream.get());
}

std::optional<Refused> observe_refused(Context& t, const OpCase& op_case, const CallData& data) {
  const CaseStream stream(t);
  Call call(t, op_case, data, {}, stream.get());
  const std::string lines = explanation(t, op_case, call.frame());
  for (uint64_t i = 0; i < bp_target_kernel_count(&t.target()); ++i) {
    const bp_kernel& kernel = *bp_target_kernel(&t.target(), i);
    if (kernel.op != op_case.op || kernel.supports == nullptr) continue;
    const std::vector<uint64_t> words = call.frame().fitted(kernel.args_size_bytes);
    const bp_reason reason = kernel.supports(&kernel, t.target().device, 0, words.data());
    // The host gives the kernel's own reason where the claims hold, and else what they miss.
    const std::string line =
        "/" + std::string(kernel.name) + ": " + (reason == nullptr ? "" : reason);
    if (reason == nullptr || lines.find(line) == std::string::npos) continue;
    Refused refused{kernel.name, reason, {}};
    refused.seen = launch_twice(t, call, {&kernel, BP_KERNEL_NATIVE, 0}, stream.get());
    return refused;
  }
  return std::nullopt;
}

bool is_served(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant,
               bp_kernel_sources sources) {
  const CaseStream stream(t);
  const Call call(t, op_case, data, variant, stream.get());
  bp_kernel_choice choice{};
  const bp_status status =
      bp_kernel_find(&t.target(), 0, sources, op_case.op, call.frame().data(), &choice);
  bp_error_clear();
  return status == BP_OK;
}

Probe probe_kernel(Context& t, const OpCase& op_case, const CallData& data, bp_launch_flags flags) {
  const CaseStream stream(t);
  Call call(t, op_case, data, {}, stream.get());
  bp_kernel_choice choice{};
  Probe probe;
  const bp_status found =
      bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, op_case.op, call.frame().data(), &choice);
  bp_error_clear();
  if (found != BP_OK) return probe;
  probe.has_kernel = true;
  const bp_kernel& kernel = *choice.kernel;
  if ((kernel.flags & BP_KERNEL_TAKES_SCALAR) == 0) call.materialize_scalars();
  call.prepare(Poison::kNan);
  Observation seen;
  probe.status = launch_native(t, kernel, call.frame(), memory_place(t, stream.get()), Poison::kNan,
                               flags, seen);
  probe.text = bp_error_text();
  bp_error_clear();
  call.finish();
  probe.is_untouched = call.is_untouched();
  if (kernel.supports == nullptr) return probe;
  const auto ask = [&] {
    const std::vector<uint64_t> words = call.frame().fitted(kernel.args_size_bytes);
    return kernel.supports(&kernel, t.target().device, 0, words.data());
  };
  probe.with_buffers = ask();
  call.strip_buffers();
  probe.without_buffers = ask();
  return probe;
}

}  // namespace bp::conformance
