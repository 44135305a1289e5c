#include "backends/host_kernels/loop_short_rows.hpp"

#include <algorithm>

namespace bp::kernels {
namespace {

// A call of a row function costs as much as about this many elements.
constexpr int64_t kShortRow = 32;

// The elements of a long row, which fill one block of a row function.
constexpr int64_t kLongRow = 512;

// A copy of an operand without gaps.
struct alignas(64) PackedOperand {
  std::byte bytes[kLongRow * 8];
};

// Rows of an operand; strides are in bytes.
struct OperandRows {
  const std::byte* from;
  int64_t row_stride, stride, rows, length;
};

template <typename T>
void pack(const OperandRows& o, std::byte* packed) {
  T* to = reinterpret_cast<T*>(packed);
  for (int64_t r = 0; r < o.rows; ++r) {
    const std::byte* from = o.from + r * o.row_stride;
    for (int64_t i = 0; i < o.length; ++i, from += o.stride) {
      *to++ = *reinterpret_cast<const T*>(from);
    }
  }
}

void pack(const OperandRows& o, int64_t size_bytes, std::byte* to) {
  switch (size_bytes) {
    case 1:
      return pack<uint8_t>(o, to);
    case 2:
      return pack<uint16_t>(o, to);
    case 4:
      return pack<uint32_t>(o, to);
    default:
      return pack<uint64_t>(o, to);
  }
}

// Returns whether the rows of operand k lie behind each other.
bool has_joined_rows(const Loop& loop, int k) {
  const int inner = loop.rank - 1;
  return loop.strides[k][inner - 1] ==
         loop.strides[k][inner] * loop.extents[static_cast<size_t>(inner)];
}

// Walks the long rows of a loop, on one thread.
class LongRows {
 public:
  explicit LongRows(const Loop& loop)
      : loop_(loop),
        inner_(loop.rank - 1),
        length_(loop.extents[static_cast<size_t>(inner_)]),
        row_count_(loop.extents[static_cast<size_t>(inner_ - 1)]),
        rows_(kLongRow / length_),
        per_plane_((row_count_ + rows_ - 1) / rows_),
        scalar_(loop.scalar) {}

  int64_t count() const { return loop_.count / (length_ * row_count_) * per_plane_; }
  int64_t elements() const { return rows_ * length_; }

  // Calls `row` for number `index`.
  void run(int64_t index, RowFunction* row, const RowOptions& options) {
    const int64_t first = index % per_plane_ * rows_;
    const int64_t n = std::min(rows_, row_count_ - first);
    std::array<std::byte*, kMaxOperands> at{};
    std::array<int64_t, kMaxOperands> strides{};
    for (int k = 0; k < loop_.operand_count; ++k) {
      const auto operand = static_cast<size_t>(k);
      std::byte* const from = address(k, index / per_plane_, first);
      const bool is_joined = has_joined_rows(loop_, k);
      at[operand] = is_joined ? from : packed_rows(k, from, n);
      strides[operand] = is_joined ? loop_.strides[k][inner_] : loop_.size_bytes[operand];
    }
    row(at.data(), strides.data(), n * length_, &options);
  }

 private:
  // Returns where a row of operand k begins.
  std::byte* address(int k, int64_t plane, int64_t row) {
    std::byte* at = loop_.data[static_cast<size_t>(k)];
    if (at == nullptr) return reinterpret_cast<std::byte*>(&scalar_);
    at += row * loop_.strides[k][inner_ - 1];
    for (int axis = inner_ - 1; axis-- > 0;) {
      const int64_t extent = loop_.extents[static_cast<size_t>(axis)];
      at += plane % extent * loop_.strides[k][axis];
      plane /= extent;
    }
    return at;
  }

  // Copies n rows of operand k, unless the copy already has them: if all rows of a plane are the
  // same one, they are copied once.
  std::byte* packed_rows(int k, const std::byte* from, int64_t n) {
    const auto operand = static_cast<size_t>(k - 1);
    std::byte* const to = packed_[operand].bytes;
    const int64_t row_stride = loop_.strides[k][inner_ - 1];
    if (row_stride == 0 && packed_from_[operand] == from && n <= packed_count_[operand]) return to;
    pack({from, row_stride, loop_.strides[k][inner_], n, length_},
         loop_.size_bytes[static_cast<size_t>(k)], to);
    packed_from_[operand] = from;
    packed_count_[operand] = n;
    return to;
  }

  const Loop& loop_;
  const int inner_;
  const int64_t length_, row_count_;
  const int64_t rows_, per_plane_;  // Rows of a long row, and long rows of a plane.
  uint64_t scalar_;
  std::array<PackedOperand, kMaxOperands - 1> packed_;
  std::array<const std::byte*, kMaxOperands - 1> packed_from_{};
  std::array<int64_t, kMaxOperands - 1> packed_count_{};
};

}  // namespace

bool has_short_rows(const Loop& loop) {
  if (loop.rank < 2 || loop.is_tiled || loop.count == 0) return false;
  return loop.extents[static_cast<size_t>(loop.rank - 1)] <= kShortRow && has_joined_rows(loop, 0);
}

void run_short_rows(const Loop& loop, RowFunction* row, int threads, int64_t grain,
                    const RowOptions& options) {
  const LongRows shape(loop);
  parallel_for(threads, shape.count(), std::max<int64_t>(1, grain / shape.elements()),
               [&](int64_t begin, int64_t end) {
                 LongRows rows(loop);
                 for (int64_t i = begin; i < end; ++i) rows.run(i, row, options);
               });
}

}  // namespace bp::kernels
