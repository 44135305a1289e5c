// random_bits, uniform, normal, dropout and dropout_backward (random.comp).
#include <algorithm>

#include "backends/vulkan/kernels/dropout.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

enum RandomOp : uint32_t { kBits = 0, kUniformValue = 1, kNormalValue = 2, kDropped = 3 };

struct RandomRecord {
  uint64_t y, x;
  uint64_t seed_address, offset_address;
  uint64_t seed, offset;
  uint64_t count;
  float mean, deviation;
  uint32_t threshold;
  float scale;
  uint32_t extents[BP_MAX_RANK];
  int64_t y_strides[BP_MAX_RANK], x_strides[BP_MAX_RANK];
};

template <typename Args>
bp_status submit_random(Launch& launch, RandomOp op, const Args& args, const bp_tensor& y,
                        const bp_tensor* x, RandomRecord record = {}) {
  // Numbers follow the row-major order of elements.
  const Walk walk = make_walk({&y, x == nullptr ? &y : x}, true);
  if (walk.count == 0) return BP_OK;
  if (walk.count > int64_t{1} << 32) {
    return launch.refuse(BP_UNSUPPORTED, "random numbers: more than 2^32 elements");
  }
  record.y = launch.device_address(y);
  record.x = address_of(launch, x);
  record.seed_address = address_of(launch, args.seed);
  record.offset_address = address_of(launch, args.offset);
  if (args.seed == nullptr) record.seed = convert_scalar(args.seed_scalar, BP_U64);
  if (args.offset == nullptr) record.offset = convert_scalar(args.offset_scalar, BP_U64);
  record.count = static_cast<uint64_t>(walk.count);
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  for (size_t i = 0; i < walk.rank; ++i) {
    record.extents[i] = static_cast<uint32_t>(walk.extents[i]);
    record.y_strides[i] = walk.strides[0][i];
    record.x_strides[i] = walk.strides[1][i];
  }
  // random_bits has no float dtype.
  const bp_dtype dtype = op == kBits ? y.dtype : one_of(kF32Dtypes, y.dtype);
  const std::array<uint32_t, 4> constants = {local_size(launch), op, dtype,
                                             std::max(walk.rank, 1u)};
  return submit(launch, kRandomModule, constants, record,
                ceil_divide(ceil_divide(record.count, 4), local_size(launch)),
                {Ranges(launch, {x, args.seed, args.offset}), Ranges(launch, {&y})});
}

bp_status random_bits_launch(const bp_random_bits_args& args, Launch& launch) {
  return submit_random(launch, kBits, args, *args.y, nullptr);
}

bp_status uniform_launch(const bp_uniform_args& args, Launch& launch) {
  return submit_random(launch, kUniformValue, args, *args.y, nullptr);
}

bp_status normal_launch(const bp_normal_args& args, Launch& launch) {
  RandomRecord record{};
  record.mean = static_cast<float>(args.mean);
  record.deviation = static_cast<float>(args.std);
  return submit_random(launch, kNormalValue, args, *args.y, nullptr, record);
}

template <typename Args>
bp_status submit_dropout(Launch& launch, const Args& args, const bp_tensor& y, const bp_tensor& x) {
  RandomRecord record{};
  record.threshold = dropout_threshold(args.p);
  record.scale = dropout_scale(args.p);
  return submit_random(launch, kDropped, args, y, &x, record);
}

bp_status dropout_launch(const bp_dropout_args& args, Launch& launch) {
  return submit_dropout(launch, args, *args.y, *args.x);
}

bp_status dropout_backward_launch(const bp_dropout_backward_args& args, Launch& launch) {
  return submit_dropout(launch, args, *args.grad_x, *args.grad_y);
}

constexpr auto kFlags = BP_KERNEL_TAKES_SCALAR;

}  // namespace

constinit const bp_kernel kRandomBits = make_kernel<bp_random_bits_args, random_bits_launch>(
    kernel_row("random_bits", BP_OP_RANDOM_BITS, DtypeRows{}, kFlags));
constinit const bp_kernel kUniform = make_kernel<bp_uniform_args, uniform_launch>(
    kernel_row("uniform", BP_OP_UNIFORM, kF32Dtypes, kFlags));
constinit const bp_kernel kNormal = make_kernel<bp_normal_args, normal_launch>(
    kernel_row("normal", BP_OP_NORMAL, kF32Dtypes, kFlags));
constinit const bp_kernel kDropout = make_kernel<bp_dropout_args, dropout_launch>(
    kernel_row("dropout", BP_OP_DROPOUT, kF32Dtypes, kFlags | BP_KERNEL_IN_PLACE));
constinit const bp_kernel kDropoutBackward =
    make_kernel<bp_dropout_backward_args, dropout_backward_launch>(kernel_row(
        "dropout_backward", BP_OP_DROPOUT_BACKWARD, kF32Dtypes, kFlags | BP_KERNEL_IN_PLACE));

}  // namespace bp::vulkan
