// scatter and scatter_reduce. A line is the elements along `axis`. Threads share the lines. Each
// line is walked in the order of its indices, so the last of equal indices wins, and sums have a
// fixed order.
//
// Sums of 16-bit floats are kept in f32, in the workspace, and rounded once. If an element is named
// by so many indices that a sum of them in f32 would lose digits, the sums of f32 and narrower
// floats are kept in f64. Counting the indices of each element first takes a byte for each of them,
// and less time than sums of twice the width.
#include <atomic>
#include <cstring>

#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backplane/shell/narrow.hpp"
#include "hwy/base.h"

namespace bp::kernels {
namespace {

// The axis that the indices name. The strides of y, indices and src are in bytes.
struct Axis {
  Bounds bounds;      // Of the axis of y.
  int64_t count = 0;  // The extent of the axis of indices.
  int64_t y_stride = 0, index_stride = 0, src_stride = 0;
  WrongIndex* wrong = nullptr;
  std::atomic<bool>* is_long = nullptr;  // Set if an element is named by more than kShortSum.
};

struct Replace {
  template <typename To, typename From>
  static void put(To& to, From from) {
    to = from;
  }
};

struct Add {
  template <typename To, typename From>
  static void put(To& to, From from) {
    to += static_cast<To>(widen(from));
  }
};

// Calls put(line, place along the line) for all indices of n lines, in the order in which src lies
// in memory. Either order keeps that of each line.
template <typename Put>
void walk_lines(const Axis& axis, int64_t line_stride, int64_t n, Put put) {
  if (std::abs(axis.src_stride) < std::abs(line_stride)) {
    for (int64_t line = 0; line < n; ++line) {
      for (int64_t at = 0; at < axis.count; ++at) put(line, at);
    }
  } else {
    for (int64_t at = 0; at < axis.count; ++at) {
      for (int64_t line = 0; line < n; ++line) put(line, at);
    }
  }
}

// data and strides are those of (y, indices, src); a row holds the first elements of n lines.
template <class Op, typename To, typename From, typename Index>
void scatter_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const Axis& axis = *static_cast<const Axis*>(context);
  walk_lines(axis, strides[2], n, [&](int64_t line, int64_t at) {
    const std::byte* const place = data[1] + line * strides[1] + at * axis.index_stride;
    const int64_t index = axis.bounds.acting(*reinterpret_cast<const Index*>(place));
    if (!axis.bounds.contains(index)) return axis.wrong->set(place);
    const std::byte* const from = data[2] + line * strides[2] + at * axis.src_stride;
    std::byte* const to = data[0] + line * strides[0] + index * axis.y_stride;
    Op::put(*reinterpret_cast<To*>(to), *reinterpret_cast<const From*>(from));
  });
}

// Terms of a sum in f32 at most: the counters have 8 bits, and one that is 0 again has met more.
constexpr int64_t kShortSum = 255;

// Counts how many indices name each element; data and strides are those of (counters, indices,
// src). Scattering reports the indices that are out of range.
template <typename Index>
void count_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const Axis& axis = *static_cast<const Axis*>(context);
  if (axis.is_long->load(std::memory_order_relaxed)) return;
  bool is_long = false;
  walk_lines(axis, strides[2], n, [&](int64_t line, int64_t at) {
    const std::byte* const place = data[1] + line * strides[1] + at * axis.index_stride;
    const int64_t index = axis.bounds.acting(*reinterpret_cast<const Index*>(place));
    if (!axis.bounds.contains(index)) return;
    auto& counter = reinterpret_cast<uint8_t&>(data[0][line * strides[0] + index * axis.y_stride]);
    is_long |= ++counter == 0;
  });
  if (is_long) axis.is_long->store(true, std::memory_order_relaxed);
}

// data and strides are those of the counters.
void clear_row(std::byte* const* data, const int64_t*, int64_t n, const void*) {
  std::memset(data[0], 0, static_cast<size_t>(n));
}

// data and strides are those of (to, from).
template <typename To, typename From>
void convert_row(std::byte* const* data, const int64_t* strides, int64_t n, const void*) {
  std::byte* to = data[0];
  const std::byte* from = data[1];
  const auto convert = [](From x) {
    if constexpr (std::is_same_v<To, From>) {
      return x;
    } else if constexpr (std::is_floating_point_v<From>) {
      return narrow<To>(x);
    } else {
      return static_cast<To>(widen(x));
    }
  };
  if (strides[0] == sizeof(To) && strides[1] == sizeof(From)) {
    for (int64_t i = 0; i < n; ++i) {
      reinterpret_cast<To*>(to)[i] = convert(reinterpret_cast<const From*>(from)[i]);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i, to += strides[0], from += strides[1]) {
    *reinterpret_cast<To*>(to) = convert(*reinterpret_cast<const From*>(from));
  }
}

// The functions of one op for one dtype. Sums are kept in y, or in the workspace if
// `sum_size_bytes` is not 0.
struct Method {
  RowFunction *scatter, *begin, *end;
  int64_t sum_size_bytes;
};

template <class Op, typename T, typename Index, typename Sum = Compute<T>>
Method method() {
  if constexpr (std::is_same_v<T, Sum>) {
    return {scatter_row<Op, T, T, Index>, convert_row<T, T>, nullptr, 0};
  } else {
    return {scatter_row<Op, Sum, T, Index>, convert_row<Sum, T>, convert_row<T, Sum>, sizeof(Sum)};
  }
}

// Returns the method of scatter. Elements are moved as unsigned integers of their width, so that
// they keep their bits.
template <typename Index>
Method replace_method(bp_dtype dtype) {
  return with_any(dtype, []<typename T>(T) {
    return method<Replace, hwy::UnsignedFromSize<sizeof(T)>, Index>();
  });
}

template <typename T, typename Index>
Method add_floats(bool is_long) {
  return is_long ? method<Add, T, Index, double>() : method<Add, T, Index>();
}

// Returns the method of sums. Integers are added as unsigned numbers, which wrap.
template <typename Index>
Method add_method(bp_dtype dtype, bool is_long) {
  return with_number(dtype, [=]<typename T>(T) {
    if constexpr (std::is_integral_v<T>) {
      return method<Add, std::make_unsigned_t<T>, Index>();
    } else if constexpr (std::is_same_v<T, double>) {
      return method<Add, double, Index>();
    } else {
      return add_floats<T, Index>(is_long);
    }
  });
}

Method method_of(const bp_scatter_args& args, bool) {
  return args.indices->dtype == BP_I64 ? replace_method<int64_t>(args.x->dtype)
                                       : replace_method<int32_t>(args.x->dtype);
}

Method method_of(const bp_scatter_reduce_args& args, bool is_long) {
  return args.indices->dtype == BP_I64 ? add_method<int64_t>(args.x->dtype, is_long)
                                       : add_method<int32_t>(args.x->dtype, is_long);
}

// Whether sums may need f64, so that the indices of each element are to be counted.
template <typename Args>
bool may_be_long(const Args& args) {
  return axis_extent(*args.indices, static_cast<size_t>(args.axis)) > kShortSum &&
         method_of(args, true).sum_size_bytes > method_of(args, false).sum_size_bytes;
}

// y without gaps in the workspace, with other elements.
class Dense {
 public:
  Dense(const bp_tensor& y, bp_dtype dtype) : tensor_(y) {
    set_contiguous_strides(y.ndim, y.shape, strides_.data());
    tensor_.strides = strides_.data();
    tensor_.dtype = dtype;
  }
  Dense(const Dense&) = delete;
  const bp_tensor& tensor() const { return tensor_; }

 private:
  bp_tensor tensor_;
  std::array<int64_t, BP_MAX_RANK> strides_{};
};

// The sums begin the workspace, and the counters lie behind the widest ones.
template <typename Args>
int64_t counters_offset(const Args& args) {
  return dense_size_bytes(args.y->ndim, args.y->shape,
                          method_of(args, may_be_long(args)).sum_size_bytes);
}

template <typename Args>
uint64_t scatter_workspace(const Args& args, const Env&) {
  const int64_t counters = may_be_long(args) ? element_count(*args.y) : 0;
  return static_cast<uint64_t>(counters_offset(args)) + static_cast<uint64_t>(counters);
}

// Makes the loop over the first elements of all lines.
template <typename Args>
Loop lines_of(const Args& args, const bp_tensor& target, Axis& axis) {
  const auto number = static_cast<size_t>(args.axis);
  axis.bounds = Bounds(axis_extent(target, number), args.bounds);
  axis.count = axis_extent(*args.indices, number);
  axis.y_stride = axis_stride(target, number) * dtype_size_bytes(target.dtype);
  axis.index_stride = axis_stride(*args.indices, number) * dtype_size_bytes(args.indices->dtype);
  axis.src_stride = axis_stride(*args.src, number) * dtype_size_bytes(args.src->dtype);
  Reshaped y(target, *args.indices), indices(*args.indices, *args.indices),
      src(*args.src, *args.indices);
  y.collapse(number);
  indices.collapse(number);
  src.collapse(number);
  return make_loop({&y, &indices, &src});
}

int64_t grain_of(const Axis& axis) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, axis.count));
}

// Scattering with sums of one dtype.
class Scattering {
 public:
  template <typename Args>
  Scattering(const Args& args, const Launch& launch, bool is_long)
      : method_(method_of(args, is_long)), indices_(*args.indices) {
    const bool has_sums = method_.sum_size_bytes != 0;
    const Dense sums(*args.y, method_.sum_size_bytes == 8 ? BP_F64 : BP_F32);
    const bp_tensor& target = has_sums ? sums.tensor() : *args.y;
    begin_ = make_loop({&target, args.x});
    lines_ = lines_of(args, target, axis_);
    end_ = make_loop({args.y, &target});
    if (has_sums) begin_.data[0] = lines_.data[0] = end_.data[1] = launch.workspace();
  }

  void run(const char* op, int threads) const {
    WrongIndex wrong;
    Axis axis = axis_;
    axis.wrong = &wrong;
    const bool is_in_place = begin_.data[0] == begin_.data[1];
    if (!is_in_place) run_loop(begin_, method_.begin, threads, kGrain);
    run_loop(lines_, method_.scatter, threads, grain_of(axis), &axis);
    if (method_.sum_size_bytes != 0) run_loop(end_, method_.end, threads, kGrain);
    wrong.check(op, indices_, axis.bounds.extent);
  }

 private:
  Method method_;
  IndexTensor indices_;
  Axis axis_;
  Loop begin_, lines_, end_;
};

// Finds out whether more than kShortSum indices name one element.
class Counting {
 public:
  template <typename Args>
  Counting(const Args& args, const Launch& launch)
      : count_(args.indices->dtype == BP_I64 ? count_row<int64_t> : count_row<int32_t>) {
    const Dense counters(*args.y, BP_U8);
    clear_ = make_loop({&counters.tensor()});
    lines_ = lines_of(args, counters.tensor(), axis_);
    clear_.data[0] = lines_.data[0] = launch.workspace() + counters_offset(args);
  }

  bool is_long(int threads) const {
    std::atomic<bool> found = false;
    Axis axis = axis_;
    axis.is_long = &found;
    run_loop(clear_, clear_row, threads, kGrain);
    run_loop(lines_, count_, threads, grain_of(axis), &axis);
    return found;
  }

 private:
  RowFunction* count_;
  Axis axis_;
  Loop clear_, lines_;
};

template <typename Args>
bp_status submit_scatter(const char* op, const Args& args, const Launch& launch) {
  const Scattering brief(args, launch, false);
  const int threads = launch.thread_count();
  if (!may_be_long(args)) return launch.submit([=] { brief.run(op, threads); });
  const Scattering full(args, launch, true);
  const Counting counting(args, launch);
  return launch.submit([=] { (counting.is_long(threads) ? full : brief).run(op, threads); });
}

bp_status scatter_launch(const bp_scatter_args& args, Launch& launch) {
  return submit_scatter("scatter", args, launch);
}

bp_status scatter_reduce_launch(const bp_scatter_reduce_args& args, Launch& launch) {
  return submit_scatter("scatter_reduce", args, launch);
}

constexpr auto kScatterRows = with_indices(kAnyDtypes);
constexpr auto kReduceRows = with_indices(kNumberDtypes);

}  // namespace

constinit const bp_kernel kScatter = make_kernel<bp_scatter_args, scatter_launch>(
    kernel_row("scatter", BP_OP_SCATTER, {kScatterRows, 2}, BP_KERNEL_IN_PLACE));

constinit const bp_kernel kScatterReduce =
    make_kernel<bp_scatter_reduce_args, scatter_reduce_launch, nullptr,
                scatter_workspace<bp_scatter_reduce_args>>(
        kernel_row("scatter_reduce", BP_OP_SCATTER_REDUCE, {kReduceRows, 2}, BP_KERNEL_IN_PLACE));

}  // namespace bp::kernels
