// interpolate and its gradient (sampling.hpp). The rows that a row of the result consists of are
// weighted and added in a line, and the elements of the row are taken from the line. One thread
// computes a plane.
//
// Columns are read with gathers: their places and weights are found once for each thread. In the
// gradient the outputs that read an element lie side by side, so each element is a sum over a part
// of the line.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/interpolate.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <algorithm>
#include <array>
#include <type_traits>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/pool_line-inl.hpp"
#include "backends/host_kernels/strided.hpp"
#include "backplane/shell/sampling.hpp"

#ifndef BACKPLANE_CPU_INTERPOLATE_PLAN
#define BACKPLANE_CPU_INTERPOLATE_PLAN
namespace bp::kernels {
namespace {

struct Interpolation {
  Planes x, y;  // In the gradient these are grad_x and grad_y.
  std::array<Positions, 3> axes;
};

// The memory of a thread. Indices have the size of a Value, so that vectors of both have as many
// lanes.
template <typename Value>
struct InterpolationMemory {
  using Index = std::conditional_t<sizeof(Value) == 4, int32_t, int64_t>;

  InterpolationMemory(const Interpolation& p, std::byte* memory)
      : input_line(reinterpret_cast<Value*>(memory)),
        output_line(input_line + room(p.axes[2].inputs)),
        below_line(output_line + room(p.axes[2].outputs)),
        above_line(below_line + room(p.axes[2].outputs)),
        below_weight(above_line + room(p.axes[2].outputs)),
        above_weight(below_weight + room(p.axes[2].outputs)),
        below(reinterpret_cast<Index*>(above_weight + room(p.axes[2].outputs))),
        above(below + room(p.axes[2].outputs)),
        outputs_before(above + room(p.axes[2].outputs)) {}

  static int64_t elements(const Interpolation& p) {
    return 2 * room(p.axes[2].inputs) + 7 * room(p.axes[2].outputs);
  }
  // Returns the elements of an array of n, behind which a vector may be written.
  static int64_t room(int64_t n) { return n + 17; }

  // Finds the places and the weights of the columns.
  void fill(const Positions& columns) {
    std::fill_n(outputs_before, room(columns.inputs), Index{0});
    std::fill_n(below, room(columns.outputs), Index{0});
    std::fill_n(above, room(columns.outputs), Index{0});
    for (int64_t k = 0; k < columns.outputs; ++k) {
      const Positions::Place at = columns.place(k);
      below[k] = static_cast<Index>(at.below);
      above[k] = static_cast<Index>(at.rest == 0 ? at.below : at.below + 1);
      below_weight[k] = static_cast<Value>(columns.share<double>(columns.unit - at.rest));
      above_weight[k] = static_cast<Value>(columns.share<double>(at.rest));
    }
    for (int64_t c = 0; c <= columns.inputs; ++c) {
      outputs_before[c] = static_cast<Index>(columns.outputs_before(c));
      if (c > 0) most_readers = std::max(most_readers, outputs_before[c] - outputs_before[c - 1]);
    }
  }

  Value *input_line, *output_line, *below_line, *above_line, *below_weight, *above_weight;
  Index *below, *above, *outputs_before;
  Index most_readers = 0;  // The outputs whose `below` is one column, at most.
};

// Computes the planes [begin, end) with the memory of a thread.
using InterpolatePlanes = void(const Interpolation& p, int64_t begin, int64_t end,
                               std::byte* memory);

}  // namespace
}  // namespace bp::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

// Calls body(i, j, weight) for the inputs (i, j) along the first two axes that a row of outputs
// reads.
template <typename Body>
void for_each_input(const Interpolation& p, const OutputRow& row, const Body& body) {
  const Positions::Place depth = p.axes[0].place(row.i), height = p.axes[1].place(row.j);
  for (int64_t a = 0; a < (depth.rest == 0 ? 1 : 2); ++a) {
    const double outer = p.axes[0].weight<double>(depth.below + a, row.i);
    for (int64_t b = 0; b < (height.rest == 0 ? 1 : 2); ++b) {
      body(depth.below + a, height.below + b,
           outer * p.axes[1].weight<double>(height.below + b, row.j));
    }
  }
}

// Returns a vector times a weight. A weight of 0 gives 0, also where the element is not finite.
template <class D>
HWY_INLINE hn::Vec<D> weighted(D d, hn::Vec<D> v, hn::Vec<D> weight) {
  return hn::IfThenElseZero(hn::Ne(weight, hn::Zero(d)), hn::Mul(v, weight));
}

// Stores the elements of the result from a row of inputs or of their sums.
template <typename T, typename Value>
void store_columns(const Interpolation& p, const OutputRow& row, const Value* line, T* to,
                   const InterpolationMemory<Value>& memory) {
  const ComputeTag<T> d;
  const hn::RebindToSigned<ComputeTag<T>> index_d;
  to += row.offset_in(p.y);
  const int64_t n = p.y.extent[2];
  for_each_vector(d, n, [&](int64_t k, auto whole) HWY_ATTR {
    auto v = hn::GatherIndex(d, line, hn::LoadU(index_d, memory.below + k));
    if (p.axes[2].is_linear) {
      const auto above = hn::GatherIndex(d, line, hn::LoadU(index_d, memory.above + k));
      const auto part = weighted(d, above, hn::LoadU(d, memory.above_weight + k));
      v = hn::MulAdd(v, hn::LoadU(d, memory.below_weight + k), part);
    }
    store_outputs<whole>(v, d, to + k * p.y.stride[2], p.y.stride[2], n - k);
  });
}

template <typename T>
void interpolate_row(const Interpolation& p, int64_t plane, const OutputRow& row,
                     const InterpolationMemory<Compute<T>>& memory) {
  using Value = Compute<T>;
  const ComputeTag<T> d;
  const T* const from = reinterpret_cast<const T*>(p.x.plane(plane));
  std::fill_n(memory.input_line, p.x.extent[2], static_cast<Value>(-0.0));
  for_each_input(p, row, [&](int64_t i, int64_t j, double weight) {
    const Value scale = static_cast<Value>(weight);
    add_row(from + i * p.x.stride[0] + j * p.x.stride[1], p.x.stride[2], p.x.extent[2],
            memory.input_line, [=](auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, scale)); });
  });
  store_columns(p, row, memory.input_line, reinterpret_cast<T*>(p.y.plane(plane)), memory);
}

// Computes a row whose elements are the nearest ones. Elements that lie side by side and need no
// conversion are taken from where they are.
template <typename T>
void nearest_row(const Interpolation& p, int64_t plane, const OutputRow& row,
                 const InterpolationMemory<Compute<T>>& memory) {
  const T* const from = reinterpret_cast<const T*>(p.x.plane(plane)) +
                        p.axes[0].place(row.i).below * p.x.stride[0] +
                        p.axes[1].place(row.j).below * p.x.stride[1];
  T* const to = reinterpret_cast<T*>(p.y.plane(plane));
  if constexpr (std::is_same_v<T, Compute<T>>) {
    if (p.x.stride[2] == 1) return store_columns(p, row, from, to, memory);
  }
  for (int64_t c = 0; c < p.x.extent[2]; ++c) {
    memory.input_line[c] = widen(from[c * p.x.stride[2]]);
  }
  store_columns(p, row, memory.input_line, to, memory);
}

// Computes the rows of a plane. Neighbours often have the same nearest row.
template <typename T>
void nearest_plane(const Interpolation& p, int64_t plane,
                   const InterpolationMemory<Compute<T>>& memory) {
  for (int64_t i = 0; i < p.y.extent[0]; ++i) {
    for (int64_t j = 0; j < p.y.extent[1]; ++j) {
      const Positions& height = p.axes[1];
      if (j == 0 || p.y.stride[2] != 1 || height.place(j).below != height.place(j - 1).below) {
        nearest_row<T>(p, plane, {i, j}, memory);
        continue;
      }
      T* const to = reinterpret_cast<T*>(p.y.plane(plane)) + OutputRow{i, j}.offset_in(p.y);
      std::copy_n(to - p.y.stride[1], p.y.extent[2], to);
    }
  }
}

template <typename T>
void interpolate_planes(const Interpolation& p, int64_t begin, int64_t end, std::byte* of_thread) {
  InterpolationMemory<Compute<T>> memory(p, of_thread);
  memory.fill(p.axes[2]);
  for (int64_t plane = begin; plane < end; ++plane) {
    if (!p.axes[2].is_linear) {
      nearest_plane<T>(p, plane, memory);
      continue;
    }
    for (int64_t i = 0; i < p.y.extent[0]; ++i) {
      for (int64_t j = 0; j < p.y.extent[1]; ++j) interpolate_row<T>(p, plane, {i, j}, memory);
    }
  }
}

Range readers_of(const Positions& axis, int64_t input) {
  return {axis.first_output(input), axis.outputs_before(input + 1)};
}

// Adds up the rows of grad_y that read row (a, b), times their weights.
template <typename T>
void join_outputs(const Interpolation& p, int64_t plane, int64_t a, int64_t b,
                  const InterpolationMemory<Compute<T>>& memory) {
  using Value = Compute<T>;
  const ComputeTag<T> d;
  const T* const from = reinterpret_cast<const T*>(p.y.plane(plane));
  const Range depth = readers_of(p.axes[0], a), height = readers_of(p.axes[1], b);
  const int64_t n = p.y.extent[2];
  PartSums<Value> sums(memory.output_line, memory.below_line, n);
  for (int64_t i = depth.begin; i < depth.end; ++i) {
    for (int64_t j = height.begin; j < height.end; ++j) {
      const Value scale =
          static_cast<Value>(p.axes[0].weight<double>(a, i) * p.axes[1].weight<double>(b, j));
      add_row(from + i * p.y.stride[0] + j * p.y.stride[1], p.y.stride[2], n, memory.output_line,
              [=](auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, scale)); });
      sums.count_term();
    }
  }
  sums.finish();
}

// Adds up what the columns of a row of grad_x get from the lines: the line of `below`, and for
// linear interpolation that of `above`, which belongs to the columns before.
template <typename Value>
void sum_columns(const Interpolation& p, const Value* below, const InterpolationMemory<Value>& m) {
  const int64_t count = p.x.extent[2];
  const auto* const before = m.outputs_before;
  if (m.most_readers <= kSummedPart) {
    const hn::ScalableTag<Value> d;
    for_each_vector(d, count, [&](int64_t c, auto) HWY_ATTR {
      hn::StoreU(sums_of_parts(d, below, before + c, before + c + 1, m.most_readers), d,
                 m.input_line + c);
    });
    if (!p.axes[2].is_linear || count == 1) return;
    for_each_vector(d, count - 1, [&](int64_t c, auto) HWY_ATTR {
      const auto sums = sums_of_parts(d, m.above_line, before + c, before + c + 1, m.most_readers);
      const auto earlier = hn::LoadU(d, m.input_line + c + 1);
      hn::StoreU(hn::Add(earlier, sums), d, m.input_line + c + 1);
    });
    return;
  }
  for (int64_t c = 0; c < count; ++c) {
    m.input_line[c] = sum_of(below + before[c], int64_t{before[c + 1]} - before[c]);
    if (!p.axes[2].is_linear || c == 0) continue;
    m.input_line[c] += sum_of(m.above_line + before[c - 1], int64_t{before[c]} - before[c - 1]);
  }
}

// Computes row (a, b) of a plane of grad_x.
template <typename T>
void spread_row(const Interpolation& p, int64_t plane, int64_t a, int64_t b,
                const InterpolationMemory<Compute<T>>& m) {
  const ComputeTag<T> d;
  join_outputs<T>(p, plane, a, b, m);
  const bool is_linear = p.axes[2].is_linear;
  for_each_vector(d, is_linear ? p.y.extent[2] : 0, [&](int64_t k, auto) HWY_ATTR {
    const auto v = hn::LoadU(d, m.output_line + k);
    hn::StoreU(hn::Mul(v, hn::LoadU(d, m.below_weight + k)), d, m.below_line + k);
    hn::StoreU(weighted(d, v, hn::LoadU(d, m.above_weight + k)), d, m.above_line + k);
  });
  sum_columns(p, is_linear ? m.below_line : m.output_line, m);
  const int64_t count = p.x.extent[2];
  T* const to = reinterpret_cast<T*>(p.x.plane(plane)) + a * p.x.stride[0] + b * p.x.stride[1];
  for_each_vector(d, count, [&](int64_t c, auto whole) HWY_ATTR {
    store_outputs<whole>(hn::LoadU(d, m.input_line + c), d, to + c * p.x.stride[2], p.x.stride[2],
                         count - c);
  });
}

template <typename T>
void spread_planes(const Interpolation& p, int64_t begin, int64_t end, std::byte* of_thread) {
  InterpolationMemory<Compute<T>> memory(p, of_thread);
  memory.fill(p.axes[2]);
  for (int64_t plane = begin; plane < end; ++plane) {
    for (int64_t a = 0; a < p.x.extent[0]; ++a) {
      for (int64_t b = 0; b < p.x.extent[1]; ++b) spread_row<T>(p, plane, a, b, memory);
    }
  }
}

template <typename T>
InterpolatePlanes* planes_of(bool is_backward) {
  return is_backward ? spread_planes<T> : interpolate_planes<T>;
}

InterpolatePlanes* find_planes(bp_dtype dtype, bool is_backward) {
  return with_float(dtype, [=]<typename T>(T) { return planes_of<T>(is_backward); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {
namespace {

HWY_EXPORT(find_planes);

template <typename Args>
Interpolation interpolation_of(const Args& args, const bp_tensor& x, const bp_tensor& y) {
  Interpolation p{.x = Planes(x), .y = Planes(y), .axes = {}};
  for (size_t i = 0; i < p.axes.size(); ++i) {
    p.axes[i] = positions_of(args, p.x.extent[i], p.y.extent[i]);
  }
  return p;
}

uint64_t thread_bytes(const Interpolation& p, bp_dtype dtype) {
  return plane_memory_bytes(InterpolationMemory<float>::elements(p), dtype);
}

bp_status submit_interpolation(const Interpolation& p, const bp_tensor& result, bool is_backward,
                               const Launch& launch) {
  InterpolatePlanes* const run = HWY_DYNAMIC_DISPATCH(find_planes)(result.dtype, is_backward);
  return submit_planes(
      launch, result, std::max(p.x.size(), p.y.size()), thread_bytes(p, result.dtype),
      [=](int64_t begin, int64_t end, std::byte* memory) { run(p, begin, end, memory); });
}

bp_reason interpolate_supports(const bp_interpolate_args& args) {
  return sampling_reason(*args.x, *args.y);
}

uint64_t interpolate_workspace(const bp_interpolate_args& args, const Env& env) {
  const Interpolation p = interpolation_of(args, *args.x, *args.y);
  return static_cast<uint64_t>(env.thread_count()) * thread_bytes(p, args.x->dtype);
}

bp_status interpolate_launch(const bp_interpolate_args& args, Launch& launch) {
  return submit_interpolation(interpolation_of(args, *args.x, *args.y), *args.y, false, launch);
}

bp_reason interpolate_backward_supports(const bp_interpolate_backward_args& args) {
  return sampling_reason(*args.grad_x, *args.grad_y);
}

uint64_t interpolate_backward_workspace(const bp_interpolate_backward_args& args, const Env& env) {
  const Interpolation p = interpolation_of(args, *args.grad_x, *args.grad_y);
  return static_cast<uint64_t>(env.thread_count()) * thread_bytes(p, args.grad_x->dtype);
}

bp_status interpolate_backward_launch(const bp_interpolate_backward_args& args, Launch& launch) {
  return submit_interpolation(interpolation_of(args, *args.grad_x, *args.grad_y), *args.grad_x,
                              true, launch);
}

}  // namespace

extern constinit const bp_kernel kInterpolate =
    make_kernel<bp_interpolate_args, interpolate_launch, interpolate_supports,
                interpolate_workspace>(kernel_row("interpolate", BP_OP_INTERPOLATE, kFloatDtypes));
extern constinit const bp_kernel kInterpolateBackward =
    make_kernel<bp_interpolate_backward_args, interpolate_backward_launch,
                interpolate_backward_supports, interpolate_backward_workspace>(
        kernel_row("interpolate_backward", BP_OP_INTERPOLATE_BACKWARD, kFloatDtypes));

}  // namespace bp::kernels
#endif  // HWY_ONCE
