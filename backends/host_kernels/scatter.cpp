// scatter and scatter_reduce. A line is what lies along `axis`: threads share the lines, and each
// line is walked in the order of its indices, so that the last one counts, and sums have one order.
//
// Sums of 16-bit floats are kept in f32, in the workspace, and rounded once. Where so many indices
// lie along the axis that a sum of them would lose digits, sums of f32 and narrower are kept in
// f64.
#include <cstring>

#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backplane/shell/narrow.hpp"
#include "hwy/base.h"

namespace bp::kernels {
namespace {

// The axis that the indices name. Strides are in bytes; those of y, indices and src.
struct Axis {
  int64_t extent = 0, count = 0;  // Of y, and of indices.
  int64_t y_stride = 0, index_stride = 0, src_stride = 0;
  WrongIndex* wrong = nullptr;
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

// data and strides are those of (y, indices, src); a row holds the first elements of n lines.
template <class Op, typename To, typename From, typename Index>
void scatter_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const Axis& axis = *static_cast<const Axis*>(context);
  const auto put = [&](int64_t line, int64_t at) {
    const int64_t index =
        *reinterpret_cast<const Index*>(data[1] + line * strides[1] + at * axis.index_stride);
    if (index < 0 || index >= axis.extent) return axis.wrong->set(index);
    const std::byte* const from = data[2] + line * strides[2] + at * axis.src_stride;
    std::byte* const to = data[0] + line * strides[0] + index * axis.y_stride;
    Op::put(*reinterpret_cast<To*>(to), *reinterpret_cast<const From*>(from));
  };
  // Either order keeps that of each line.
  if (std::abs(axis.src_stride) < std::abs(strides[2])) {
    for (int64_t line = 0; line < n; ++line) {
      for (int64_t at = 0; at < axis.count; ++at) put(line, at);
    }
  } else {
    for (int64_t at = 0; at < axis.count; ++at) {
      for (int64_t line = 0; line < n; ++line) put(line, at);
    }
  }
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

// How one op works on one dtype. Sums are kept in y, or in the workspace if `sum_size_bytes`.
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

// Elements are moved as unsigned integers of their width, so that they keep their bits.
template <typename Index>
Method replace_method(bp_dtype dtype) {
  return with_any(dtype, []<typename T>(T) {
    return method<Replace, hwy::UnsignedFromSize<sizeof(T)>, Index>();
  });
}

// Terms of a sum in f32 at most.
constexpr int64_t kShortSum = 256;

template <typename T, typename Index>
Method add_floats(bool is_long) {
  return is_long ? method<Add, T, Index, double>() : method<Add, T, Index>();
}

// Integers are added without a sign: then they wrap.
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

Method method_of(const bp_scatter_args& args) {
  return args.indices->dtype == BP_I64 ? replace_method<int64_t>(args.x->dtype)
                                       : replace_method<int32_t>(args.x->dtype);
}

Method method_of(const bp_scatter_reduce_args& args) {
  const bool is_long = args.indices->shape[args.axis] >= kShortSum;
  return args.indices->dtype == BP_I64 ? add_method<int64_t>(args.x->dtype, is_long)
                                       : add_method<int32_t>(args.x->dtype, is_long);
}

// y without gaps in the workspace, with elements of f32 or f64.
class Sums {
 public:
  Sums(const bp_tensor& y, int64_t sum_size_bytes) : tensor_(y) {
    int64_t stride = 1;
    for (uint32_t i = y.ndim; i-- > 0; stride *= y.shape[i]) strides_[i] = stride;
    tensor_.strides = strides_.data();
    tensor_.dtype = sum_size_bytes == 8 ? bp_dtype{BP_F64} : bp_dtype{BP_F32};
  }
  Sums(const Sums&) = delete;
  const bp_tensor& tensor() const { return tensor_; }

 private:
  bp_tensor tensor_;
  std::array<int64_t, BP_MAX_RANK> strides_{};
};

template <typename Args>
uint64_t scatter_workspace(const Args& args, const Env&) {
  return static_cast<uint64_t>(element_count(*args.y) * method_of(args).sum_size_bytes);
}

// The loop over the first elements of all lines.
template <typename Args>
Loop lines_of(const Args& args, const bp_tensor& target, Axis& axis) {
  const auto number = static_cast<size_t>(args.axis);
  axis.extent = target.shape[number];
  axis.count = args.indices->shape[number];
  axis.y_stride = target.strides[number] * dtype_size_bytes(target.dtype);
  axis.index_stride = args.indices->strides[number] * dtype_size_bytes(args.indices->dtype);
  axis.src_stride = args.src->strides[number] * dtype_size_bytes(args.src->dtype);
  Reshaped y(target, *args.indices), indices(*args.indices, *args.indices),
      src(*args.src, *args.indices);
  y.collapse(number);
  indices.collapse(number);
  src.collapse(number);
  return make_loop({&y, &indices, &src});
}

template <typename Args>
bp_status submit_scatter(const char* op, const Args& args, const Launch& launch) {
  const Method method = method_of(args);
  const bool has_sums = method.sum_size_bytes != 0;
  const Sums sums(*args.y, method.sum_size_bytes);
  const bp_tensor& target = has_sums ? sums.tensor() : *args.y;
  Axis axis;
  Loop begin = make_loop({&target, args.x}), lines = lines_of(args, target, axis);
  Loop end = make_loop({args.y, &target});
  if (has_sums) begin.data[0] = lines.data[0] = end.data[1] = launch.workspace();
  const bool is_in_place = begin.data[0] == begin.data[1];
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, axis.count));
  return launch.submit([=, threads = launch.thread_count()] {
    WrongIndex wrong;
    Axis shared = axis;
    shared.wrong = &wrong;
    if (!is_in_place) run_loop(begin, method.begin, threads, kGrain);
    run_loop(lines, method.scatter, threads, grain, &shared);
    if (has_sums) run_loop(end, method.end, threads, kGrain);
    wrong.check(op, axis.extent);
  });
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
