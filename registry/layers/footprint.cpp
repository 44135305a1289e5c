#include "registry/layers/footprint.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "backplane/host.h"
#include "registry/tensors/strides.hpp"

namespace bp::layers {
namespace {

using tensors::has_elements;
using tensors::Wide;

// With more rows, overlap of tensors with gaps is not looked for.
constexpr uint64_t kMaxRows = 4096;

struct Span {
  Wide first_bit, end_bit;
};

// Returns the span of a tensor with elements.
Span span_of(const bp_tensor& t) {
  const Wide bits = bp_dtype_bits(t.dtype);
  const tensors::Reach reach = tensors::reach_of(t);
  const Wide origin = Wide{t.byte_offset} * 8;
  return {origin + reach.lowest * bits, origin + (reach.highest + 1) * bits};
}

using Row = std::pair<uint64_t, uint64_t>;

// Writes the rows in order. Returns false if there are too many.
bool rows_of(const Footprint& f, std::vector<Row>& out) {
  uint64_t count = 1;
  for (uint32_t i = 0; i < f.axis_count; ++i) {
    count *= f.extents[i];
    if (count > kMaxRows) return false;
  }
  for (uint64_t n = 0; n < count; ++n) {
    uint64_t begin = f.begin, rest = n;
    for (uint32_t i = 0; i < f.axis_count; ++i) {
      begin += rest % f.extents[i] * f.strides_bytes[i];
      rest /= f.extents[i];
    }
    out.emplace_back(begin, begin + f.row_bytes);
  }
  std::ranges::sort(out);
  return true;
}

}  // namespace

Footprint footprint_of(const bp_buffer_ref& range) {
  return {.buffer = range.buffer,
          .begin = range.byte_offset,
          .end = range.byte_offset + range.size_bytes,
          .row_bytes = range.size_bytes};
}

Footprint footprint_of(const bp_tensor& tensor) {
  Footprint f{.buffer = tensor.buffer};
  if (tensor.buffer == nullptr) return f;
  if (tensor.layout != nullptr) {
    f.begin = tensor.byte_offset;
    f.row_bytes = tensor.layout->physical_size_bytes;
    f.end = f.begin + f.row_bytes;
    return f;
  }
  if (!has_elements(tensor)) return f;
  const Span span = span_of(tensor);
  f.begin = static_cast<uint64_t>(span.first_bit / 8);
  f.end = static_cast<uint64_t>((span.end_bit + 7) / 8);
  f.row_bytes = f.end - f.begin;
  const uint64_t item = bp_dtype_bits(tensor.dtype) / 8;
  if (item == 0) return f;                          // Elements that share bytes count as one row.
  std::vector<std::pair<uint64_t, uint64_t>> axes;  // Stride in bytes, extent.
  for (uint32_t i = 0; i < tensor.ndim; ++i) {
    // An axis of one element may have any stride, of which some have no absolute value.
    if (tensor.shape[i] <= 1 || tensor.strides[i] == 0) continue;
    const auto stride = static_cast<uint64_t>(std::abs(tensor.strides[i])) * item;
    axes.emplace_back(stride, static_cast<uint64_t>(tensor.shape[i]));
  }
  std::ranges::sort(axes);
  f.row_bytes = item;
  for (const auto& [stride, extent] : axes) {
    if (f.axis_count == 0 && stride == f.row_bytes) {
      f.row_bytes *= extent;
      continue;
    }
    f.strides_bytes[f.axis_count] = stride;
    f.extents[f.axis_count++] = extent;
  }
  return f;
}

bool overlap(const Footprint& a, const Footprint& b) {
  if (a.buffer != b.buffer || a.is_empty() || b.is_empty()) return false;
  if (a.end <= b.begin || b.end <= a.begin) return false;
  if (a.axis_count == 0 && b.axis_count == 0) return true;
  std::vector<Row> of_a, of_b;
  if (!rows_of(a, of_a) || !rows_of(b, of_b)) return false;
  for (size_t i = 0, j = 0; i < of_a.size() && j < of_b.size();) {
    if (of_a[i].second <= of_b[j].first) {
      ++i;
    } else if (of_b[j].second <= of_a[i].first) {
      ++j;
    } else {
      return true;
    }
  }
  return false;
}

std::string tensor_defect(const bp_tensor& t, uint64_t buffer_size_bytes) {
  if (t.ndim > BP_MAX_RANK) return "[TENSOR-1] its rank is " + std::to_string(t.ndim);
  if (t.ndim != 0 && t.shape == nullptr) return "[ERROR-3] its shape is NULL";
  if (t.ndim != 0 && t.strides == nullptr && t.layout == nullptr) {
    return "[ERROR-3] its strides are NULL";
  }
  for (uint32_t i = 0; i < t.ndim; ++i) {
    if (t.shape[i] < 0) return "[TENSOR-1] an extent is " + std::to_string(t.shape[i]);
  }
  if (!has_elements(t)) return "";
  if (t.buffer == nullptr) return "[TENSOR-4] it has elements and no buffer";
  const std::string offset = "[TENSOR-1] its byte_offset is " + std::to_string(t.byte_offset);
  if (t.layout != nullptr) {
    // Its elements have no addresses: it begins where its layout says.
    const uint64_t alignment = t.layout->alignment_bytes;
    if (alignment <= 1 || t.byte_offset % alignment == 0) return "";
    return offset + ", no multiple of the " + std::to_string(alignment) + " bytes of its layout";
  }
  const uint64_t item = bp_dtype_bits(t.dtype) / 8;
  if (item > 1 && t.byte_offset % item != 0) {
    return offset + ", no multiple of the " + std::to_string(item) + " bytes of an element";
  }
  const Span span = span_of(t);
  if (span.first_bit < 0) return "[TENSOR-5] it begins before its buffer";
  if (span.end_bit > Wide{buffer_size_bytes} * 8) {
    const Wide end = (span.end_bit + 7) / 8;
    const bool fits = end <= Wide{UINT64_MAX};
    return "[TENSOR-5] it ends at byte " +
           (fits ? std::to_string(static_cast<uint64_t>(end)) : std::string("2^64 and more")) +
           " of a buffer of " + std::to_string(buffer_size_bytes);
  }
  return "";
}

}  // namespace bp::layers
