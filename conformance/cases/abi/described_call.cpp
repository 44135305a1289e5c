#include "conformance/cases/abi/described_call.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {
namespace {

constexpr uint32_t kFirstRuntimeOp = 1u << 16;
constexpr int kDraws = 4000;
constexpr int64_t kExtent = 4, kOther = 5;  // The extents of an axis, and of an axis that differs.

bool is_output(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_OUT || kind == BP_ARGUMENT_OPTIONAL_OUT;
}
bool is_plain_tensor(bp_argument_kind kind) {
  return kind == BP_ARGUMENT_TENSOR || kind == BP_ARGUMENT_OPTIONAL_TENSOR || is_output(kind) ||
         kind == BP_ARGUMENT_OPERAND || kind == BP_ARGUMENT_SCALAR_TENSOR;
}
bool is_given_shape(const bp_op_argument& a) {
  return a.shape_rule != nullptr && std::strcmp(a.shape_rule, "given") == 0;
}

template <typename T>
void put(std::vector<uint64_t>& frame, uint32_t offset, T value) {
  std::memcpy(reinterpret_cast<std::byte*>(frame.data()) + offset, &value, sizeof(value));
}

const bp_op_argument& argument_of(const bp_op_desc& op, size_t i) {
  return *reinterpret_cast<const bp_op_argument*>(reinterpret_cast<const char*>(op.arguments) +
                                                  i * op.argument_stride_bytes);
}

std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  return strides;
}

// Sets the outputs as the description infers them. Returns whether it accepts the inputs.
bool infer(DescribedPlan& plan) {
  bp_op_output outputs[64];
  uint32_t count = 0;
  const BareFrame frame(plan, false);
  if (bp_op_infer(plan.op->op, frame.data(), 64, outputs, &count) != BP_OK) return false;
  uint32_t next = 0;
  for (DescribedTensor& each : plan.tensors) {
    if (!each.is_output) continue;
    const bp_op_output& output = outputs[next++];
    each.dtype = output.dtype;
    each.shape.assign(output.shape, output.shape + output.ndim);
  }
  return true;
}

class Drawing {
 public:
  Drawing(const bp_target& target, const bp_op_desc& op, std::mt19937_64& random)
      : target_(target), op_(op), random_(random) {}

  std::optional<DescribedPlan> draw() {
    for (int i = 0; i < kDraws; ++i) {
      DescribedPlan plan;
      plan.op = &op_;
      plan.frame.resize((op_.frame_size_bytes + 7) / 8);
      plan.lists.resize(op_.argument_count);
      put(plan.frame, 0, op_.frame_size_bytes);
      if (!draw_arguments(plan)) return std::nullopt;
      if (!is_taken(plan)) continue;
      vary(plan);
      return plan;
    }
    return std::nullopt;
  }

 private:
  int64_t below(int64_t end) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(end));
  }

  // Returns false if the op has an argument that is not drawn.
  bool draw_arguments(DescribedPlan& plan) {
    const int64_t rank = below(5);
    for (size_t i = 0; i < op_.argument_count; ++i) {
      const bp_op_argument& a = argument_of(op_, i);
      if (a.kind > BP_ARGUMENT_SCALAR_TENSOR) {
        draw_attribute(plan, a, i);
      } else if (is_plain_tensor(a.kind)) {
        draw_tensor(plan, a, i, rank);
      } else {
        return false;
      }
    }
    return true;
  }

  void draw_tensor(DescribedPlan& plan, const bp_op_argument& a, size_t index, int64_t rank) {
    DescribedTensor tensor;
    tensor.argument = &a;
    tensor.index = index;
    tensor.is_output = is_output(a.kind);
    const bool is_optional =
        a.kind == BP_ARGUMENT_OPTIONAL_TENSOR || a.kind == BP_ARGUMENT_OPTIONAL_OUT;
    tensor.is_given = !is_optional || below(2) == 0;
    const int64_t own = below(3) == 0 ? below(5) : rank;  // Mostly all ranks are equal.
    tensor.shape.assign(static_cast<size_t>(own), kExtent);
    if (a.kind == BP_ARGUMENT_SCALAR_TENSOR) tensor.shape.clear();
    tensor.dtype = a.dtype_count != 0 ? a.dtypes[below(a.dtype_count)] : followed(plan, a);
    plan.tensors.push_back(std::move(tensor));
  }

  // Returns the dtype of an argument that is like an earlier one, or names one dtype.
  static bp_dtype followed(const DescribedPlan& plan, const bp_op_argument& a) {
    const std::string rule = a.dtype_rule == nullptr ? "" : a.dtype_rule;
    const size_t open = rule.find('(');
    for (const DescribedTensor& each : plan.tensors) {
      if (open == rule.npos || rule.substr(open + 1, rule.size() - open - 2) != each.argument->name)
        continue;
      return rule.starts_with("acc") ? accumulator_of(each.dtype) : each.dtype;
    }
    return bp_dtype_from_name(rule.c_str());
  }

  void draw_attribute(DescribedPlan& plan, const bp_op_argument& a, size_t index) {
    const bool has_default = a.default_value.dtype != 0 && below(2) == 0;
    const auto number = has_default ? static_cast<int64_t>(a.default_value.bits) : below(4);
    switch (a.kind) {
      case BP_ARGUMENT_I32:
        return put(plan.frame, a.offset_bytes, static_cast<int32_t>(number));
      case BP_ARGUMENT_F64:
        return put(plan.frame, a.offset_bytes,
                   has_default ? a.default_value.bits
                               : std::bit_cast<uint64_t>(static_cast<double>(below(4)) / 2));
      case BP_ARGUMENT_ENUM:
        return put(plan.frame, a.offset_bytes,
                   a.first_value + static_cast<uint32_t>(below(a.value_count)));
      case BP_ARGUMENT_DTYPE:
        return put(plan.frame, a.offset_bytes, bp_dtype{BP_F32});
      case BP_ARGUMENT_I64_LIST: {
        std::vector<int64_t>& list = plan.lists[index];
        for (int64_t n = below(4); n > 0; --n) list.push_back(below(3));
        put(plan.frame, a.offset_bytes - 8, uint64_t{list.size()});
        return put(plan.frame, a.offset_bytes, static_cast<const int64_t*>(list.data()));
      }
      default:
        return put(plan.frame, a.offset_bytes, number);
    }
  }

  bool is_taken(DescribedPlan& plan) const {
    const bool are_known = std::ranges::all_of(plan.tensors, [](const DescribedTensor& each) {
      return each.is_output || !each.is_given || (each.dtype != 0 && !is_packed(each.dtype));
    });
    if (!are_known || !infer(plan)) return false;
    const BareFrame frame(plan, true);
    bp_kernel_choice choice{};
    return bp_kernel_find(&target_, 0, BP_KERNEL_NATIVE, plan.op->op, frame.data(), &choice) ==
           BP_OK;
  }

  // Gives axes other extents where the description allows it, together with up to two others.
  void vary(DescribedPlan& plan) const {
    std::vector<int64_t*> axes;
    for (DescribedTensor& each : plan.tensors) {
      if (each.is_output && !is_given_shape(*each.argument)) continue;
      for (int64_t& extent : each.shape) axes.push_back(&extent);
    }
    int64_t extent = kOther;
    for (size_t i = 0; i < axes.size(); ++i) {
      if (*axes[i] == kExtent && vary_with(plan, axes, i, 2, extent)) ++extent;
    }
    static_cast<void>(infer(plan));
  }

  bool vary_with(DescribedPlan& plan, const std::vector<int64_t*>& axes, size_t first, int more,
                 int64_t extent) const {
    *axes[first] = extent;
    DescribedPlan trial = plan;  // infer() changes outputs, to which `axes` does not point.
    if (is_taken(trial)) return true;
    for (size_t next = first + 1; more > 0 && next < axes.size(); ++next) {
      if (*axes[next] == kExtent && vary_with(plan, axes, next, more - 1, extent)) return true;
    }
    *axes[first] = kExtent;
    return false;
  }

  const bp_target& target_;
  const bp_op_desc& op_;
  std::mt19937_64& random_;
};

// Calls visit(element, place in elements from the first one).
void visit_places(const DescribedTensor& tensor, const std::vector<int64_t>& strides,
                  const std::function<void(size_t, int64_t)>& visit) {
  size_t count = 1;
  for (const int64_t extent : tensor.shape) count *= static_cast<size_t>(extent);
  for (size_t i = 0; i < count; ++i) {
    int64_t rest = static_cast<int64_t>(i), place = 0;
    for (size_t axis = tensor.shape.size(); axis-- > 0; rest /= tensor.shape[axis]) {
      place += rest % tensor.shape[axis] * strides[axis];
    }
    visit(i, place);
  }
}

DoubleDouble draw_value(bp_dtype dtype, std::mt19937_64& random) {
  if (is_float(dtype)) return static_cast<double>(random() % 4001) / 1000 - 2;
  // Wider integers may be indices.
  const bool is_narrow = dtype != BP_BOOL && bp_dtype_bits(dtype) <= 16;
  const auto value = static_cast<double>(random() % (is_narrow ? 65536 : 2));
  return is_narrow ? value - (is_unsigned(dtype) ? 0 : 32768) : value;
}

}  // namespace

BareFrame::BareFrame(const DescribedPlan& plan, bool has_outputs)
    : words_(plan.frame), tensors_(plan.tensors.size()), strides_(plan.tensors.size()) {
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const DescribedTensor& each = plan.tensors[i];
    const bool is_needed = has_outputs || !each.is_output || is_given_shape(*each.argument) ||
                           each.argument->dtype_count != 0;
    if (!each.is_given || !is_needed) continue;
    strides_[i] = row_major(each.shape);
    tensors_[i].shape = each.shape.data();
    tensors_[i].strides = strides_[i].data();
    tensors_[i].ndim = static_cast<uint32_t>(each.shape.size());
    tensors_[i].dtype = each.dtype;
    put(words_, each.argument->offset_bytes, const_cast<const bp_tensor*>(&tensors_[i]));
  }
}

std::vector<const bp_op_desc*> described_ops(const bp_target& target) {
  std::vector<const bp_op_desc*> ops;
  for (uint64_t i = 0; i < bp_target_kernel_count(&target); ++i) {
    const bp_op_desc* desc = nullptr;
    const uint32_t op = bp_kernel_op(bp_target_kernel(&target, i));
    if (op < kFirstRuntimeOp || bp_op_describe(op, &desc) != BP_OK) continue;
    if (std::ranges::count(ops, desc) == 0) ops.push_back(desc);
  }
  return ops;
}

std::optional<DescribedPlan> draw_plan(const bp_target& target, const bp_op_desc& op,
                                       std::mt19937_64& random) {
  return Drawing(target, op, random).draw();
}

DescribedCall::DescribedCall(Context& t, const bp_target& target, const DescribedPlan& plan,
                             const DescribedLayout& layout, uint64_t seed, int64_t output,
                             int64_t shared_input)
    : t_(t), target_(target), plan_(plan), memory_(plan.tensors.size()), frame_(plan.frame) {
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    if (plan.tensors[i].is_given) place(i, layout, seed + i);
  }
  if (shared_input >= 0) {
    memory_[static_cast<size_t>(output)].tensor = memory_[static_cast<size_t>(shared_input)].tensor;
  }
  write_frame();
}

void DescribedCall::place(size_t i, const DescribedLayout& layout, uint64_t seed) {
  const DescribedTensor& tensor = plan_.tensors[i];
  Memory& memory = memory_[i];
  std::vector<int64_t> shape = tensor.shape;
  if (layout.is_reversed) std::ranges::reverse(shape);
  memory.strides = row_major(shape);
  if (layout.is_reversed) std::ranges::reverse(memory.strides);
  int64_t reach = layout.origin + 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    memory.strides[axis] *= layout.step;
    reach += std::max<int64_t>(tensor.shape[axis] - 1, 0) * memory.strides[axis];
  }
  const uint64_t size = element_size(tensor.dtype);
  memory.before.assign(static_cast<size_t>(reach + layout.origin) * size, std::byte{0xA5});
  bp_block* block = nullptr;
  t_.require_ok(bp_block_allocate(&target_, nullptr, memory.before.size(), &block), "allocate");
  memory.block.reset(block);
  std::mt19937_64 random(seed);
  visit_places(tensor, memory.strides, [&](size_t, int64_t at) {
    if (tensor.is_output) return;
    store_element(tensor.dtype, draw_value(tensor.dtype, random),
                  memory.before.data() + static_cast<uint64_t>(layout.origin + at) * size);
  });
  memory.tensor.buffer = block->ref.buffer;
  memory.tensor.byte_offset = block->ref.byte_offset + static_cast<uint64_t>(layout.origin) * size;
  memory.tensor.shape = tensor.shape.data();
  memory.tensor.strides = memory.strides.data();
  memory.tensor.ndim = static_cast<uint32_t>(tensor.shape.size());
  memory.tensor.dtype = tensor.dtype;
  upload(memory);
}

void DescribedCall::upload(Memory& memory) const {
  bp_buffer_ref range = memory.block->ref;
  range.size_bytes = memory.before.size();
  const bp_allocator_ops& m = *target_.allocator;
  t_.require_ok(m.copy_from_host(m.self, target_.default_stream, &range, memory.before.data(),
                                 BP_BORROW_DURING_CALL),
                "memory.copy_from_host");
}

std::vector<std::byte> DescribedCall::download(const Memory& memory) const {
  std::vector<std::byte> bytes(memory.before.size());
  bp_buffer_ref range = memory.block->ref;
  range.size_bytes = bytes.size();
  const bp_allocator_ops& m = *target_.allocator;
  t_.require_ok(m.copy_to_host(m.self, target_.default_stream, bytes.data(), &range,
                               BP_BORROW_DURING_CALL, UINT64_MAX),
                "memory.copy_to_host");
  return bytes;
}

void DescribedCall::write_frame() {
  for (size_t i = 0; i < plan_.tensors.size(); ++i) {
    if (!plan_.tensors[i].is_given) continue;
    put(frame_, plan_.tensors[i].argument->offset_bytes,
        const_cast<const bp_tensor*>(&memory_[i].tensor));
  }
}

bp_status DescribedCall::launch(bp_kernel_sources sources) {
  bp_kernel_choice choice{};
  const bp_status found = bp_kernel_find(&target_, 0, sources, plan_.op->op, frame(), &choice);
  if (found != BP_OK) return found;
  return bp_kernel_launch(&target_, nullptr, 0, choice.kernel, frame());
}

std::vector<std::vector<std::byte>> DescribedCall::elements(size_t i) const {
  const DescribedTensor& tensor = plan_.tensors[i];
  // An output may have the memory of an input.
  const auto owner = std::ranges::find_if(memory_, [&](const Memory& each) {
    return each.block != nullptr && each.tensor.buffer == memory_[i].tensor.buffer &&
           each.tensor.byte_offset == memory_[i].tensor.byte_offset;
  });
  const std::vector<std::byte> bytes = download(*owner);
  const uint64_t size = element_size(tensor.dtype);
  const uint64_t first = owner->tensor.byte_offset - owner->block->ref.byte_offset;
  std::vector<std::vector<std::byte>> elements;
  visit_places(tensor, owner->strides, [&](size_t, int64_t at) {
    const auto* const begin = bytes.data() + first + static_cast<uint64_t>(at) * size;
    elements.emplace_back(begin, begin + size);
  });
  return elements;
}

std::string DescribedCall::stray_write() const {
  for (size_t i = 0; i < memory_.size(); ++i) {
    const DescribedTensor& tensor = plan_.tensors[i];
    const Memory& memory = memory_[i];
    if (memory.block == nullptr) continue;
    std::vector<std::byte> seen = download(memory), expected = memory.before;
    const uint64_t size = element_size(tensor.dtype);
    const uint64_t first = memory.tensor.byte_offset - memory.block->ref.byte_offset;
    visit_places(tensor, memory.strides, [&](size_t, int64_t at) {
      if (!tensor.is_output) return;
      const uint64_t begin = first + static_cast<uint64_t>(at) * size;
      std::copy_n(seen.begin() + static_cast<int64_t>(begin), size,
                  expected.begin() + static_cast<int64_t>(begin));
    });
    if (seen != expected) return tensor.argument->name;
  }
  return "";
}

}  // namespace bp::conformance
