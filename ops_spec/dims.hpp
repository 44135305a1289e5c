// The generated sources call these functions for the spec's expressions over shapes.
//
// An extent or a list that does not exist (an index past the end, an overflow, a division by zero,
// a window that does not fit) is kNone. Whatever is computed from kNone is kNone too, so one check
// of the result is enough. No function here allocates.
// check of the result is enough. Nothing here allocates.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>

#include "backplane/tensor.h"

namespace bp::dims {

inline constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();  // The end of a slice x[1:].

// A list that lies elsewhere. `count` is kNone if there is no list.
struct View {
  const int64_t* data;
  int64_t count;

  [[nodiscard]] bool exists() const { return count != kNone; }
  const int64_t* begin() const { return data; }
  const int64_t* end() const { return data + (exists() ? count : 0); }
};

// A list of up to twice the highest rank, so that a part of it can still be cut out.
struct Dims {
  static constexpr int64_t kCapacity = int64_t{2} * BP_MAX_RANK;
  int64_t data[kCapacity];
  int64_t count = 0;

  Dims() = default;
  Dims(std::initializer_list<int64_t> list) {
    for (const int64_t value : list) append(value);
  }
  explicit Dims(View view) {
    if (!view.exists()) count = kNone;
    for (const int64_t value : view) append(value);
  }
  operator View() const { return {data, count}; }  // NOLINT: a View is what functions take.

  void append(int64_t value) {
    if (count == kCapacity || value == kNone) count = kNone;
    if (count != kNone) data[count++] = value;
  }
};

inline View shape(const bp_tensor& tensor) {
  return {tensor.shape, static_cast<int64_t>(tensor.ndim)};
}

inline View list(const int64_t* data, uint64_t count) {
  return {data, static_cast<int64_t>(count)};
}

// Lists are short, so a loop is faster than the call that the compiler makes of std::equal().
inline bool operator==(View a, View b) {
  if (a.count != b.count || !a.exists()) return false;
  for (int64_t i = 0; i < a.count; ++i) {
    if (a.data[i] != b.data[i]) return false;
  }
  return true;
}

// Copies up to BP_MAX_RANK numbers. The fence, which is no instruction, keeps the compiler from
// making a call or `rep movs` of the loop, either of which takes longer.
inline void copy(View from, int64_t* to) {
  for (int64_t i = 0; i < from.count; ++i) {
    to[i] = from.data[i];
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
}

inline int64_t add(int64_t a, int64_t b) {
  int64_t result = kNone;
  const bool fits = a != kNone && b != kNone && !__builtin_add_overflow(a, b, &result);
  return fits ? result : kNone;
}

inline int64_t sub(int64_t a, int64_t b) {
  int64_t result = kNone;
  const bool fits = a != kNone && b != kNone && !__builtin_sub_overflow(a, b, &result);
  return fits ? result : kNone;
}

inline int64_t mul(int64_t a, int64_t b) {
  int64_t result = kNone;
  const bool fits = a != kNone && b != kNone && !__builtin_mul_overflow(a, b, &result);
  return fits ? result : kNone;
}

// Rounds toward minus infinity, as // in the spec does. mod() has the sign of b.
inline int64_t floor_div(int64_t a, int64_t b) {
  if (a == kNone || b == kNone || b == 0) return kNone;
  return a / b - ((a % b != 0) && ((a < 0) != (b < 0)) ? 1 : 0);
}

inline int64_t mod(int64_t a, int64_t b) {
  if (b == -1) return a == kNone ? kNone : 0;
  return sub(a, mul(floor_div(a, b), b));
}

inline int64_t min(int64_t a, int64_t b) { return std::min(a, b); }
inline int64_t max(int64_t a, int64_t b) {
  return a == kNone || b == kNone ? kNone : std::max(a, b);
}

// Returns element i, counted from the end if i is negative.
inline int64_t at(View view, int64_t i) {
  if (!view.exists() || i == kNone) return kNone;
  if (i < 0) i += view.count;
  return i < 0 || i >= view.count ? kNone : view.data[i];
}

// Returns view[from:to]. Both count from the end if negative, and stop at the ends of the list.
inline View slice(View view, int64_t from, int64_t to) {
  if (!view.exists() || from == kNone || to == kNone) return {nullptr, kNone};
  const auto clip = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + view.count : i, 0, view.count);
  };
  return {view.data + clip(from), std::max<int64_t>(clip(to) - clip(from), 0)};
}

inline Dims concat(View a, View b) {
  Dims result(a);
  if (!b.exists()) result.count = kNone;
  for (const int64_t value : b) result.append(value);
  return result;
}

inline Dims repeat(View view, int64_t times) {
  Dims result;
  if (!view.exists() || times == kNone) result.count = kNone;
  for (int64_t i = 0; i < times && result.count != kNone; ++i) {
    for (const int64_t value : view) result.append(value);
  }
  return result;
}

inline int64_t numel(View view) {
  if (!view.exists()) return kNone;
  int64_t result = 1;
  for (const int64_t extent : view) {
    if (extent == 0) return 0;
    result = mul(result, extent);
  }
  return result;
}

// Returns the common shape of two shapes under broadcasting: they align at the last axis, and an
// extent of 1 gives way to the other.
inline Dims broadcast(View a, View b) {
  const int64_t count = std::max(a.count, b.count);
  Dims result;
  if (!a.exists() || !b.exists()) result.count = kNone;
  for (int64_t i = 0; i < count && result.count != kNone; ++i) {
    const int64_t x = i < count - a.count ? 1 : a.data[i - (count - a.count)];
    const int64_t y = i < count - b.count ? 1 : b.data[i - (count - b.count)];
    result.append(x == y || y == 1 ? x : x == 1 ? y : kNone);
  }
  return result;
}

// Returns `shape` after a reduction over `axes`, which become 1 if `keepdims` is set and vanish
// otherwise.
inline Dims reduced(View shape, View axes, int64_t keepdims) {
  Dims result;
  if (!shape.exists() || !axes.exists()) result.count = kNone;
  for (int64_t i = 0; i < shape.count; ++i) {
    const bool gone = std::find(axes.begin(), axes.end(), i) != axes.end();
    if (!gone) result.append(shape.data[i]);
    if (gone && keepdims != 0) result.append(1);
  }
  return result;
}

// Returns `counts` if `shape` consists of that many equal blocks along each axis. Without elements
// an axis may have no block.
inline Dims blocks(View shape, View counts) {
  Dims result(counts);
  if (!shape.exists() || shape.count != counts.count) result.count = kNone;
  for (int64_t i = 0; i < result.count; ++i) {
    const int64_t extent = shape.data[i], count = counts.data[i];
    if (count == 0 ? extent != 0 : extent % count != 0) result.count = kNone;
  }
  return result;
}

// Returns the extents that windows of `kernel` leave of `size`. `padding` has all lows, then all
// highs. If a window does not fit even once, there are no extents.
inline Dims window(View size, View kernel, View stride, View padding, View dilation) {
  Dims result;
  const int64_t n = size.count;
  if (!size.exists() || kernel.count != n || stride.count != n || dilation.count != n ||
      padding.count != 2 * n) {
    result.count = kNone;
    return result;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t padded = add(size.data[i], add(padding.data[i], padding.data[n + i]));
    const int64_t reach = add(mul(dilation.data[i], sub(kernel.data[i], 1)), 1);
    const bool fits = reach > 0 && padded >= reach && stride.data[i] > 0;
    result.append(fits ? add((padded - reach) / stride.data[i], 1) : kNone);
  }
  return result;
}

// Returns the extents that `count` windows of `kernel` cover without their `padding`, and `extra`
// more. If the padding is larger, there are no extents.
inline Dims covered(View count, View kernel, View stride, View padding, View dilation, View extra) {
  Dims result;
  const int64_t n = count.count;
  if (!count.exists() || kernel.count != n || stride.count != n || dilation.count != n ||
      extra.count != n || padding.count != 2 * n) {
    result.count = kNone;
    return result;
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t reach = add(mul(dilation.data[i], sub(kernel.data[i], 1)), 1);
    const int64_t whole = add(mul(sub(count.data[i], 1), stride.data[i]), reach);
    const int64_t extent =
        sub(add(whole, extra.data[i]), add(padding.data[i], padding.data[n + i]));
    result.append(count.data[i] > 0 && extent >= 0 ? extent : kNone);
  }
  return result;
}

// Returns the number of elements (row, column) of a matrix of `rows` by `columns` that lie in a
// band: row + begin <= column < row + end.
inline int64_t band(int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  if (rows < 0 || columns < 0 || begin == kNone || end == kNone) return kNone;
  // Returns the number of elements with column < row + bound.
  const auto below = [&](int64_t bound) {
    int64_t first = std::clamp(bound, -rows, columns),
            last = first + rows;  // Of row 0, and behind.
    const int64_t full = std::max<int64_t>(last - std::max(first, columns), 0);
    first = std::clamp<int64_t>(first, 0, columns);
    last = std::clamp<int64_t>(last, 0, columns);
    const int64_t pairs = mul(add(first, last - 1), last - first);
    return add(mul(full, columns), floor_div(pairs, 2));
  };
  return end <= begin ? 0 : sub(below(end), below(begin));
}

// Returns the shape of the first tensor of a list, or no extents if the list is empty.
inline View first_shape(const bp_tensor* const* list, uint64_t count) {
  return count == 0 ? View{nullptr, 0} : shape(*list[0]);
}

// Returns the shape of all tensors behind each other along `axis`: the shape of the first tensor,
// with the sum of all extents at `axis`.
inline Dims concatenated(std::span<const bp_tensor* const> list, int64_t axis) {
  Dims result;
  if (list.empty() || axis < 0 || axis >= list[0]->ndim) {
    result.count = kNone;
    return result;
  }
  result = Dims(shape(*list[0]));
  int64_t extent = 0;
  for (const bp_tensor* item : list) {
    Dims own(shape(*item));
    extent = add(extent, at(own, axis));
    if (axis < own.count) own.data[axis] = list[0]->shape[axis];
    if (!(View(own) == shape(*list[0]))) extent = kNone;
  }
  result.data[axis] = extent;
  if (extent == kNone) result.count = kNone;
  return result;
}

// Implements acc(x) of the spec: f32 for f16 and bf16, else the dtype itself.
inline bp_dtype accumulator(bp_dtype dtype) {
  return dtype == BP_F16 || dtype == BP_BF16 ? bp_dtype{BP_F32} : dtype;
}

// Implements sum(x) of the spec: i64 for bool and integers, else the dtype itself.
inline bp_dtype sum_dtype(bp_dtype dtype) {
  return dtype >= BP_BOOL && dtype <= BP_U64 ? bp_dtype{BP_I64} : dtype;
}

// Returns whether the dtype is a bool or an integer.
inline bool is_integer(bp_dtype dtype) {
  return (dtype >= BP_BOOL && dtype <= BP_U64) || dtype == BP_I2 || dtype == BP_U2;
}

// Returns whether the dtype is in the set `quantized` of the spec.
inline bool is_quantized(bp_dtype dtype) {
  return dtype == BP_I8 || dtype == BP_U8 || dtype == BP_I4 || dtype == BP_U4 ||
         dtype == BP_F8E4M3FN || dtype == BP_F8E5M2 || dtype == BP_F4E2M1 ||
         (dtype >= BP_F6E2M3 && dtype <= BP_U2);
}

}  // namespace bp::dims
