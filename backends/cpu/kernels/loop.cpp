#include "backends/cpu/kernels/loop.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace bp::kernels {
namespace {

struct Axis {
  int64_t extent;
  std::array<int64_t, kMaxOperands> strides;  // In bytes.
};

// Whether `outer` continues where `inner` ends, in every operand.
bool can_merge(const Axis& outer, const Axis& inner) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    if (outer.strides[k] != inner.strides[k] * inner.extent) return false;
  }
  return true;
}

// The outer axis of the two has the larger strides: in the result, else in the first operand where
// they differ.
bool is_outer(const Axis& a, const Axis& b) {
  for (size_t k = 0; k < kMaxOperands; ++k) {
    const int64_t left = std::abs(a.strides[k]), right = std::abs(b.strides[k]);
    if (left != right) return left > right;
  }
  return false;
}

template <typename T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

template <typename From>
uint64_t convert_value(From value, bp_dtype dtype) {
  switch (dtype) {
    case BP_BOOL:
      return value != From{0} ? 1 : 0;
    case BP_I8:
    case BP_U8:
      return bits_of(static_cast<uint8_t>(static_cast<int64_t>(value)));
    case BP_I16:
    case BP_U16:
      return bits_of(static_cast<uint16_t>(static_cast<int64_t>(value)));
    case BP_I32:
    case BP_U32:
      return bits_of(static_cast<uint32_t>(static_cast<int64_t>(value)));
    case BP_I64:
      return bits_of(static_cast<int64_t>(value));
    case BP_U64:
      return bits_of(static_cast<uint64_t>(value));
    case BP_F32:
      return bits_of(static_cast<float>(value));
    default:
      return bits_of(static_cast<double>(value));
  }
}

}  // namespace

Loop make_loop(std::initializer_list<const bp_tensor*> tensors) {
  Loop loop;
  loop.operand_count = static_cast<int>(tensors.size());
  const bp_tensor& shaped = **tensors.begin();
  std::array<Axis, BP_MAX_RANK> axes;
  int rank = 0;
  for (uint32_t i = 0; i < shaped.ndim; ++i) {
    loop.count *= shaped.shape[i];
    if (shaped.shape[i] == 1) continue;
    Axis& axis = axes[static_cast<size_t>(rank++)];
    axis = {shaped.shape[i], {}};
    size_t k = 0;
    for (const bp_tensor* t : tensors) {
      axis.strides[k++] = t == nullptr ? 0 : t->strides[i] * dtype_size_bytes(t->dtype);
    }
  }
  size_t k = 0;
  for (const bp_tensor* t : tensors) loop.data[k++] = t == nullptr ? nullptr : data<std::byte>(*t);
  // An insertion sort keeps the order of equals and is fastest for the usual few axes.
  for (int i = 1; i < rank; ++i) {
    for (int j = i; j > 0; --j) {
      Axis &outer = axes[static_cast<size_t>(j - 1)], &inner = axes[static_cast<size_t>(j)];
      if (!is_outer(inner, outer)) break;
      std::swap(outer, inner);
    }
  }
  for (int i = rank; i-- > 0;) {
    const Axis& axis = axes[static_cast<size_t>(i)];
    // Built innermost first, reversed below.
    Axis* const last =
        loop.rank == 0 ? nullptr : &axes[static_cast<size_t>(BP_MAX_RANK - loop.rank)];
    if (last != nullptr && can_merge(axis, *last)) {
      last->extent *= axis.extent;
    } else {
      axes[static_cast<size_t>(BP_MAX_RANK - ++loop.rank)] = Axis(axis);
    }
  }
  for (int i = 0; i < loop.rank; ++i) {
    const Axis& axis = axes[static_cast<size_t>(BP_MAX_RANK - loop.rank + i)];
    loop.extents[static_cast<size_t>(i)] = axis.extent;
    for (size_t o = 0; o < kMaxOperands; ++o) loop.strides[o][i] = axis.strides[o];
  }
  return loop;
}

namespace {

// The elements [begin, end) of the loop, in its own order.
void run_part(const Loop& loop, RowFunction* row, int64_t begin, int64_t end) {
  uint64_t scalar = loop.scalar;
  std::array<std::byte*, kMaxOperands> at{};
  std::array<int64_t, kMaxOperands> row_strides{};
  for (int k = 0; k < loop.operand_count; ++k) {
    const auto o = static_cast<size_t>(k);
    at[o] = loop.data[o] == nullptr ? reinterpret_cast<std::byte*>(&scalar) : loop.data[o];
    row_strides[o] = loop.rank == 0 ? 0 : loop.strides[k][loop.rank - 1];
  }
  if (loop.rank <= 1) {
    for (size_t o = 0; o < kMaxOperands; ++o) at[o] += begin * row_strides[o];
    row(at.data(), row_strides.data(), end - begin);
    return;
  }
  const int64_t row_length = loop.extents[static_cast<size_t>(loop.rank - 1)];
  for (int64_t done = begin; done < end;) {
    const int64_t column = done % row_length;
    const int64_t n = std::min(row_length - column, end - done);
    std::array<std::byte*, kMaxOperands> first = at;
    for (size_t o = 0; o < kMaxOperands; ++o) first[o] += column * row_strides[o];
    int64_t rest = done / row_length;
    for (int axis = loop.rank - 1; axis-- > 0;) {
      const int64_t extent = loop.extents[static_cast<size_t>(axis)];
      const int64_t index = rest % extent;
      rest /= extent;
      for (int k = 0; k < loop.operand_count; ++k) {
        first[static_cast<size_t>(k)] += index * loop.strides[k][axis];
      }
    }
    row(first.data(), row_strides.data(), n);
    done += n;
  }
}

}  // namespace

void run_loop(const Loop& loop, RowFunction* row, int threads, int64_t grain) {
  if (loop.count == 0) return;
  parallel_for(threads, loop.count, grain,
               [&](int64_t begin, int64_t end) { run_part(loop, row, begin, end); });
}

uint64_t convert_scalar(const bp_scalar& scalar, bp_dtype dtype) {
  switch (scalar.dtype) {
    case BP_F64:
      return convert_value(std::bit_cast<double>(scalar.bits), dtype);
    case BP_U64:
      return convert_value(scalar.bits, dtype);
    case BP_BOOL:
    case BP_I64:
      return convert_value(static_cast<int64_t>(scalar.bits), dtype);
    default:
      throw StatusError(BP_INVALID_ARGUMENT, "a scalar has dtype " + std::to_string(scalar.dtype) +
                                                 "; bool, i64, u64 and f64 are allowed");
  }
}

}  // namespace bp::kernels
