#include "conformance/cases/engine/op_call.hpp"

#include <algorithm>
#include <utility>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/engine/op_facts.hpp"

namespace bp::conformance {
namespace {

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

uint64_t offset_alignment(const Context& t) {
  return std::max<uint64_t>(t.target().properties->heaps->tensor_offset_alignment_bytes, 1);
}

Placement placement_of(const TensorArgument& argument, const Variant& variant, int64_t row_stride) {
  if (variant.has_equal_rows && argument.shape.size() >= 2) {
    return place_rows(argument.shape, row_stride);
  }
  const bool is_kept =
      variant.has_layouts && (variant.has_broadcasts || !is_broadcast(argument.layout));
  return place(is_kept ? argument.layout : Layout::kDense, argument.shape);
}

}  // namespace

MemoryPlace memory_place(const Context& t, bp_stream* stream) {
  const uint64_t alignment = std::max<uint64_t>(offset_alignment(t), 256);
  return {&t.target(), stream, round_up(std::max(t.options().canary_bytes, alignment), alignment)};
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

Call::Call(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant,
           bp_stream* stream)
    : t_(t), case_(op_case), data_(data), place_(memory_place(t, stream)), frame_(op_case.op) {
  place_.edge = variant.edge;
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

// The rule of a scalar is like(x), a dtype, or a set of dtypes.
bp_dtype Call::dtype_of_scalar(const FrameMember& member, bp_kernel_flags flags) const {
  const std::string_view rule = member.dtype;
  if (!rule.starts_with("like(")) return first_dtype(member);
  const bp_dtype x = data_.tensor(rule.substr(5, rule.size() - 6)).dtype;
  const bool is_acc = member.kind == "operand" && (flags & BP_KERNEL_TAKES_ACC_OPERAND) != 0;
  return is_acc ? accumulator_of(x) : x;
}

void Call::materialize_scalars(bp_kernel_flags flags) {
  scalars_.reserve(case_.attributes.size());
  for (const Attribute& attribute : case_.attributes) {
    const auto* scalar = std::get_if<bp_scalar>(&attribute.value);
    if (scalar == nullptr) continue;
    const FrameMember& member = op_info(case_.op).member(attribute.name);
    const Shape shape = member.kind == "operand" ? case_.tensors.front().shape : Shape{};
    const bp_dtype dtype = dtype_of_scalar(member, flags);
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

void Call::add_ignorable_links() {
  static constexpr bp_struct_header kLast{sizeof(kLast), 0x7fff0001, nullptr};
  static constexpr bp_struct_header kFirst{sizeof(kFirst), 0x7fff0000, &kLast};
  frame_ = Frame(case_.op);
  set_attributes(frame_, case_);
  for (const Slot& slot : slots_) {
    linked_.push_back(*slot.memory->view());
    linked_.back().next = &kFirst;
    set_tensor(slot.host->name, &linked_.back());
  }
}

void Call::prepare(Poison poison, Surroundings around) {
  for (const Slot& slot : slots_) slot.memory->surround(around);
  for (const Slot& slot : slots_) {
    if (slot.host->role == Role::kOutput) {
      if (!slot.is_shared) slot.memory->poison_elements(poison);
    } else {
      slot.memory->set_elements(slot.host->data);
    }
  }
  for (const Slot& slot : slots_) slot.memory->upload();
}

void Call::finish(bp_stream* reader) {
  for (const Slot& slot : slots_) slot.memory->download(reader);
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
    view.first_value = std::exchange(view.value, {});
    std::vector<uint64_t> bits;
    for (int64_t i = 0; i < count; ++i) {
      view.value.push_back(slot.memory->element(i));
      bits.push_back(slot.memory->element_word(i));
      if (!slot.memory->is_unchanged(i)) view.is_unwritten[static_cast<size_t>(i)] = false;
    }
    view.is_repeatable = is_first || bits == view.bits;
    if (view.is_repeatable) view.first_value.clear();
    view.bits = std::move(bits);
  }
}

}  // namespace bp::conformance
