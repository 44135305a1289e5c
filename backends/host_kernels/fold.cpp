// fold (columns.hpp). A row of the image is computed at a time, in a line that stays in the
// first-level cache, so every term is read once, and no index is. If windows are `stride` places
// apart, the line has a part for each remainder of a place by the stride. Then terms that lie side
// by side are added to sums that lie side by side. The op's decomposition scatters the terms one by
// one.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/fold.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>

#include "backends/host_kernels/columns.hpp"
#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/pool_line-inl.hpp"

#ifndef BACKPLANE_CPU_FOLD_PLAN
#define BACKPLANE_CPU_FOLD_PLAN
namespace bp::kernels {
namespace {

// The line of fold: the parts of the remainders, each with room for a vector behind it.
struct FoldLine {
  explicit FoldLine(const Columns& p)
      : parts(p.window.stride[2]), pitch((p.image.extent[2] + parts - 1) / parts + kSpare) {}
  // Returns the elements of a thread's memory: the line, one for earlier sums, and one in order.
  int64_t elements() const { return 3 * parts * pitch; }

  static constexpr int64_t kSpare = 16;
  int64_t parts, pitch;
};

// Computes the rows [begin, end) of all planes of the image. `memory` is the thread's own.
using FoldRows = void(const Columns& p, int64_t begin, int64_t end, std::byte* memory);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Adds the terms of tap (i, j) in row k of windows to the line.
template <typename T>
void add_terms(const Columns& p, const Tap& tap, const FoldLine& line, int64_t k, int64_t row,
               Compute<T>* sums) {
  const Range in = tap.inside(p, 0, p.across);
  if (in.size() == 0) return;
  const int64_t place = p.window.input_of(2, in.begin, tap.j);
  const T* const from = reinterpret_cast<const T*>(p.address) + row / p.rows * p.image_stride +
                        row % p.rows * p.row_stride + (k * p.across + in.begin) * p.stride;
  add_row(from, p.stride, in.size(), sums + place % line.parts * line.pitch + place / line.parts,
          [](auto v) { return v; });
}

// Computes row `a` of a plane of the image.
template <typename T>
void fold_row(const Columns& p, const FoldLine& line, int64_t plane, int64_t a,
              Compute<T>* memory) {
  const ComputeTag<T> d;
  const int64_t size = line.parts * line.pitch, rows = p.windows / p.across;
  PartSums<Compute<T>> sums(memory, memory + size, size);
  for (int64_t i = 0; i < p.window.kernel[1]; ++i) {
    const int64_t first = a - p.window.input_of(1, 0, i), k = first / p.window.stride[1];
    if (first < 0 || first % p.window.stride[1] != 0 || k >= rows) continue;
    for (int64_t j = 0; j < p.window.kernel[2]; ++j) {
      const int64_t row = plane * p.taps() + i * p.window.kernel[2] + j;
      add_terms<T>(p, Tap(p, row), line, k, row, memory);
      sums.count_term();
    }
  }
  sums.finish();
  const int64_t count = p.image.extent[2];
  const Compute<T>* ordered = memory;
  if (line.parts > 1) {
    Compute<T>* const to = memory + 2 * size;
    for (int64_t part = 0; part < line.parts; ++part) {
      const Compute<T>* from = memory + part * line.pitch;
      for (int64_t c = part; c < count; c += line.parts) to[c] = *from++;
    }
    ordered = to;
  }
  T* const to = reinterpret_cast<T*>(p.image.plane(plane)) + a * p.image.stride[1];
  for_each_vector(d, count, [&](int64_t c, auto whole) HWY_ATTR {
    store_outputs<whole>(load_part<whole>(d, ordered + c, count - c), d, to + c * p.image.stride[2],
                         p.image.stride[2], count - c);
  });
}

template <typename T>
void fold_rows(const Columns& p, int64_t begin, int64_t end, std::byte* memory) {
  const FoldLine line(p);
  for (int64_t row = begin; row < end; ++row) {
    fold_row<T>(p, line, row / p.image.extent[1], row % p.image.extent[1],
                reinterpret_cast<Compute<T>*>(memory));
  }
}

FoldRows* find_rows(bp_dtype dtype) {
  return with_float(dtype, []<typename T>(T) -> FoldRows* { return fold_rows<T>; });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_rows);

uint64_t fold_thread_bytes(const Columns& p, bp_dtype dtype) {
  return plane_memory_bytes(FoldLine(p).elements(), dtype);
}

uint64_t fold_workspace(const bp_fold_args& args, const Env& env) {
  return static_cast<uint64_t>(env.thread_count()) *
         fold_thread_bytes({args, *args.y, *args.x}, args.y->dtype);
}

bp_status fold_launch(const bp_fold_args& args, Launch& launch) {
  const Columns p(args, *args.y, *args.x);
  FoldRows* const run = HWY_DYNAMIC_DISPATCH(find_rows)(args.y->dtype);
  const int64_t width = p.image.extent[2];
  const int64_t rows = width == 0 ? 0 : element_count(*args.y) / width;
  const uint64_t of_thread_bytes = fold_thread_bytes(p, args.y->dtype);
  return launch.submit([=, threads = launch.thread_count(), memory = launch.workspace()] {
    parallel_for(threads, rows, row_grain(width * p.taps()), [&](int64_t begin, int64_t end) {
      const auto thread = static_cast<uint64_t>(thread_number());
      run(p, begin, end, memory + thread * of_thread_bytes);
    });
  });
}

}  // namespace

extern constinit const bp_kernel kFold =
    make_kernel<bp_fold_args, fold_launch, nullptr, fold_workspace>(
        kernel_row("fold", BP_OP_FOLD, kFloatDtypes));

}  // namespace bp::kernels
#endif  // HWY_ONCE
