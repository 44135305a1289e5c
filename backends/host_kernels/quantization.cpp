// quantize and dequantize, for tensors of every layout. A part of the elements is walked row by row
// along the last axis, and a row block by block, so that a scale is read once for its block. Where
// blocks are short, as with a scale for each column, the scales of a row are read at once.
#include <algorithm>
#include <utility>
#include <vector>

#include "backends/host_kernels/block_tensor.hpp"
#include "backends/host_kernels/kernels.hpp"
#include "backends/host_kernels/quantized_line.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {
namespace {

// What both ops work on: a tensor of floats, one of codes, and what belongs to the blocks.
struct Quantization {
  View floats, codes;
  bp_dtype float_dtype = 0, code_dtype = 0;
  BlockTensor scale, zero;  // zero has no address if there is none.

  int64_t count() const { return element_count(floats); }
};

Quantization make_quantization(const bp_tensor& floats, const bp_tensor& codes,
                               const bp_tensor& scale, const bp_tensor* zero,
                               const bp_tensor* tensor_scale) {
  Quantization q{view_of(floats),
                 view_of(codes),
                 floats.dtype,
                 codes.dtype,
                 BlockTensor(floats, scale, tensor_scale),
                 {}};
  if (zero != nullptr) q.zero = BlockTensor(floats, *zero);
  return q;
}

// A block with fewer elements of a row than this is short: its vectors would be mostly empty.
constexpr int64_t kShortBlock = 16;

// The scales and the zeros of the elements of a part of a row. Rows that follow each other often
// have the same.
class RowScales {
 public:
  RowScales(const CodeValues& scale_values, const CodeValues& zero_values)
      : scale_values_(scale_values), zero_values_(zero_values) {}

  // Gives a line that begins at `index` its scales and zeros. It sets the last index to 0.
  void set(const Quantization& q, int64_t* index, QuantizedLine& line) {
    const int64_t begin = std::exchange(index[q.floats.ndim - 1], 0);
    const int64_t scale_at = q.scale.offset_of(index);
    const int64_t zero_at = q.zero.view.address != nullptr ? q.zero.offset_of(index) : 0;
    const bool has_all = begin >= begin_ && begin + line.count <= end_ && scale_at == scale_at_ &&
                         zero_at == zero_at_;
    if (!has_all) {
      scale_at_ = scale_at;
      zero_at_ = zero_at;
      begin_ = begin;
      end_ = begin + line.count;
      read(q);
    }
    line.scales = scales_.data() + (begin - begin_);
    line.zeros = zeros_.data() + (begin - begin_);
  }

 private:
  void read(const Quantization& q) {
    const uint32_t last = q.floats.ndim - 1;
    const int64_t block = q.scale.blocks[last];
    scales_.assign(static_cast<size_t>(end_ - begin_ + kLineSlack), 1.0F);
    zeros_.assign(static_cast<size_t>(end_ - begin_ + kLineSlack), 0.0F);
    for (int64_t i = begin_; i < end_;) {
      const int64_t at = i / block, end = std::min((at + 1) * block, end_);
      const float scale = q.scale.at(scale_at_ + at * q.scale.view.strides[last], scale_values_);
      std::fill(scales_.begin() + (i - begin_), scales_.begin() + (end - begin_), scale);
      if (q.zero.view.address != nullptr) {
        const float zero = q.zero.at(zero_at_ + at * q.zero.view.strides[last], zero_values_);
        std::fill(zeros_.begin() + (i - begin_), zeros_.begin() + (end - begin_), zero);
      }
      i = end;
    }
  }

  const CodeValues &scale_values_, &zero_values_;
  std::vector<float> scales_, zeros_;
  int64_t begin_ = 0, end_ = 0;  // Of the elements that are here.
  int64_t scale_at_ = -1, zero_at_ = -1;
};

// Calls work(QuantizedLine) for the elements [begin, end) in row-major order.
template <typename Work>
void for_each_line(const Quantization& q, int64_t begin, int64_t end, const Work& work) {
  const uint32_t rank = q.floats.ndim;
  const int64_t bits = code_format(q.code_dtype).bits;
  const CodeValues scales(q.scale.dtype), zeros(q.code_dtype);
  const int64_t extent = rank == 0 ? 1 : q.floats.shape[rank - 1];
  const int64_t float_stride = rank == 0 ? 0 : q.floats.strides[rank - 1];
  const int64_t code_stride = rank == 0 ? 0 : q.codes.strides[rank - 1];
  const int64_t block = rank == 0 ? 1 : q.scale.blocks[rank - 1];
  const bool is_one_block = rank == 0 || q.scale.view.shape[rank - 1] == 1;
  const bool is_short = !is_one_block && block < kShortBlock;
  RowScales row(scales, zeros);
  for (int64_t element = begin; element < end;) {
    int64_t index[BP_MAX_RANK], floats = 0, codes = 0, rest = element;
    for (uint32_t axis = rank; axis-- > 0; rest /= q.floats.shape[axis]) {
      index[axis] = rest % q.floats.shape[axis];
      floats += index[axis] * q.floats.strides[axis];
      codes += index[axis] * q.codes.strides[axis];
    }
    const int64_t last = rank == 0 ? 0 : index[rank - 1];
    const int64_t to_end = is_one_block || is_short ? extent - last : block - last % block;
    const int64_t count = std::min({end - element, extent - last, to_end});
    const bool has_zero = q.zero.view.address != nullptr;
    QuantizedLine line{q.floats.address + floats * dtype_size_bytes(q.float_dtype),
                       q.float_dtype,
                       float_stride,
                       q.codes.address,
                       codes * bits,
                       code_stride * bits,
                       count,
                       1,
                       0};
    if (is_short) {
      row.set(q, index, line);
    } else {
      line.scale = q.scale.at(q.scale.offset_of(index), scales);
      line.zero = has_zero ? q.zero.at(q.zero.offset_of(index), zeros) : 0.0F;
    }
    work(line);
    element += count;
  }
}

void quantize_part(const Quantization& q, int64_t begin, int64_t end) {
  const CodeFormat format = code_format(q.code_dtype);
  for_each_line(q, begin, end, [&](const QuantizedLine& line) { quantize_line(line, format); });
}

void dequantize_part(const Quantization& q, int64_t begin, int64_t end) {
  const CodeFormat format = code_format(q.code_dtype);
  for_each_line(q, begin, end, [&](const QuantizedLine& line) { dequantize_line(line, format); });
}

using Part = void(const Quantization& q, int64_t begin, int64_t end);

// A part of 8 times as many packed elements as bytes are whole ends at a whole byte.
constexpr int64_t kGrainElements = 8192;

bp_status submit_parts(const Quantization& q, Part* part, bool may_split, Launch& launch) {
  const int threads = may_split ? launch.thread_count() : 1;
  return launch.submit([q, part, threads] {
    parallel_for(threads, q.count(), kGrainElements,
                 [&](int64_t begin, int64_t end) { part(q, begin, end); });
  });
}

bp_status quantize_launch(const bp_quantize_args& args, Launch& launch) {
  // Two threads must not write the same byte.
  const bool may_split = code_format(args.y->dtype).bits == 8 || is_contiguous(*args.y);
  return submit_parts(
      make_quantization(*args.x, *args.y, *args.scale, args.zero, args.tensor_scale), quantize_part,
      may_split, launch);
}

bp_status dequantize_launch(const bp_dequantize_args& args, Launch& launch) {
  return submit_parts(
      make_quantization(*args.y, *args.x, *args.scale, args.zero, args.tensor_scale),
      dequantize_part, true, launch);
}

constexpr bp_dtype kResults[] = {BP_F32, BP_F16, BP_BF16};
constexpr bp_dtype kScales[] = {BP_F32, BP_F16, BP_BF16, BP_F8E8M0FNU, BP_F8E4M3FN};
constexpr bp_dtype kCodes[] = {BP_I8,       BP_U8,     BP_I4,     BP_U4,     BP_I2,    BP_U2,
                               BP_F8E4M3FN, BP_F8E5M2, BP_F6E2M3, BP_F6E3M2, BP_F4E2M1};

// Returns the rows of dtypes that claim each of `first` with each scale and each of `last`.
template <size_t kFirst, size_t kLast>
constexpr auto rows_of(const bp_dtype (&first)[kFirst], const bp_dtype (&last)[kLast]) {
  std::array<bp_dtype, 3 * std::size(kScales) * kFirst * kLast> rows{};
  size_t at = 0;
  for (const bp_dtype a : first) {
    for (const bp_dtype scale : kScales) {
      for (const bp_dtype b : last) {
        for (const bp_dtype dtype : {a, scale, b}) rows[at++] = dtype;
      }
    }
  }
  return rows;
}
constexpr auto kToCodes = rows_of(kResults, kCodes);
constexpr auto kFromCodes = rows_of(kCodes, kResults);

}  // namespace

extern constinit const bp_kernel kQuantize = make_kernel<bp_quantize_args, quantize_launch>(
    kernel_row("quantize", BP_OP_QUANTIZE, {kToCodes, 3}));
extern constinit const bp_kernel kDequantize = make_kernel<bp_dequantize_args, dequantize_launch>(
    kernel_row("dequantize", BP_OP_DEQUANTIZE, {kFromCodes, 3}));

}  // namespace bp::kernels
