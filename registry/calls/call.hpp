// Describes a call of an op for the selection of kernels, in a few words that hold everything that
// claims can ask.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "registry/calls/dtypes.hpp"
#include "registry/calls/op_rows.hpp"
#include "registry/tensors/layout.hpp"

namespace bp::core {

inline constexpr bp_launch_flags kKnownLaunchFlags =
    BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32 | BP_LAUNCH_DEVICE_CURRENT;

// A tensor argument in 32 bits, or 0 if it is not given. For a list it has the dtype of the first
// tensor, all classes, the highest rank and the smallest alignment.
//
//   bit 0        16        22     26          30        31
//       dtype    | classes | rank | alignment | differs | one element
//
// A given tensor has a class, so no bit is needed to say that it is given.
using Fact = uint32_t;

inline constexpr uint32_t kClassShift = 16, kRankShift = 22, kAlignmentShift = 26;
inline constexpr uint32_t kMaxAlignmentLog2 = 12;  // Claims ask for at most 4096 bytes.
inline constexpr Fact kDtypeMask = (1u << kClassShift) - 1;
inline constexpr Fact kOpaqueClass = 1u << 5;  // The tensor has a bp_layout of its backend.
inline constexpr Fact kDiffers = 1u << 30;     // The dtypes of a list are not all the same.
inline constexpr Fact kHasOneElement = 1u << 31;

// The fact of a tensor or scalar that was appended to the frame and is absent, which is zero there.
// It has no class.
inline constexpr Fact kIsAbsent = 1u << 31;

static_assert(2 * BP_LAYOUT_ANY <= kOpaqueClass && kOpaqueClass << kClassShift < 1u << kRankShift);
static_assert(BP_DTYPE_VENDOR_LAST == kDtypeMask);
static_assert(BP_MAX_RANK < 1u << (kAlignmentShift - kRankShift));
static_assert(kMaxAlignmentLog2 << kAlignmentShift < kDiffers);

constexpr bp_dtype dtype_of(Fact fact) { return fact & kDtypeMask; }
constexpr bp_layout_flags classes_of(Fact fact) { return fact >> kClassShift & 0x3F; }
constexpr bool is_given(Fact fact) { return classes_of(fact) != 0; }
constexpr uint32_t rank_of(Fact fact) { return fact >> kRankShift & 0xF; }
constexpr uint64_t alignment_of(Fact fact) {
  return uint64_t{1} << (fact >> kAlignmentShift & 0xF);
}

// Returns whether `fact` is that of an inline scalar, if it is of an argument that may be one.
constexpr bool is_inline(Fact fact) { return fact == 0; }

// The key under which a selection is remembered. Unused words at its end are zero.
struct Key {
  // The op, the launch flags, whether a tensor has flags or links that must be understood, and
  // whether an output is the memory of an input.
  uint64_t head = 0;
  uint64_t facts[kMaxTensors / 2] = {};

  static constexpr uint64_t kQualified = uint64_t{1} << 62, kInPlace = uint64_t{1} << 63;

  Fact fact(uint32_t i) const { return static_cast<Fact>(facts[i / 2] >> (i % 2 * 32)); }
  bp_launch_flags flags() const { return static_cast<bp_launch_flags>(head >> 32) & 0xFFFF; }
  bool is_qualified() const { return (head & kQualified) != 0; }
  bool is_in_place() const { return (head & kInPlace) != 0; }
  bool operator==(const Key&) const = default;

  uint64_t hash(uint32_t tensor_count) const {
    constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
    uint64_t h = head * kMultiplier;
    for (uint32_t i = 0; i < (tensor_count + 1) / 2; ++i) {
      h = (std::rotl(h, 29) ^ facts[i]) * kMultiplier;
    }
    return h ^ h >> 32;
  }
};

inline const void* member(const void* args, uint32_t offset) {
  return static_cast<const std::byte*>(args) + offset;
}

inline uint32_t frame_size(const void* args) { return *static_cast<const uint32_t*>(args); }

// Returns whether a frame is long enough for the member at `offset`. Frames of older builds and for
// older kernels may be shorter than those of this build.
inline bool has_member(const void* args, uint32_t offset) { return offset < frame_size(args); }

// Returns the tensor at `argument`, which is not a list.
inline const bp_tensor* tensor_at(const void* args, const TensorArgument& argument) {
  return *static_cast<const bp_tensor* const*>(member(args, argument.offset));
}

struct TensorList {
  uint64_t count;
  const bp_tensor* const* items;
};

inline TensorList list_at(const void* args, const TensorArgument& argument) {
  return {*static_cast<const uint64_t*>(member(args, argument.offset - 8u)),
          *static_cast<const bp_tensor* const* const*>(member(args, argument.offset))};
}

inline const bp_scalar& scalar_at(const void* args, const TensorArgument& argument) {
  return *static_cast<const bp_scalar*>(member(args, argument.offset + sizeof(void*)));
}

// Returns whether the frame gives `argument` as an inline scalar.
inline bool has_inline_scalar(const TensorArgument& argument, const void* args) {
  return argument.has_scalar() && tensor_at(args, argument) == nullptr &&
         !(argument.may_be_absent && scalar_at(args, argument).dtype == 0);
}

// Describes `t`, whose dtype must be known and whose rank is at most BP_MAX_RANK.
inline Fact describe(const bp_tensor& t) {
  bool has_one_element;
  const bp_layout_flags layout = layout_class(t, &has_one_element);
  const uint64_t offset = t.byte_offset | uint64_t{1} << kMaxAlignmentLog2;
  return t.dtype | (t.layout == nullptr ? layout : kOpaqueClass) << kClassShift |
         t.ndim << kRankShift | static_cast<uint32_t>(std::countr_zero(offset)) << kAlignmentShift |
         (has_one_element ? kHasOneElement : 0);
}

// Reads the call with the frame `args` into `key`. The frame has at least the row's size, and `key`
// is all zero. If it fails, the text says which argument is not usable. *out_has_null tells whether
// a tensor has no buffer; check_buffers() then decides whether that is allowed.
bp_status read_call(const OpRow& row, bp_launch_flags flags, const void* args, Key& key,
                    bool* out_has_null);

// Refuses a tensor that has elements and no buffer.
bp_status check_buffers(const OpRow& row, const void* args);

// Copies a frame that is shorter than this build's into `storage` of kMaxFrameBytes, with zeros for
// what the caller's older build lacks. Returns NULL, with the text set, if the frame is shorter
// than in the first release.
const void* lengthened_frame(const OpRow& row, const void* args, std::byte* storage);

// Returns the frame as this build knows it: `args` itself if it is not shorter.
inline const void* known_frame(const OpRow& row, const void* args, std::byte* storage) {
  if (frame_size(args) >= row.frame_size_bytes) [[likely]] {
    return args;
  }
  return lengthened_frame(row, args, storage);
}

// Returns the frame for a kernel that was written for frames of `size_bytes`. It is `args` itself
// if it is not shorter, else a copy in `storage`. If the caller gave a member that the kernel does
// not know, returns NULL and writes the place of the member to *out_offset.
const void* fit_frame(const OpRow& row, const void* args, uint32_t size_bytes, std::byte* storage,
                      uint32_t* out_offset);

// Returns whether acc(x) differs from the dtype of x, so that an inline operand beside x has more
// bits than x.
constexpr bool is_narrow(bp_dtype x) { return x == BP_F16 || x == BP_BF16; }
constexpr bp_dtype acc_dtype(bp_dtype x) { return is_narrow(x) ? bp_dtype{BP_F32} : x; }

// Returns whether `kernel` takes an operand as a tensor in acc(x).
inline bool takes_acc_operand(const bp_kernel& kernel) {
  return (kernel.flags & BP_KERNEL_TAKES_ACC_OPERAND) != 0;
}

// Returns a tensor without memory that stands for the inline scalar at `argument`, as `kernel`
// takes it. It has one element, or the shape of the argument that it is like, and strides of 0.
bp_tensor scalar_view(const OpRow& row, const TensorArgument& argument, const bp_kernel& kernel,
                      const void* frame);

// These functions refuse a call: they set the text and return the status.
bp_status unknown_op(uint32_t op);
bp_status unknown_flags(const OpRow& row, bp_launch_flags flags);

// Returns BP_INCOMPATIBLE for a frame that says it is larger than any struct can be.
bp_status frame_too_long(const OpRow& row, const void* args);

}  // namespace bp::core
