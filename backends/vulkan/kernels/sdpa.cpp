// sdpa and its gradient, by tiles (sdpa.comp, sdpa_backward.comp), or, if a processor runs shaders,
// by products (sdpa_products.hpp).
#include <algorithm>
#include <array>
#include <string>

#include "backends/vulkan/kernels/sdpa_parts.hpp"
#include "backends/vulkan/kernels/sdpa_products.hpp"

namespace bp::vulkan {
namespace {

// The rows of a workgroup, and of the other side in a tile, as in sdpa.glsl.
constexpr int64_t kRows = 4, kTile = 64;
constexpr int64_t kMostWidth = 256, kMostBackwardWidth = 192;

enum BackwardStep : uint32_t { kDelta = 0, kQueries = 1, kKeys = 2, kSinks = 3 };

struct SdpaTensor {
  uint64_t address;
  int64_t strides[4];
};

struct SdpaRecord {
  SdpaTensor q, k, v, mask, bias, y, lse;
  SdpaTensor grad_y, grad_q, grad_k, grad_v;
  uint32_t batch, heads, key_heads, queries, keys, width, value_width;
  float scale, softcap;
  int32_t band_begin, band_end;
  uint32_t reserved;  // 0: the tensors begin at 8 bytes.
  SdpaTensor sinks, grad_sinks;
  uint64_t delta;
  DropoutRecord dropout;
};

SdpaTensor tensor_of(const Launch& launch, const bp_tensor* t) {
  SdpaTensor result{};
  if (t == nullptr) return result;
  result.address = address_of(launch, t);
  for (uint32_t i = 0; i < t->ndim; ++i) {
    result.strides[i] = t->strides[i] * dtype_size_bytes(t->dtype);
  }
  return result;
}

template <typename Args>
SdpaRecord record_of(const Launch& launch, const Args& args) {
  SdpaRecord record{};
  record.q = tensor_of(launch, args.q);
  record.k = tensor_of(launch, args.k);
  record.v = tensor_of(launch, args.v);
  record.mask = tensor_of(launch, args.mask);
  record.bias = tensor_of(launch, args.bias);
  record.y = tensor_of(launch, args.y);
  record.lse = tensor_of(launch, args.lse);
  record.batch = static_cast<uint32_t>(args.q->shape[0]);
  record.heads = static_cast<uint32_t>(args.q->shape[1]);
  record.key_heads = static_cast<uint32_t>(args.k->shape[1]);
  record.queries = static_cast<uint32_t>(args.q->shape[2]);
  record.keys = static_cast<uint32_t>(args.k->shape[2]);
  record.width = static_cast<uint32_t>(args.q->shape[3]);
  record.value_width = static_cast<uint32_t>(args.v->shape[3]);
  record.scale = static_cast<float>(args.scale);
  record.softcap = shader_softcap(args);
  const KeyBand band = key_band(args);
  record.band_begin = static_cast<int32_t>(band.begin);
  record.band_end = static_cast<int32_t>(band.end);
  record.sinks = tensor_of(launch, args.sinks);
  record.dropout = dropout_record(launch, args);
  return record;
}

// Returns the most loops of one of `lanes` invocations for a tile.
template <typename Args>
int64_t trips_of_tile(const Args& args, int64_t lanes) {
  const int64_t width = args.q->shape[3], value_width = args.v->shape[3];
  const int64_t of_lane = (kTile + lanes - 1) / lanes;
  const int64_t columns = (std::max(width, value_width) + lanes - 1) / lanes;
  return of_lane * (width + value_width + 2) + columns * (kTile + 2) + 2 * kTile;
}

// Drivers may end a loop silently after 65,535 trips.
constexpr int64_t kMostTrips = 60000;

// Returns the invocations of a workgroup. On a processor they are few, as long as none loops too
// often. Returns 0 if there are too many rows for any number.
template <typename Args>
uint32_t lanes_of(const Args& args, int64_t least) {
  const int64_t served = args.q->shape[1] / std::max<int64_t>(1, args.k->shape[1]);
  const int64_t queries = args.q->shape[2] * served, keys = args.k->shape[2];
  const int64_t tiles = (std::max(queries, keys) + kTile - 1) / kTile + served;
  for (const int64_t lanes : {int64_t{8}, int64_t{64}}) {
    if (lanes >= least && tiles * trips_of_tile(args, lanes) <= kMostTrips) {
      return static_cast<uint32_t>(lanes);
    }
  }
  return 0;
}

template <typename Args>
bp_reason reason_of(const Args& args, int64_t most_width) {
  if (std::max(args.q->shape[3], args.v->shape[3]) > most_width) {
    return "a head of q or v is wider than the tiles of attention";
  }
  if (lanes_of(args, 1) != 0) return nullptr;
  return "a loop over so many keys or queries has more than 60,000 trips, and drivers may end it "
         "early";
}

bp_reason forward_supports(const bp_sdpa_args& args) { return reason_of(args, kMostWidth); }

bp_reason backward_supports(const bp_sdpa_backward_args& args) {
  constexpr int64_t kLeastLanes = 8;
  if (args.grad_sinks != nullptr &&
      args.q->shape[0] * args.q->shape[2] > kMostTrips * kLeastLanes) {
    return "the gradient of a sink is a sum of more than 480,000 terms";
  }
  return reason_of(args, kMostBackwardWidth);
}

// Refuses a launch that supports() would refuse, because such a launch would divide by 0 lanes.
void check_supported(bp_reason reason) {
  if (reason != nullptr) throw StatusError(BP_UNSUPPORTED, std::string("attention: ") + reason);
}

uint64_t blocks_of(uint32_t rows) { return ceil_divide(rows, kRows); }

// If the bias of all keys of a query is -inf, it hides them too. Dropout hides keys from a query.
template <typename Args>
bool may_hide(const Args& args) {
  return args.mask != nullptr || args.bias != nullptr || has_band(args) || args.dropout_p != 0;
}

bp_status forward_launch(const bp_sdpa_args& args, Launch& launch) {
  check_supported(forward_supports(args));
  if (element_count(*args.y) == 0 && (args.lse == nullptr || element_count(*args.lse) == 0)) {
    return BP_OK;
  }
  const bool repairs = multiplies_attention(launch);
  if (repairs) {
    const bp_status status = submit_attention(args, launch);
    if (status != BP_OK || !may_hide(args)) return status;
  }
  const SdpaRecord record = record_of(launch, args);
  const std::array<uint32_t, 7> constants = {lanes_of(args, launch.is_processor() ? 8 : 64),
                                             one_of(kF32Dtypes, args.q->dtype),
                                             args.mask != nullptr ? 1u : 0u,
                                             args.bias != nullptr ? 1u : 0u,
                                             has_band(args) ? 1u : 0u,
                                             args.dropout_p != 0 ? 1u : 0u,
                                             repairs ? 1u : 0u};
  return submit(launch, kSdpaModule, constants, record,
                uint64_t{record.batch} * record.heads * blocks_of(record.queries),
                {Ranges(launch, {args.q, args.k, args.v, args.mask, args.bias, args.sinks, args.y,
                                 args.seed, args.offset}),
                 Ranges(launch, {args.y, args.lse})});
}

uint64_t forward_workspace(const bp_sdpa_args& args, const Env& env) {
  return multiplies_attention(env) ? attention_workspace(args, env) : 0;
}

uint64_t backward_workspace(const bp_sdpa_backward_args& args, const Env& env) {
  if (multiplies_attention(env)) return attention_workspace(args, env);
  return static_cast<uint64_t>(element_count(*args.lse)) * sizeof(float);
}

bp_status backward_launch(const bp_sdpa_backward_args& args, Launch& launch) {
  check_supported(backward_supports(args));
  SdpaRecord record = record_of(launch, args);
  record.grad_y = tensor_of(launch, args.grad_y);
  record.grad_q = tensor_of(launch, args.grad_q);
  record.grad_k = tensor_of(launch, args.grad_k);
  record.grad_v = tensor_of(launch, args.grad_v);
  record.grad_sinks = tensor_of(launch, args.grad_sinks);
  record.delta = launch.workspace_address();
  const uint32_t lanes = lanes_of(args, launch.is_processor() ? 8 : 64);
  const bool repairs = multiplies_attention(launch);
  std::array<uint32_t, 8> constants = {lanes,
                                       one_of(kF32Dtypes, args.q->dtype),
                                       args.mask != nullptr ? 1u : 0u,
                                       args.bias != nullptr ? 1u : 0u,
                                       has_band(args) ? 1u : 0u,
                                       args.dropout_p != 0 ? 1u : 0u,
                                       kDelta,
                                       repairs ? 1u : 0u};
  Ranges reads(launch, {args.grad_y, args.q, args.k, args.v, args.mask, args.bias, args.y, args.lse,
                        args.seed, args.offset});
  Ranges scratch(launch);
  scratch.add(launch.workspace());
  const uint64_t rows = uint64_t{record.batch} * record.heads * record.queries;
  bp_status status = BP_OK;
  if (rows != 0) {
    status = submit(launch, kSdpaBackwardModule, constants, record, ceil_divide(rows, lanes),
                    {Ranges(launch, {args.grad_y, args.y}), scratch});
  }
  if (status == BP_OK && args.grad_sinks != nullptr && record.heads != 0) {
    constants[6] = kSinks;
    Ranges of_sinks(launch, {args.sinks, args.lse});
    of_sinks.add(launch.workspace());
    status = submit(launch, kSdpaBackwardModule, constants, record, record.heads,
                    {of_sinks, Ranges(launch, {args.grad_sinks})});
  }
  if (repairs && status == BP_OK) {
    status = submit_attention(args, launch);
    if (!may_hide(args)) return status;
  }
  reads.add(launch.workspace());
  if (status == BP_OK && element_count(*args.grad_q) != 0) {
    constants[6] = kQueries;
    status = submit(launch, kSdpaBackwardModule, constants, record,
                    uint64_t{record.batch} * record.heads * blocks_of(record.queries),
                    {reads, Ranges(launch, {args.grad_q})});
  }
  const bool wants_keys = args.grad_k != nullptr || args.grad_v != nullptr;
  if (status == BP_OK && wants_keys && record.keys != 0) {
    constants[6] = kKeys;
    status = submit(launch, kSdpaBackwardModule, constants, record,
                    uint64_t{record.batch} * record.key_heads * blocks_of(record.keys),
                    {reads, Ranges(launch, {args.grad_k, args.grad_v})});
  }
  return status;
}

}  // namespace

constinit const bp_kernel kSdpa =
    make_kernel<bp_sdpa_args, forward_launch, forward_supports, forward_workspace>(
        kernel_row("sdpa", BP_OP_SDPA, kF32Dtypes, BP_KERNEL_TAKES_SCALAR));
constinit const bp_kernel kSdpaBackward =
    make_kernel<bp_sdpa_backward_args, backward_launch, backward_supports, backward_workspace>(
        kernel_row("sdpa_backward", BP_OP_SDPA_BACKWARD, kF32Dtypes, BP_KERNEL_TAKES_SCALAR));

}  // namespace bp::vulkan
