// The rows of scatter and scatter_reduce. If all elements of a row have one index, the whole row is
// set or added. Otherwise each element is moved by itself.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/host_kernels/scatter_rows.cpp"
#include "hwy/foreach_target.h"
// The headers below must come after foreach_target.h.
#include <array>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "backends/host_kernels/row_addition-inl.hpp"
#include "backends/host_kernels/scatter_rows.hpp"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace bp::kernels {
namespace HWY_NAMESPACE {
namespace {

struct Replace {
  template <typename To, typename From>
  static void put(To& to, From from) {
    to = from;
  }
  template <typename T>
  static void put_row(T* to, int64_t to_stride, const T* from, int64_t from_stride, int64_t n) {
    if (to_stride == 1 && from_stride == 1) {
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
      return;
    }
    for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
};

struct Add {
  template <typename To, typename From>
  static void put(To& to, From from) {
    to += static_cast<To>(widen(from));
  }
  template <typename To, typename From>
  static void put_row(To* to, int64_t to_stride, const From* from, int64_t from_stride, int64_t n) {
    add_elements<To, From, false>(from, from_stride, to, to_stride, n);
  }
};

// Calls put(line, place along the line) for all indices of n lines, in the order in which src lies
// in memory. Either order keeps that of each line.
template <typename Put>
void walk_lines(const ScatterAxis& axis, int64_t line_stride, int64_t n, Put put) {
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

template <typename Index>
int64_t read_index(const std::byte* place, const ScatterAxis& axis) {
  return axis.bounds.acting(*reinterpret_cast<const Index*>(place));
}

// Rows are prefetched, because the hardware cannot predict which row is next.
constexpr int64_t kAhead = 4;           // Positions whose rows are prefetched.
constexpr int64_t kFetchedBytes = 256;  // The hardware prefetches the rest of a row.

// Sets or adds rows of n elements; data and strides are those of (y, indices, src), where all
// elements of a row have one index.
template <class Op, typename To, typename From, typename Index>
void scatter_slices(std::byte* const* data, const int64_t* strides, int64_t n,
                    const ScatterAxis& axis) {
  const int64_t fetched_bytes = std::min(kFetchedBytes, n * strides[0]);
  const int64_t to_stride = strides[0] / int64_t{sizeof(To)};
  const int64_t from_stride = strides[2] / int64_t{sizeof(From)};
  for (int64_t at = 0; at < axis.count; ++at) {
    const std::byte* const place = data[1] + at * axis.index_stride;
    const int64_t next =
        at + kAhead < axis.count ? read_index<Index>(place + kAhead * axis.index_stride, axis) : -1;
    if (axis.owns(next)) {
      const std::byte* const row = data[0] + next * axis.y_stride;
      for (int64_t b = 0; b < fetched_bytes; b += 64) hwy::Prefetch(row + b);
    }
    const int64_t index = read_index<Index>(place, axis);
    if (!axis.bounds.contains(index)) axis.wrong->set(place);
    if (!axis.owns(index)) continue;
    Op::put_row(reinterpret_cast<To*>(data[0] + index * axis.y_stride), to_stride,
                reinterpret_cast<const From*>(data[2] + at * axis.src_stride), from_stride, n);
  }
}

// Sets or adds the elements of one line. The strides may be constants.
template <class Op, typename To, typename From, typename Index, typename... Stride>
HWY_INLINE void scatter_line(std::byte* to, const std::byte* place, const std::byte* from,
                             const ScatterAxis& axis, Stride... strides) {
  const std::array<int64_t, 3> steps = {int64_t{strides}...};
  for (int64_t at = 0; at < axis.count; ++at, place += steps[1], from += steps[2]) {
    const int64_t index = read_index<Index>(place, axis);
    if (!axis.bounds.contains(index)) {
      axis.wrong->set(place);
      continue;
    }
    Op::put(*reinterpret_cast<To*>(to + index * steps[0]), *reinterpret_cast<const From*>(from));
  }
}

template <class Op, typename To, typename From, typename Index>
void scatter_lines(std::byte* const* data, const int64_t* strides, int64_t n,
                   const ScatterAxis& axis) {
  const bool is_dense = axis.y_stride == sizeof(To) && axis.index_stride == sizeof(Index) &&
                        axis.src_stride == sizeof(From);
  for (int64_t line = 0; line < n; ++line) {
    std::byte* const to = data[0] + line * strides[0];
    const std::byte *const place = data[1] + line * strides[1], *const from =
                                                                    data[2] + line * strides[2];
    if (axis.line_bytes != 0) {
      std::memcpy(to, data[3] + line * strides[3], static_cast<size_t>(axis.line_bytes));
    }
    if (is_dense) {
      scatter_line<Op, To, From, Index>(to, place, from, axis,
                                        std::integral_constant<int64_t, sizeof(To)>(),
                                        std::integral_constant<int64_t, sizeof(Index)>(),
                                        std::integral_constant<int64_t, sizeof(From)>());
    } else {
      scatter_line<Op, To, From, Index>(to, place, from, axis, axis.y_stride, axis.index_stride,
                                        axis.src_stride);
    }
  }
}

// data and strides are those of (y, indices, src), and of x if lines are copied; a row holds the
// first elements of n lines.
template <class Op, typename To, typename From, typename Index>
void scatter_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const ScatterAxis& axis = *static_cast<const ScatterAxis*>(context);
  const bool has_copies = axis.line_bytes != 0;
  if (strides[1] == 0 && !has_copies) {
    return scatter_slices<Op, To, From, Index>(data, strides, n, axis);
  }
  if (has_copies || std::abs(axis.src_stride) < std::abs(strides[2])) {
    return scatter_lines<Op, To, From, Index>(data, strides, n, axis);
  }
  walk_lines(axis, strides[2], n, [&](int64_t line, int64_t at) {
    const std::byte* const place = data[1] + line * strides[1] + at * axis.index_stride;
    const int64_t index = read_index<Index>(place, axis);
    if (!axis.bounds.contains(index)) return axis.wrong->set(place);
    const std::byte* const from = data[2] + line * strides[2] + at * axis.src_stride;
    std::byte* const to = data[0] + line * strides[0] + index * axis.y_stride;
    Op::put(*reinterpret_cast<To*>(to), *reinterpret_cast<const From*>(from));
  });
}

// data and strides are those of (counters, indices, src).
template <typename Index>
void count_row(std::byte* const* data, const int64_t* strides, int64_t n, const void* context) {
  const ScatterAxis& axis = *static_cast<const ScatterAxis*>(context);
  if (axis.is_long->load(std::memory_order_relaxed)) return;
  bool is_long = false;
  walk_lines(axis, strides[2], n, [&](int64_t line, int64_t at) {
    const std::byte* const place = data[1] + line * strides[1] + at * axis.index_stride;
    const int64_t index = read_index<Index>(place, axis);
    if (!axis.bounds.contains(index)) return;
    auto& counter = reinterpret_cast<uint8_t&>(data[0][line * strides[0] + index * axis.y_stride]);
    is_long |= ++counter == 0;
  });
  if (is_long) axis.is_long->store(true, std::memory_order_relaxed);
}

// data and strides are those of (to, from).
template <typename To, typename From>
void convert_row(std::byte* const* data, const int64_t* strides, int64_t n, const void*) {
  std::byte* to = data[0];
  const std::byte* from = data[1];
  const auto convert = [](From x) {
    if constexpr (std::is_floating_point_v<From>) {
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

template <class Op, typename T, typename Index, typename Sum = Compute<T>>
ScatterMethod method() {
  if constexpr (std::is_same_v<T, Sum>) {
    return {scatter_row<Op, T, T, Index>, nullptr, nullptr, 0};
  } else {
    return {scatter_row<Op, Sum, T, Index>, convert_row<Sum, T>, convert_row<T, Sum>, sizeof(Sum)};
  }
}

// Returns the method of scatter. Elements are moved as unsigned integers of their width, so that
// they keep their bits.
template <typename Index>
ScatterMethod replace_method(bp_dtype dtype) {
  return with_any(dtype, []<typename T>(T) {
    return method<Replace, hwy::UnsignedFromSize<sizeof(T)>, Index>();
  });
}

template <typename T, typename Index>
ScatterMethod add_floats(bool is_long) {
  return is_long ? method<Add, T, Index, double>() : method<Add, T, Index>();
}

// Returns the method of sums. Integers are added as unsigned numbers, which wrap.
template <typename Index>
ScatterMethod add_method(bp_dtype dtype, bool is_long) {
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

ScatterMethod replacement_of(bp_dtype dtype, bool is_i64) {
  return is_i64 ? replace_method<int64_t>(dtype) : replace_method<int32_t>(dtype);
}

ScatterMethod addition_of(bp_dtype dtype, bool is_i64, bool is_long) {
  return is_i64 ? add_method<int64_t>(dtype, is_long) : add_method<int32_t>(dtype, is_long);
}

RowFunction* counter_of(bool is_i64) { return is_i64 ? count_row<int64_t> : count_row<int32_t>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace bp::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bp::kernels {

HWY_EXPORT(replacement_of);
HWY_EXPORT(addition_of);
HWY_EXPORT(counter_of);

ScatterMethod find_replacement(bp_dtype dtype, bool is_i64) {
  return HWY_DYNAMIC_DISPATCH(replacement_of)(dtype, is_i64);
}

ScatterMethod find_addition(bp_dtype dtype, bool is_i64, bool is_long) {
  return HWY_DYNAMIC_DISPATCH(addition_of)(dtype, is_i64, is_long);
}

RowFunction* find_counter(bool is_i64) { return HWY_DYNAMIC_DISPATCH(counter_of)(is_i64); }

}  // namespace bp::kernels
#endif  // HWY_ONCE
