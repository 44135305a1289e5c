// random_bits, uniform and dropout. An item computes one block of Philox, which is four elements.
#include <cmath>
#include <string>

#include "backplane/shell/scalar.hpp"
#include "kernels/kernels.hpp"

namespace acme_opencl {
namespace {

constexpr const char* kSource = R"(
typedef struct {
  ulong seed, offset;
  long seed_at, offset_at;
  int has_seed, has_offset;
  uint threshold;  // A word whose upper 24 bits are below it drops its element.
  float scale;
} Random;

// Philox4x32-10 (Salmon and others, 2011).
uint4 philox(ulong block, ulong offset, ulong seed) {
  uint4 c = (uint4)((uint)block, (uint)(block >> 32), (uint)offset, (uint)(offset >> 32));
  uint2 key = (uint2)((uint)seed, (uint)(seed >> 32));
  for (int round = 0; round < 10; ++round) {
    const ulong a = (ulong)0xD2511F53u * c.x, b = (ulong)0xCD9E8D57u * c.z;
    c = (uint4)((uint)(b >> 32) ^ c.y ^ key.x, (uint)b, (uint)(a >> 32) ^ c.w ^ key.y, (uint)a);
    key += (uint2)(0x9E3779B9u, 0xBB67AE85u);
  }
  return c;
}

// The tensors of the grid are y and x.
kernel void random(Grid grid, Random r, global Y_T* y, global const Y_T* x,
                   global const ulong* seeds, global const ulong* offsets) {
  const long block = get_global_id(0);
  const ulong seed = r.has_seed ? seeds[r.seed_at] : r.seed;
  const ulong offset = r.has_offset ? offsets[r.offset_at] : r.offset;
  uint words[4];
  vstore4(philox((ulong)block, offset, seed), 0, words);
  for (int k = 0; k < 4; ++k) {
    const long i = 4 * block + k;
    if (i >= grid.count) return;
    const long to = place(&grid, i, 0);
#if KIND == 0
    y[to] = (int)words[k];
#elif KIND == 1
    Y_STORE(y, to, (float)(words[k] >> DROPPED_BITS) * UNIT);
#else
    float value = 0.0f;
    if (words[k] >> 8 >= r.threshold) value = Y_LOAD(x, place(&grid, i, 1)) * r.scale;
    Y_STORE(y, to, value);
#endif
  }
}
)";

struct Random {
  uint64_t seed = 0, offset = 0;
  int64_t seed_at = 0, offset_at = 0;
  int32_t has_seed = 0, has_offset = 0;
  uint32_t threshold = 0;
  float scale = 1;
};

enum Kind { kBits = 0, kUniformKind = 1, kDropoutKind = 2 };

template <typename Args>
Random random_of(const Args& args) {
  Random r;
  r.has_seed = args.seed != nullptr ? 1 : 0;
  r.has_offset = args.offset != nullptr ? 1 : 0;
  if (args.seed != nullptr) r.seed_at = grid_at({args.seed}).offset[0];
  if (args.offset != nullptr) r.offset_at = grid_at({args.offset}).offset[0];
  if (args.seed == nullptr) r.seed = bp::convert_scalar(args.seed_scalar, BP_U64);
  if (args.offset == nullptr) r.offset = bp::convert_scalar(args.offset_scalar, BP_U64);
  return r;
}

template <typename Args>
bp_status submit(Kind kind, const Args& args, const Random& r, const bp_tensor& y,
                 const bp_tensor* x, Launch& launch) {
  const Grid grid = grid_of({&y, x});
  // A uniform number has as many bits as the fraction of the dtype and its hidden bit.
  const int dropped = y.dtype == BP_F16 ? 21 : y.dtype == BP_BF16 ? 24 : 8;
  Call call(prelude({{"Y", y.dtype}}) + "#define KIND " + std::to_string(kind) +
                "\n#define DROPPED_BITS " + std::to_string(dropped) +
                "\n#define UNIT (1.0f / (1 << " + std::to_string(32 - dropped) + "))\n" + kSource,
            "random");
  call.value(grid).value(r).buffer(Launch::place(y));
  for (const bp_tensor* const t : {x, args.seed, args.offset}) {
    call.buffer(t == nullptr ? Place{} : Launch::place(*t));
  }
  return launch.submit(
      [call = call.over((grid.count + 3) / 4)](CommandQueue& queue) { queue.run(call); });
}

bp_status random_bits(const bp_random_bits_args& args, Launch& launch) {
  return submit(kBits, args, random_of(args), *args.y, nullptr, launch);
}

bp_status uniform(const bp_uniform_args& args, Launch& launch) {
  return submit(kUniformKind, args, random_of(args), *args.y, nullptr, launch);
}

template <typename Args>
bp_status dropout(const Args& args, const bp_tensor& x, const bp_tensor& y, Launch& launch) {
  Random r = random_of(args);
  // The uniform number w * 2^-24 is at least p where the integer w is at least p * 2^24.
  r.threshold = static_cast<uint32_t>(std::ceil(args.p * 0x1p24));
  r.scale = args.p == 1.0 ? 0.0f : static_cast<float>(1.0 / (1.0 - args.p));
  return submit(kDropoutKind, args, r, y, &x, launch);
}

bp_status dropout_forward(const bp_dropout_args& args, Launch& launch) {
  return dropout(args, *args.x, *args.y, launch);
}

bp_status dropout_backward(const bp_dropout_backward_args& args, Launch& launch) {
  return dropout(args, *args.grad_y, *args.grad_x, launch);
}

constexpr bp_kernel_flags kFlags = BP_KERNEL_TAKES_SCALAR;

}  // namespace

constinit const bp_kernel kRandomBits = make_kernel<bp_random_bits_args, random_bits>(
    bp::kernel_row("random_bits", BP_OP_RANDOM_BITS, bp::DtypeRows{}, kFlags));
constinit const bp_kernel kUniform = make_kernel<bp_uniform_args, uniform>(
    bp::kernel_row("uniform", BP_OP_UNIFORM, kFloats, kFlags));
constinit const bp_kernel kDropout = make_kernel<bp_dropout_args, dropout_forward>(
    bp::kernel_row("dropout", BP_OP_DROPOUT, kFloats, kFlags | BP_KERNEL_IN_PLACE));
constinit const bp_kernel kDropoutBackward =
    make_kernel<bp_dropout_backward_args, dropout_backward>(bp::kernel_row(
        "dropout_backward", BP_OP_DROPOUT_BACKWARD, kFloats, kFlags | BP_KERNEL_IN_PLACE));

}  // namespace acme_opencl
