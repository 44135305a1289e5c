#version 460
#extension GL_GOOGLE_include_directive : require
// max_pool, avg_pool, their adaptive forms and the gradients of means, over up to three spatial axes.
// There is one invocation for each element of the result.
#include "prelude.glsl"
#include "element.glsl"
#include "grid.glsl"
#define SUMMED float
#include "sum.glsl"

layout(constant_id = 1) const uint kOp = 0;
layout(constant_id = 2) const uint kType = 14;
layout(constant_id = 3) const uint kHasIndices = 0;
layout(constant_id = 4) const uint kCountsPadding = 0;
layout(constant_id = 5) const uint kIndexType = 7;

const uint kMax = 0u, kAverage = 1u, kAverageBackward = 2u, kAdaptive = 3u, kAdaptiveBackward = 4u,
           kAdaptiveMax = 5u;

// Axes are n, c and three spatial ones; strides are in bytes. x is the tensor in which a window
// lies. The gradient computes grad_x, in the place of x, from grad_y, in the place of y.
BP_RECORD {
  uint64_t x, y, indices;
  uint64_t count;  // The elements of the result.
  uint extents_x[5], extents_y[5];
  int64_t strides_x[5], strides_y[5], strides_indices[5];
  uint window[3], stride[3], padding[3], dilation[3];
} BP_RECORD_NAME;

// Chooses an element of x if it is larger than the best one so far. NaN is larger than every number.
void offer(uint n, uint c, ivec3 i, inout float best, inout int64_t chosen) {
  const float value = load_f32(kType, at(record.x, record.strides_x, n, c, i));
  const bool is_first_nan = is_nan(value) && !is_nan(best);
  const bool is_larger = !is_nan(best) && is_below(best, value);
  if (chosen >= 0l && !is_larger && !is_first_nan) return;
  best = value;
  chosen = (int64_t(i.x) * int64_t(record.extents_x[3]) + int64_t(i.y)) *
               int64_t(record.extents_x[4]) + int64_t(i.z);
}

void store_chosen(uint n, uint c, ivec3 place, float best, int64_t chosen) {
  store_f32(kType, at(record.y, record.strides_y, n, c, place), best);
  if (kHasIndices != 0u) {
    store_i64(kIndexType, at(record.indices, record.strides_indices, n, c, place), chosen);
  }
}

void run_max(uint number) {
  uint n, c;
  ivec3 place;
  locate(number, record.extents_y, n, c, place);
  float best = -infinity();
  int64_t chosen = -1l;
  const uint taps = record.window[0] * record.window[1] * record.window[2];
  for (uint tap = 0u; tap < taps; ++tap) {
    const uvec3 k = uvec3(tap / (record.window[1] * record.window[2]),
                          tap / record.window[2] % record.window[1], tap % record.window[2]);
    ivec3 i;
    bool is_inside = true;
    [[unroll]] for (uint d = 0u; d < 3u; ++d) {
      i[d] = place[d] * int(record.stride[d]) - int(record.padding[d]) +
             int(k[d] * record.dilation[d]);
      is_inside = is_inside && i[d] >= 0 && i[d] < int(record.extents_x[d + 2u]);
    }
    if (!is_inside) continue;
    offer(n, c, i, best, chosen);
  }
  store_chosen(n, c, place, best, chosen);
}

// Returns the number of elements of x in the window of a result. With kCountsPadding, padding
// counts too.
float divisor(ivec3 place) {
  float count = 1.0;
  [[unroll]] for (uint d = 0u; d < 3u; ++d) {
    const int begin = place[d] * int(record.stride[d]) - int(record.padding[d]);
    const int end = begin + int(record.window[d]), extent = int(record.extents_x[d + 2u]);
    const int inside = min(end, extent) - max(begin, 0);
    count *= float(kCountsPadding != 0u ? end - begin : max(inside, 0));
  }
  return count;
}

// Returns where bin i begins of the `bins` bins of an axis, and where it ends.
int bin_begin(int i, uint extent, uint bins) {
  return int(uint64_t(uint(i)) * uint64_t(extent) / uint64_t(bins));
}
int bin_end(int i, uint extent, uint bins) {
  const uint64_t last = uint64_t(uint(i + 1)) * uint64_t(extent) + uint64_t(bins) - 1ul;
  return int(last / uint64_t(bins));
}

// Returns the number of elements of x in a bin of y.
float bin_size(ivec3 place) {
  float size = 1.0;
  [[unroll]] for (uint d = 0u; d < 3u; ++d) {
    const uint extent = record.extents_x[d + 2u], bins = record.extents_y[d + 2u];
    size *= float(bin_end(place[d], extent, bins) - bin_begin(place[d], extent, bins));
  }
  return size;
}

void run_adaptive_max(uint number) {
  uint n, c;
  ivec3 place;
  locate(number, record.extents_y, n, c, place);
  ivec3 begin, end;
  [[unroll]] for (uint d = 0u; d < 3u; ++d) {
    begin[d] = bin_begin(place[d], record.extents_x[d + 2u], record.extents_y[d + 2u]);
    end[d] = bin_end(place[d], record.extents_x[d + 2u], record.extents_y[d + 2u]);
  }
  float best = -infinity();
  int64_t chosen = -1l;
  for (int i = begin.x; i < end.x; ++i) {
    for (int j = begin.y; j < end.y; ++j) {
      for (int k = begin.z; k < end.z; ++k) offer(n, c, ivec3(i, j, k), best, chosen);
    }
  }
  store_chosen(n, c, place, best, chosen);
}

// Adds the elements of x between two corners, the second of which is outside.
Sum sum_between(uint n, uint c, ivec3 begin, ivec3 end) {
  Sum sum = no_sum();
  for (int i = begin.x; i < end.x; ++i) {
    for (int j = begin.y; j < end.y; ++j) {
      for (int k = begin.z; k < end.z; ++k) {
        take(sum, load_f32(kType, at(record.x, record.strides_x, n, c, ivec3(i, j, k))));
      }
    }
  }
  return sum;
}

void run_average(uint number) {
  uint n, c;
  ivec3 place;
  locate(number, record.extents_y, n, c, place);
  ivec3 begin, end;
  [[unroll]] for (uint d = 0u; d < 3u; ++d) {
    const uint extent = record.extents_x[d + 2u];
    if (kOp == kAdaptive) {
      begin[d] = bin_begin(place[d], extent, record.extents_y[d + 2u]);
      end[d] = bin_end(place[d], extent, record.extents_y[d + 2u]);
    } else {
      begin[d] = place[d] * int(record.stride[d]) - int(record.padding[d]);
      end[d] = min(begin[d] + int(record.window[d]), int(extent));
      begin[d] = max(begin[d], 0);
    }
  }
  const Sum sum = sum_between(n, c, begin, end);
  const float count = kOp == kAdaptive ? bin_size(place) : divisor(place);
  const float result = count == 0.0 ? 0.0 : sum_of(sum) / count;
  store_f32(kType, at(record.y, record.strides_y, n, c, place), result);
}

// Computes an element of the gradient. The windows that contain it are those of the outputs from
// `first` to `last`. The bins that contain an element are the bin of the element if the axes are
// exchanged.
void run_average_backward(uint number) {
  uint n, c;
  ivec3 place;
  locate(number, record.extents_x, n, c, place);
  ivec3 first, last;
  [[unroll]] for (uint d = 0u; d < 3u; ++d) {
    if (kOp == kAdaptiveBackward) {
      first[d] = bin_begin(place[d], record.extents_y[d + 2u], record.extents_x[d + 2u]);
      last[d] = bin_end(place[d], record.extents_y[d + 2u], record.extents_x[d + 2u]) - 1;
      continue;
    }
    const int shifted = place[d] + int(record.padding[d]), stride = int(record.stride[d]);
    const int behind = shifted - int(record.window[d]) + 1;
    first[d] = behind <= 0 ? 0 : (behind + stride - 1) / stride;
    last[d] = min(shifted / stride, int(record.extents_y[d + 2u]) - 1);
  }
  Sum sum = no_sum();
  for (int i = first.x; i <= last.x; ++i) {
    for (int j = first.y; j <= last.y; ++j) {
      for (int k = first.z; k <= last.z; ++k) {
        const ivec3 from = ivec3(i, j, k);
        const float count = kOp == kAdaptiveBackward ? bin_size(from) : divisor(from);
        take(sum, load_f32(kType, at(record.y, record.strides_y, n, c, from)) / count);
      }
    }
  }
  store_f32(kType, at(record.x, record.strides_x, n, c, place), sum_of(sum));
}

void main() {
  const uint number = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(number) >= record.count) return;
  if (kOp == kMax) {
    run_max(number);
  } else if (kOp == kAdaptiveMax) {
    run_adaptive_max(number);
  } else if (kOp == kAverage || kOp == kAdaptive) {
    run_average(number);
  } else {
    run_average_backward(number);
  }
}
