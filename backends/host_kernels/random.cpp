// random_bits, uniform, normal, dropout and dropout_backward: Philox4x32-10 (Salmon and others,
// 2011).
//
// Block b of (seed, offset) has the counter (b low, b high, offset low, offset high) and the key
// (seed low, seed high), and gives four words. Element i, counted in row-major order, takes word i
// % 4 of block i / 4. In f64 it takes the two words from 2 (i % 2) on of block i / 2. kRandomBlocks
// blocks are computed side by side, and a vector holds the same word of several blocks. Every
// element depends on its number alone, so strides and threads do not change it.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/random.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <array>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/lanes-inl.hpp"
#include "backends/host_kernels/normal-inl.hpp"
#include "backends/host_kernels/philox-inl.hpp"
#include "backends/host_kernels/random.hpp"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// ---- What is made of the words of some blocks ---------------------------------------------------

template <typename T>
HWY_INLINE T& element(std::byte* data, int64_t stride, int64_t i) {
  return *reinterpret_cast<T*>(data + i * stride);
}

// Writes value(i) to the elements [0, n) of y.
template <typename T, typename Value>
HWY_INLINE void write(const RandomRun& run, int64_t n, const Value& value) {
  if (run.y_stride == sizeof(T)) {
    auto* const y = reinterpret_cast<T*>(run.y);
    for (int64_t i = 0; i < n; ++i) y[i] = value(i);
    return;
  }
  for (int64_t i = 0; i < n; ++i) element<T>(run.y, run.y_stride, i) = value(i);
}

// Returns uniform numbers with as many bits as the fraction of T and its hidden bit, so that every
// number is exact.
template <typename T>
HWY_INLINE T uniform(uint32_t word) {
  if constexpr (std::is_same_v<T, Float16>) {
    return Float16::from_f32(static_cast<float>(static_cast<int32_t>(word >> 21)) * 0x1p-11f);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16::from_f32(static_cast<float>(static_cast<int32_t>(word >> 24)) * 0x1p-8f);
  } else {
    return uniform_f32(word);
  }
}

// Writes random bits. The word of element i is words[first + i].
void write_bits(const uint32_t* words, int64_t first, const RandomRun& run, int64_t n) {
  write<uint32_t>(run, n, [&](int64_t i) { return words[first + i]; });
}

template <typename T>
void write_uniform(const uint32_t* words, int64_t first, const RandomRun& run, int64_t n) {
  if constexpr (std::is_same_v<T, double>) {
    write<T>(run, n, [&](int64_t i) {
      const uint64_t word = words[first + 2 * i] | uint64_t{words[first + 2 * i + 1]} << 32;
      return static_cast<double>(word >> 11) * 0x1p-53;
    });
  } else {
    write<T>(run, n, [&](int64_t i) { return uniform<T>(words[first + i]); });
  }
}

// Computes elements in pairs from the first block on, and writes the wanted ones.
template <typename T>
void write_normal(const uint32_t* words, int64_t first, const RandomRun& run, int64_t n) {
  using C = Compute<T>;
  constexpr bool kIsDouble = std::is_same_v<C, double>;
  constexpr size_t kCount = 4 * kRandomBlocks / (kIsDouble ? 2 : 1);
  alignas(64) std::array<C, kCount> z;
  RandomRun all;
  all.y = reinterpret_cast<std::byte*>(z.data());
  all.y_stride = sizeof(C);
  write_uniform<C>(words, 0, all, kCount);
  const hn::ScalableTag<C> d;
  for (size_t i = 0; i < kCount; i += 2 * hn::Lanes(d)) {
    auto u1 = hn::Zero(d), u2 = u1, z1 = u1, z2 = u1;
    hn::LoadInterleaved2(d, z.data() + i, u1, u2);
    normal_pair(d, u1, u2, z1, z2);
    hn::StoreInterleaved2(z1, z2, d, z.data() + i);
  }
  const C* const wanted = z.data() + first / (kIsDouble ? 2 : 1);
  write<T>(run, n, [&](int64_t i) {
    return narrow<T>(run.mean + run.std * static_cast<double>(wanted[i]));
  });
}

// Returns the quotient, which is exact to the last place because it is computed in f64.
template <typename T>
HWY_INLINE T scaled(T x, double kept) {
  return narrow<T>(static_cast<double>(widen(x)) / kept);
}

// Scales dense rows first, and drops elements afterwards. In a single loop the compiler would
// branch around the division.
template <typename T>
void write_dropout(const uint32_t* HWY_RESTRICT words, int64_t first, const RandomRun& run,
                   int64_t n) {
  const double p = run.p, kept = 1.0 - run.p;
  const auto is_kept = [&](int64_t i) {
    return static_cast<double>(uniform_f32(words[first + i])) >= p;
  };
  if (run.y_stride == sizeof(T) && run.x_stride == sizeof(T)) {
    auto* const y = reinterpret_cast<T*>(run.y);
    const auto* const x = reinterpret_cast<const T*>(run.x);
    for (int64_t i = 0; i < n; ++i) y[i] = scaled(x[i], kept);
    for (int64_t i = 0; i < n; ++i) y[i] = is_kept(i) ? y[i] : T{0};
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const T x = *reinterpret_cast<const T*>(run.x + i * run.x_stride);
    element<T>(run.y, run.y_stride, i) = is_kept(i) ? scaled(x, kept) : T{0};
  }
}

using Writer = void(const uint32_t* words, int64_t first, const RandomRun& run, int64_t n);

// Returns the function for floats.
template <typename T>
Writer* writer_of(RandomKind kind) {
  switch (kind) {
    case RandomKind::kFraction:
      return write_uniform<T>;
    case RandomKind::kNormalValue:
      return write_normal<T>;
    default:
      return write_dropout<T>;
  }
}

Writer* find_writer(RandomKind kind, bp_dtype dtype) {
  if (kind == RandomKind::kBits) return write_bits;
  return with_float(dtype, [=]<typename T>(T) { return writer_of<T>(kind); });
}

void random_run(const RandomRun& run) {
  const bool is_wide = run.dtype == BP_F64 && run.kind != RandomKind::kDropped;
  const int64_t words_per_element = is_wide ? 2 : 1, per_block = 4 / words_per_element;
  Writer* const writer = find_writer(run.kind, run.dtype);
  alignas(64) std::array<uint32_t, 4 * kRandomBlocks> words;
  RandomRun rest = run;
  while (rest.count > 0) {
    const int64_t skipped = rest.first % per_block;
    const int64_t n = std::min(rest.count, per_block * int64_t{kRandomBlocks} - skipped);
    random_blocks<kRandomBlocks>(run.seed, run.offset,
                                 static_cast<uint64_t>(rest.first / per_block), words.data());
    writer(words.data(), skipped * words_per_element, rest, n);
    rest.first += n;
    rest.count -= n;
    rest.y += n * rest.y_stride;
    rest.x += n * rest.x_stride;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(random_run);

// A block of words costs about as much as moving 16 elements.
constexpr int64_t kRandomGrain = 8192;

// The axes of y, and of x if there is one. They stay in row-major order, because the numbers of
// elements follow it.
struct RandomPlan {
  RandomKind kind{};
  bp_dtype dtype = 0;
  std::byte* y = nullptr;
  const std::byte* x = nullptr;
  uint32_t ndim = 0;
  int64_t count = 1;
  std::array<int64_t, BP_MAX_RANK> shape{}, y_strides{}, x_strides{};  // Strides in bytes.
  double p = 0, mean = 0, std = 0;
};

RandomPlan plan_of(RandomKind kind, const bp_tensor& y, const bp_tensor* x) {
  RandomPlan plan;
  plan.kind = kind;
  plan.dtype = y.dtype;
  plan.y = data<std::byte>(y);
  plan.x = x == nullptr ? plan.y : data<const std::byte>(*x);
  plan.count = element_count(y);
  const bool is_dense = is_contiguous(y) && (x == nullptr || is_contiguous(*x));
  const int64_t item = dtype_size_bytes(y.dtype);
  if (is_dense) {
    plan.ndim = 1;
    plan.shape[0] = plan.count;
    plan.y_strides[0] = plan.x_strides[0] = item;
    return plan;
  }
  plan.ndim = y.ndim;
  for (uint32_t i = 0; i < y.ndim; ++i) {
    plan.shape[i] = y.shape[i];
    plan.y_strides[i] = y.strides[i] * item;
    plan.x_strides[i] = x == nullptr ? 0 : x->strides[i] * item;
  }
  return plan;
}

// Writes the elements [begin, end), one run per row.
void run_part(const RandomPlan& plan, RandomRun run, int64_t begin, int64_t end) {
  const int64_t length = plan.shape[plan.ndim - 1];
  run.y_stride = plan.y_strides[plan.ndim - 1];
  run.x_stride = plan.x_strides[plan.ndim - 1];
  while (begin < end) {
    run.first = begin;
    run.count = std::min(length - begin % length, end - begin);
    run.y = plan.y;
    run.x = plan.x;
    int64_t index = begin;
    for (uint32_t axis = plan.ndim; axis-- > 0; index /= plan.shape[axis]) {
      run.y += index % plan.shape[axis] * plan.y_strides[axis];
      run.x += index % plan.shape[axis] * plan.x_strides[axis];
    }
    run_random(run);
    begin += run.count;
  }
}

template <typename Args>
bp_status submit(const Args& args, const RandomPlan& plan, Launch& launch) {
  const ScalarArgument seed(args.seed, args.seed_scalar, BP_U64);
  const ScalarArgument offset(args.offset, args.offset_scalar, BP_U64);
  return launch.submit([plan, seed, offset, threads = launch.thread_count()] {
    if (plan.count == 0) return;
    RandomRun run;
    run.kind = plan.kind;
    run.dtype = plan.dtype;
    run.p = plan.p;
    run.mean = plan.mean;
    run.std = plan.std;
    run.seed = seed.get<uint64_t>();
    run.offset = offset.get<uint64_t>();
    parallel_for(threads, plan.count, kRandomGrain,
                 [&](int64_t begin, int64_t end) { run_part(plan, run, begin, end); });
  });
}

bp_status random_bits_launch(const bp_random_bits_args& args, Launch& launch) {
  return submit(args, plan_of(RandomKind::kBits, *args.y, nullptr), launch);
}

bp_status uniform_launch(const bp_uniform_args& args, Launch& launch) {
  return submit(args, plan_of(RandomKind::kFraction, *args.y, nullptr), launch);
}

bp_status normal_launch(const bp_normal_args& args, Launch& launch) {
  RandomPlan plan = plan_of(RandomKind::kNormalValue, *args.y, nullptr);
  plan.mean = args.mean;
  plan.std = args.std;
  return submit(args, plan, launch);
}

// At p = 1 no element is kept, because all uniform numbers are below 1.
template <typename Args>
bp_status submit_dropout(const Args& args, const bp_tensor& y, const bp_tensor& x, Launch& launch) {
  RandomPlan plan = plan_of(RandomKind::kDropped, y, &x);
  plan.p = args.p;
  return submit(args, plan, launch);
}

bp_status dropout_launch(const bp_dropout_args& args, Launch& launch) {
  return submit_dropout(args, *args.y, *args.x, launch);
}

bp_status dropout_backward_launch(const bp_dropout_backward_args& args, Launch& launch) {
  return submit_dropout(args, *args.grad_x, *args.grad_y, launch);
}

constexpr bp_kernel_flags kDropoutFlags = BP_KERNEL_IN_PLACE | BP_KERNEL_TAKES_SCALAR;

}  // namespace

void run_random(const RandomRun& run) { HWY_DYNAMIC_DISPATCH(random_run)(run); }

extern constinit const bp_kernel kRandomBits = make_kernel<bp_random_bits_args, random_bits_launch>(
    kernel_row("random_bits", BP_OP_RANDOM_BITS, {}, BP_KERNEL_TAKES_SCALAR));
extern constinit const bp_kernel kUniform = make_kernel<bp_uniform_args, uniform_launch>(
    kernel_row("uniform", BP_OP_UNIFORM, kFloatDtypes, BP_KERNEL_TAKES_SCALAR));
extern constinit const bp_kernel kNormal = make_kernel<bp_normal_args, normal_launch>(
    kernel_row("normal", BP_OP_NORMAL, kFloatDtypes, BP_KERNEL_TAKES_SCALAR));
extern constinit const bp_kernel kDropout = make_kernel<bp_dropout_args, dropout_launch>(
    kernel_row("dropout", BP_OP_DROPOUT, kFloatDtypes, kDropoutFlags));
extern constinit const bp_kernel kDropoutBackward =
    make_kernel<bp_dropout_backward_args, dropout_backward_launch>(
        kernel_row("dropout_backward", BP_OP_DROPOUT_BACKWARD, kFloatDtypes, kDropoutFlags));

}  // namespace bp::kernels
#endif  // HWY_ONCE
