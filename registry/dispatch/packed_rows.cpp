#include "registry/dispatch/packed_rows.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <optional>
#include <string_view>

#include "backplane/host.h"
#include "registry/dispatch/other_frame.hpp"
#include "registry/services/decompose.hpp"
#include "registry/services/service_kernels.hpp"
#include "registry/tensors/scalar.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::core {
namespace {

using services::Evaluator;

// The bytes of a tensor of packed elements. Its last axes are one row.
class Bytes {
 public:
  // `joined` axes become the row, which is at least one axis.
  Bytes(const bp_tensor& given, uint32_t joined) : tensor_(given) {
    if (joined > given.ndim) return;
    const int64_t bits = bp_dtype_bits(given.dtype);
    const bool has_elements = tensors::has_elements(given);
    const uint32_t outer = given.ndim - joined;
    int64_t elements = 1;
    for (uint32_t axis = given.ndim; axis-- > outer;) {
      const bool is_next = given.strides[axis] == elements || given.shape[axis] == 1;
      if (has_elements && !is_next) return;
      elements *= given.shape[axis];
    }
    if (elements * bits % 8 != 0) return;
    for (uint32_t axis = 0; axis < outer; ++axis) {
      const bool is_used = has_elements && given.shape[axis] != 1;
      if (is_used && given.strides[axis] * bits % 8 != 0) return;
      shape_[axis] = given.shape[axis];
      strides_[axis] = is_used ? given.strides[axis] * bits / 8 : 0;
    }
    shape_[outer] = elements * bits / 8;
    strides_[outer] = 1;
    tensor_.dtype = BP_U8;
    tensor_.ndim = outer + 1;
    tensor_.shape = shape_.data();
    tensor_.strides = strides_.data();
    is_whole_ = true;
  }
  Bytes(const Bytes&) = delete;

  // Returns whether each row begins and ends at a whole byte and has no gaps.
  bool is_whole() const { return is_whole_; }
  const bp_tensor* tensor() const { return &tensor_; }

  // Makes the row every third byte, from byte `first` on.
  void take_third(uint32_t first) {
    const uint32_t row = tensor_.ndim - 1;
    shape_[row] /= 3;
    strides_[row] = 3;
    tensor_.byte_offset += first;
  }

 private:
  bp_tensor tensor_;
  std::array<int64_t, BP_MAX_RANK> shape_{}, strides_{};
  bool is_whole_ = false;
};

// Returns the place in the frame of the axis along which an op moves, or nothing if it has none.
std::optional<uint32_t> axis_offset(const OpRow& row) {
  const bp_op_desc* desc = nullptr;
  if (bp_op_describe(row.op, &desc) != BP_OK) return std::nullopt;
  for (uint64_t i = 0; i < desc->argument_count; ++i) {
    const bp_op_argument& argument = *reinterpret_cast<const bp_op_argument*>(
        reinterpret_cast<const std::byte*>(desc->arguments) + i * desc->argument_stride_bytes);
    if (std::string_view(argument.name) == "axis") return argument.offset_bytes;
  }
  return std::nullopt;
}

// Returns whether an op finds rows by their indices, which are another free argument.
bool has_indices(const OpRow& row) {
  const uint32_t root = root_of(row);
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    if (row.tensors[i].is_free && !follows(row, i, root)) return true;
  }
  return false;
}

const bp_tensor& root_tensor(const OpRow& row, const void* args) {
  const TensorArgument& root = row.tensors[root_of(row)];
  return root.is_list() ? *list_at(args, root).items[0] : *tensor_at(args, root);
}

// Returns how many of the last axes may be joined to a row. What is looked up by indices, and what
// concatenates, keeps the axes in front of its own.
uint32_t most_joined(const OpRow& row, const void* args) {
  const std::optional<uint32_t> offset = axis_offset(row);
  const auto ndim = int64_t{root_tensor(row, args).ndim};
  const int64_t axis = offset ? *static_cast<const int32_t*>(member(args, *offset)) : 0;
  return static_cast<uint32_t>(
      std::clamp(ndim - axis - (has_indices(row) ? 1 : 0), int64_t{0}, ndim));
}

template <typename Visit>
bool every_moved_tensor(const OpRow& row, const void* args, const Visit& visit) {
  const uint32_t root = root_of(row);
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (!follows(row, i, root)) continue;
    const bp_tensor* const single = argument.is_list() ? nullptr : tensor_at(args, argument);
    const TensorList list = argument.is_list() ? list_at(args, argument)
                                               : TensorList{single == nullptr ? 0u : 1u, &single};
    if (!std::all_of(list.items, list.items + list.count,
                     [&](const bp_tensor* tensor) { return visit(*tensor); })) {
      return false;
    }
  }
  return true;
}

// Returns the fewest axes that form a row of whole bytes in each tensor, or 0 if there are none.
uint32_t joined_axes(const OpRow& row, const void* args) {
  const uint32_t most = most_joined(row, args);
  for (uint32_t joined = 1; joined <= most; ++joined) {
    const auto is_whole = [&](const bp_tensor& t) { return Bytes(t, joined).is_whole(); };
    if (every_moved_tensor(row, args, is_whole)) return joined;
  }
  return 0;
}

bp_reason supports(const bp_kernel* self, bp_device*, bp_launch_flags, const void* args) {
  const auto& row = *static_cast<const OpRow*>(self->state);
  if (row.op == BP_OP_FILL && static_cast<const bp_fill_args*>(args)->value != nullptr) {
    return "value is a tensor of one packed element, which is no whole byte; give a number";
  }
  return joined_axes(row, args) != 0
             ? nullptr
             : "a row of packed elements is not whole bytes: the last axes have gaps, or their "
               "elements begin or end within a byte";
}

// Fills with the codes of 4 elements, which take 1, 2 or 3 bytes.
void fill(Evaluator& e, const bp_fill_args& args, uint32_t joined) {
  unsigned char code[16] = {};
  if (scalar_bytes(args.value_scalar, args.y->dtype, code) == 0) {
    throw services::Failed{fail(BP_UNSUPPORTED, "fill: no element of " + dtype_text(args.y->dtype) +
                                                    " can be made from a number")};
  }
  const uint32_t bits = bp_dtype_bits(args.y->dtype);
  uint32_t pattern = 0;
  for (uint32_t i = 0; i < 24 / bits; ++i) pattern |= uint32_t{code[0]} << i * bits;
  const bool is_in_threes = bits == 6;
  for (uint32_t i = 0; i < (is_in_threes ? 3u : 1u); ++i) {
    Bytes y(*args.y, joined);
    if (is_in_threes) y.take_third(i);
    bp_fill_args each = args;
    each.y = y.tensor();
    each.value_scalar = services::to_scalar(int64_t{pattern >> i * 8 & 0xFF});
    e.launch(BP_OP_FILL, &each);
  }
}

void run(Evaluator& e, const OpRow& row, const void* args) {
  const uint32_t joined = joined_axes(row, args);
  if (row.op == BP_OP_FILL) return fill(e, *static_cast<const bp_fill_args*>(args), joined);
  std::deque<Bytes> tensors;
  OtherFrame frame(row, args, [&](const TensorArgument&, const bp_tensor& given) {
    return tensors.emplace_back(given, joined).tensor();
  });
  if (const std::optional<uint32_t> offset = axis_offset(row)) {
    const auto last = static_cast<int32_t>(root_tensor(row, args).ndim - joined);
    const int32_t axis = std::min(*static_cast<const int32_t*>(member(args, *offset)), last);
    frame.set(*offset, axis);
  }
  e.launch(row.op, frame.data());
}

bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& row = *static_cast<const OpRow*>(self->state);
  return services::evaluate(*launch, self->name, [&](Evaluator& e) { run(e, row, args); });
}

}  // namespace

bool is_packed(bp_dtype dtype) { return bp_dtype_bits(dtype) % 8 != 0; }

std::string by_bytes_refusal(const OpRow& row, const Key& key) {
  const bp_dtype dtype = row.moves == Moves::none ? 0 : dtype_of(key.fact(root_of(row)));
  if (row.moves == Moves::none || !is_packed(dtype)) return "the call moves no packed elements";
  if (row.moves == Moves::elements) return "an element of " + dtype_text(dtype) + " has no address";
  if (row.op == BP_OP_COPY && dtype_of(key.fact(1)) != dtype)
    return "the call converts its elements";
  return "";
}

const bp_kernel* by_bytes(const OpRow& row) {
  static services::ServiceKernels kernels("by_bytes", launch, services::kServiceFlags, supports);
  return kernels.of(row);
}

}  // namespace bp::core
