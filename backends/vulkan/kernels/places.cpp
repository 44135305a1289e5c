// tril, triu and one_hot, for tensors of every layout (places.comp).
#include <algorithm>
#include <array>
#include <string>

#include "backends/vulkan/kernels/indices.hpp"
#include "backends/vulkan/kernels/submit.hpp"
#include "backends/vulkan/kernels/walk.hpp"
#include "backplane/shell/scalar.hpp"

namespace bp::vulkan {
namespace {

// The ops, as in the shader.
enum PlaceOp : uint32_t { kPlaceTril = 0, kPlaceTriu = 1, kPlaceOneHot = 2 };

struct PlaceRecord {
  uint64_t y, x;
  uint64_t count;
  uint64_t one;
  int64_t limit;
  uint32_t extents[BP_MAX_RANK];
  int64_t y_strides[BP_MAX_RANK], x_strides[BP_MAX_RANK], number_strides[BP_MAX_RANK];
};

// A call: what is read, and the number of each element of y, by their strides along the axes of y.
struct PlaceCall {
  const char* name;
  PlaceOp op;
  const bp_tensor &y, &x;
  Strides x_strides{}, number_strides{};
  uint64_t one = 0;
  int64_t limit = 0;
};

bp_status submit_places(Launch& launch, const PlaceCall& call) {
  const int64_t item = dtype_size_bytes(one_of(kAnyDtypes, call.y.dtype));
  const bool is_one_hot = call.op == kPlaceOneHot;
  const bp_dtype index = is_one_hot ? one_of(kIndexDtypes, call.x.dtype) : bp_dtype{BP_I64};
  const WalkOperand operands[] = {{call.y.strides, item},
                                  {call.x_strides.data(), dtype_size_bytes(call.x.dtype)},
                                  {call.number_strides.data(), 1}};
  const Walk walk = make_walk(call.y.ndim, call.y.shape, operands);
  if (walk.count == 0) return BP_OK;
  if (walk.count > int64_t{1} << 31) {
    return launch.refuse(BP_UNSUPPORTED,
                         std::string(call.name) + ": y has more than 2^31 elements");
  }
  PlaceRecord record{};
  record.y = launch.device_address(call.y);
  record.x = launch.device_address(call.x);
  record.count = static_cast<uint64_t>(walk.count);
  record.one = call.one;
  record.limit = call.limit;
  std::fill_n(record.extents, BP_MAX_RANK, 1u);
  for (size_t i = 0; i < walk.rank; ++i) {
    record.extents[i] = static_cast<uint32_t>(walk.extents[i]);
    record.y_strides[i] = walk.strides[0][i];
    record.x_strides[i] = walk.strides[1][i];
    record.number_strides[i] = walk.strides[2][i];
  }
  const std::array<uint32_t, 5> constants = {local_size(launch), static_cast<uint32_t>(item),
                                             std::max(walk.rank, 1u), call.op, index};
  return submit(launch, kPlacesModule, constants, record,
                ceil_divide(record.count, local_size(launch)),
                {Ranges(launch, {&call.x}), Ranges(launch, {&call.y})});
}

// The number of an element [i, j] is its distance j - i from the main diagonal.
template <typename Args>
bp_status submit_triangle(const char* name, PlaceOp op, const Args& args, Launch& launch) {
  PlaceCall call{.name = name, .op = op, .y = *args.y, .x = *args.x, .limit = args.diagonal};
  const uint32_t ndim = args.y->ndim;
  std::copy_n(args.x->strides, ndim, call.x_strides.begin());
  call.number_strides[ndim - 2] = -1;
  call.number_strides[ndim - 1] = 1;
  return submit_places(launch, call);
}

bp_status tril_launch(const bp_tril_args& args, Launch& launch) {
  return submit_triangle("tril", kPlaceTril, args, launch);
}

bp_status triu_launch(const bp_triu_args& args, Launch& launch) {
  return submit_triangle("triu", kPlaceTriu, args, launch);
}

// The number of an element is its class.
bp_status one_hot_launch(const bp_one_hot_args& args, Launch& launch) {
  PlaceCall call{.name = "one_hot", .op = kPlaceOneHot, .y = *args.y, .x = *args.indices};
  std::copy_n(args.indices->strides, args.indices->ndim, call.x_strides.begin());
  call.number_strides[args.indices->ndim] = 1;
  call.one = convert_scalar({BP_I64, 0, 1, 0}, args.y->dtype);
  return submit_places(launch, call);
}

constexpr auto kOneHotDtypes = pairs_of(kIndexDtypes, kAnyDtypes);

}  // namespace

constinit const bp_kernel kTril = make_kernel<bp_tril_args, tril_launch>(
    kernel_row("tril", BP_OP_TRIL, kAnyDtypes, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kTriu = make_kernel<bp_triu_args, triu_launch>(
    kernel_row("triu", BP_OP_TRIU, kAnyDtypes, BP_KERNEL_IN_PLACE));
constinit const bp_kernel kOneHot = make_kernel<bp_one_hot_args, one_hot_launch>(
    kernel_row("one_hot", BP_OP_ONE_HOT, {kOneHotDtypes, 2}));

}  // namespace bp::vulkan
