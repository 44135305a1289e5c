// random_bits, uniform, normal, dropout and dropout_backward: Philox4x32-10.
//
// A thread makes blocks of four words, and the elements that take them: element i, counted in
// row-major order, takes word i % 4 of block i / 4, in f64 the two words 2 (i % 2) of block i / 2.
// Every element depends on its number alone, so strides and launches do not change it. A thread
// makes two blocks of 16-bit elements, so that it moves 16 bytes at once.
//
// The limits are memory and the instructions of the words, about 25 for each element of dropout.
// dropout of 33554432 elements of bf16 moves 134 MB, which an H200 does in 31 us at the 4.3 TB/s of
// its copies, and issues its instructions in 27 us. As both overlap, 40 us are expected.
#include <cmath>
#include <vector>

#include "backends/cuda/kernels/list.hpp"
#include "backends/cuda/kernels/map.cuh"
#include "backends/cuda/kernels/philox.cuh"

namespace bp::cuda {
namespace {

// The tensors of one launch, and which elements it makes: those of the blocks from number
// `first_block` on. Axes are those of (y, x) in row-major order.
struct RandomPlan {
  std::byte* y = nullptr;
  const std::byte* x = nullptr;
  ScalarArgument seed, offset;
  double p = 0, mean = 0, std = 0;
  uint32_t threshold = 0;  // p in units of 2^-24, rounded up.
  float scale = 0;         // 1 / (1 - p).
  Axes<2> axes;
  bool is_dense = false;
  uint64_t first_block = 0;
  uint32_t units = 0;  // The threads, with kBlocks blocks each.
  uint32_t count = 0;  // Elements; the last block may have fewer than its others.
};

// The number of elements that take the words of one block.
template <typename T>
constexpr int kPerBlock = std::is_same_v<T, double> ? 2 : 4;

struct Bits {
  template <typename T>
  static constexpr int elements() {
    return 4;
  }
  template <typename T>
  __device__ static void make(const RandomPlan&, const PhiloxBlock& block, T* values) {
    for (int i = 0; i < 4; ++i) values[i] = static_cast<T>(block.words[i]);
  }
};

struct Uniform {
  template <typename T>
  static constexpr int elements() {
    return kPerBlock<T>;
  }
  template <typename T>
  __device__ static void make(const RandomPlan&, const PhiloxBlock& block, T* values) {
    for (int i = 0; i < kPerBlock<T>; ++i) {
      if constexpr (std::is_same_v<T, double>) {
        values[i] = uniform_f64(block.words[2 * i], block.words[2 * i + 1]);
      } else {
        values[i] = uniform<T>(block.words[i]);
      }
    }
  }
};

struct Normal {
  template <typename T>
  static constexpr int elements() {
    return kPerBlock<T>;
  }
  template <typename T>
  __device__ static void make(const RandomPlan& plan, const PhiloxBlock& block, T* values) {
    Compute<T> u[kPerBlock<T>];
    Uniform::make<Compute<T>>(plan, block, u);
    for (int i = 0; i < kPerBlock<T>; i += 2) {
      const auto pair = normal_pair(u[i], u[i + 1]);
      values[i] = narrow<T>(plan.mean + plan.std * static_cast<double>(pair.first));
      values[i + 1] = narrow<T>(plan.mean + plan.std * static_cast<double>(pair.second));
    }
  }
};

// Every dtype has the same masks as f32. A uniform number of f32 is a multiple of 2^-24, so it is
// compared as an integer. f64 is divided by 1 - p; other elements are multiplied in f32 by its
// reciprocal, since a division in f64 for each element takes longer than the memory.
struct Dropout {
  template <typename T>
  static constexpr int elements() {
    return 4;
  }
  template <typename T>
  __device__ static void change(const RandomPlan& plan, const PhiloxBlock& block, T* values) {
    for (int i = 0; i < 4; ++i) {
      const bool is_kept = block.words[i] >> 8 >= plan.threshold;
      if constexpr (std::is_same_v<T, double>) {
        values[i] = is_kept ? values[i] / (1.0 - plan.p) : 0.0;
      } else {
        values[i] = is_kept ? narrow<T>(widen(values[i]) * plan.scale) : T(0);
      }
    }
  }
};

// The blocks of words of a thread, and its elements.
template <typename T>
inline constexpr int kBlocks = sizeof(T) == 2 ? 2 : 1;
template <class Maker, typename T>
inline constexpr int kUnit = Maker::template elements<T>() * kBlocks<T>;

template <class Maker, typename T>
__global__ void __launch_bounds__(kBlockThreads) random_kernel(RandomPlan plan) {
  constexpr int kElements = Maker::template elements<T>(), kCount = kUnit<Maker, T>;
  constexpr bool kHasInput = std::is_same_v<Maker, Dropout>;
  const uint32_t unit = blockIdx.x * kBlockThreads + threadIdx.x;
  if (unit >= plan.units) return;
  const uint32_t first = unit * kCount;
  using Unit = Vec<T, kCount>;
  T* const y = reinterpret_cast<T*>(plan.y);
  const T* const x = reinterpret_cast<const T*>(plan.x);
  const bool is_whole = plan.is_dense && first + kCount <= plan.count;
  Unit values{};
  if constexpr (kHasInput) {  // The loads are on their way while the words are made.
    if (is_whole) {
      values = *reinterpret_cast<const Unit*>(x + first);
    } else {
      for (int i = 0; i < kCount; ++i) {
        if (first + i < plan.count) values.at[i] = x[plan.axes.offset(first + i, 1)];
      }
    }
  }
  const uint64_t seed = plan.seed.get<uint64_t>(), offset = plan.offset.get<uint64_t>();
  BP_UNROLL
  for (int i = 0; i < kBlocks<T>; ++i) {
    const uint64_t number = plan.first_block + uint64_t{unit} * kBlocks<T> + i;
    const PhiloxBlock block = philox(seed, offset, number);
    if constexpr (kHasInput) {
      Maker::template change<T>(plan, block, values.at + i * kElements);
    } else {
      Maker::template make<T>(plan, block, values.at + i * kElements);
    }
  }
  if (is_whole) {
    *reinterpret_cast<Unit*>(y + first) = values;
    return;
  }
  for (int i = 0; i < kCount; ++i) {
    if (first + i < plan.count) y[plan.axes.offset(first + i, 0)] = values.at[i];
  }
}

bool is_aligned(const std::byte* address, size_t size_bytes) {
  return reinterpret_cast<uintptr_t>(address) % size_bytes == 0;
}

// Sets the axes of y and x in row-major order.
void set_axes(RandomPlan& plan, const bp_tensor& y, const bp_tensor& x) {
  plan.axes.rank = static_cast<int>(y.ndim == 0 ? 1 : y.ndim);
  for (uint32_t i = 0; i < y.ndim; ++i) {
    const uint32_t from = y.ndim - 1 - i;
    plan.axes.extents[i] = Divider(static_cast<uint32_t>(y.shape[from]));
    plan.axes.strides[0][i] = y.strides[from];
    plan.axes.strides[1][i] = x.strides[from];
  }
}

template <class Maker, typename T>
bp_status launch_part(Launch& launch, RandomPlan plan, int64_t count) {
  plan.count = static_cast<uint32_t>(count);
  plan.units = blocks_for(count, kUnit<Maker, T>);
  return run<random_kernel<Maker, T>>(launch, blocks_for(plan.units, kBlockThreads), kBlockThreads,
                                      0, plan);
}

// Submits the launches. A part of a tensor without gaps has no gaps either, and begins where a
// block of words begins.
template <class Maker, typename T>
bp_status launch_parts(Launch& launch, RandomPlan plan, const bp_tensor& y, const bp_tensor& x) {
  constexpr int kElements = Maker::template elements<T>();
  const int64_t count = element_count(y);
  if (count == 0) return BP_OK;
  if (count <= kMaxLaunchElements) {
    set_axes(plan, y, x);
  } else {
    plan.axes.rank = 1;
    plan.axes.strides[0][0] = plan.axes.strides[1][0] = 1;
  }
  for (int64_t first = 0; first < count; first += kMaxLaunchElements) {
    RandomPlan part = plan;
    const int64_t size_bytes = first * static_cast<int64_t>(sizeof(T));
    part.y += size_bytes;
    part.x += size_bytes;
    part.first_block = static_cast<uint64_t>(first / kElements);
    const bp_status status =
        launch_part<Maker, T>(launch, part, std::min(kMaxLaunchElements, count - first));
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

template <class Maker, typename T, typename Args>
bp_status submit(const Args& args, RandomPlan plan, const bp_tensor& y, const bp_tensor& x,
                 Launch& launch) {
  constexpr size_t kUnitBytes = sizeof(T) * static_cast<size_t>(kUnit<Maker, T>);
  plan.y = data<std::byte>(y);
  plan.x = data<const std::byte>(x);
  plan.seed = ScalarArgument(args.seed, args.seed_scalar, BP_U64);
  plan.offset = ScalarArgument(args.offset, args.offset_scalar, BP_U64);
  plan.is_dense = is_contiguous(y) && is_contiguous(x) && is_aligned(plan.y, kUnitBytes) &&
                  is_aligned(plan.x, kUnitBytes);
  return launch_parts<Maker, T>(launch, plan, y, x);
}

// Refuses a tensor with gaps and more elements than 32 bits count, because it cannot be cut.
bp_reason too_large(const bp_tensor& y, const bp_tensor& x) {
  if (element_count(y) <= kMaxLaunchElements || (is_contiguous(y) && is_contiguous(x))) {
    return nullptr;
  }
  return "a tensor of more than 2^30 elements has gaps";
}

template <typename Args>
bp_reason creation_supports(const Args& args) {
  return too_large(*args.y, *args.y);
}
bp_reason dropout_supports(const bp_dropout_args& args) { return too_large(*args.y, *args.x); }
bp_reason dropout_backward_supports(const bp_dropout_backward_args& args) {
  return too_large(*args.grad_x, *args.grad_y);
}

bp_status random_bits_launch(const bp_random_bits_args& args, Launch& launch) {
  return submit<Bits, int32_t>(args, RandomPlan(), *args.y, *args.y, launch);
}

bp_status uniform_launch(const bp_uniform_args& args, Launch& launch) {
  return with_float(args.y->dtype, [&]<typename T>(T) {
    return submit<Uniform, T>(args, RandomPlan(), *args.y, *args.y, launch);
  });
}

bp_status normal_launch(const bp_normal_args& args, Launch& launch) {
  RandomPlan plan;
  plan.mean = args.mean;
  plan.std = args.std;
  return with_float(args.y->dtype, [&]<typename T>(T) {
    return submit<Normal, T>(args, plan, *args.y, *args.y, launch);
  });
}

// At p = 1 no element is kept, because all uniform numbers are below 1.
template <typename Args>
bp_status submit_dropout(const Args& args, const bp_tensor& y, const bp_tensor& x, Launch& launch) {
  RandomPlan plan;
  plan.p = args.p;
  plan.threshold = static_cast<uint32_t>(std::ceil(args.p * 0x1p24));
  plan.scale = static_cast<float>(1 / (1 - args.p));
  return with_float(y.dtype,
                    [&]<typename T>(T) { return submit<Dropout, T>(args, plan, y, x, launch); });
}

bp_status dropout_launch(const bp_dropout_args& args, Launch& launch) {
  return submit_dropout(args, *args.y, *args.x, launch);
}

bp_status dropout_backward_launch(const bp_dropout_backward_args& args, Launch& launch) {
  return submit_dropout(args, *args.grad_x, *args.grad_y, launch);
}

constexpr auto kScalar = BP_KERNEL_TAKES_SCALAR;

}  // namespace

constinit const bp_kernel kRandomBits =
    make_kernel<bp_random_bits_args, random_bits_launch, creation_supports<bp_random_bits_args>>(
        kernel_row("random_bits", BP_OP_RANDOM_BITS, DtypeRows{}, kScalar));
constinit const bp_kernel kUniform =
    make_kernel<bp_uniform_args, uniform_launch, creation_supports<bp_uniform_args>>(
        kernel_row("uniform", BP_OP_UNIFORM, kFloatDtypes, kScalar));
constinit const bp_kernel kNormal =
    make_kernel<bp_normal_args, normal_launch, creation_supports<bp_normal_args>>(
        kernel_row("normal", BP_OP_NORMAL, kFloatDtypes, kScalar));
constinit const bp_kernel kDropout = make_kernel<bp_dropout_args, dropout_launch, dropout_supports>(
    kernel_row("dropout", BP_OP_DROPOUT, kFloatDtypes, kScalar | BP_KERNEL_IN_PLACE));
constinit const bp_kernel kDropoutBackward =
    make_kernel<bp_dropout_backward_args, dropout_backward_launch, dropout_backward_supports>(
        kernel_row("dropout_backward", BP_OP_DROPOUT_BACKWARD, kFloatDtypes,
                   kScalar | BP_KERNEL_IN_PLACE));

}  // namespace bp::cuda
