#version 460
#extension GL_GOOGLE_include_directive : require
// The steps before and after the matrix product of a convolution:
//
//   unfold   columns (c, taps; n, places of y) from x (n, c, spatial): zeros in the padding
//   fold     grad_x (n, c, spatial) from the gradients of columns: each element adds up the taps
//            that saw it, in their order
//
// There is one invocation for each element of the result.
#include "prelude.glsl"
#include "element.glsl"
#define SUMMED float
#include "sum.glsl"

layout(constant_id = 1) const uint kFolds = 0;
layout(constant_id = 2) const uint kType = 14;         // The dtype of x.
layout(constant_id = 3) const uint kColumnType = 14;

BP_RECORD {
  uint64_t x, columns;
  uint64_t count;         // The elements of the result.
  int64_t strides_x[5];   // In bytes: n, c and three spatial axes.
  uint images, channels;
  uint extents_x[3], extents_y[3];
  uint kernel[3], stride[3], padding[3], dilation[3];
} BP_RECORD_NAME;

uint64_t at(uint n, uint c, ivec3 place) {
  return record.x + uint64_t(int64_t(uint64_t(n)) * record.strides_x[0] +
                             int64_t(uint64_t(c)) * record.strides_x[1] +
                             int64_t(place.x) * record.strides_x[2] +
                             int64_t(place.y) * record.strides_x[3] +
                             int64_t(place.z) * record.strides_x[4]);
}

// Returns the place of an element along `extents`, whose last axis is the innermost. `rest` is the
// number of the element, and keeps what is left of it.
ivec3 locate(inout uint rest, uint extents[3]) {
  ivec3 place;
  [[unroll]] for (int i = 2; i >= 0; --i) {
    const uint next = rest / extents[i];
    place[i] = int(rest - next * extents[i]);
    rest = next;
  }
  return place;
}

void unfold(uint number) {
  uint rest = number;
  const ivec3 to = locate(rest, record.extents_y);
  const uint n = rest % record.images;
  rest /= record.images;
  const ivec3 tap = locate(rest, record.kernel);
  const uint c = rest;
  ivec3 from;
  bool is_inside = true;
  [[unroll]] for (uint d = 0u; d < 3u; ++d) {
    from[d] = to[d] * int(record.stride[d]) - int(record.padding[d]) +
              tap[d] * int(record.dilation[d]);
    is_inside = is_inside && from[d] >= 0 && from[d] < int(record.extents_x[d]);
  }
  float value = 0.0;
  if (is_inside) value = load_f32(kType, at(n, c, from));
  const uint64_t offset = uint64_t(number) * uint64_t(size_of(kColumnType));
  store_f32(kColumnType, record.columns + offset, value);
}

void fold(uint number) {
  uint rest = number;
  const ivec3 place = locate(rest, record.extents_x);
  const uint c = rest % record.channels, n = rest / record.channels;
  const uint taps = record.kernel[0] * record.kernel[1] * record.kernel[2];
  const uint places = record.extents_y[0] * record.extents_y[1] * record.extents_y[2];
  Sum sum = no_sum();
  for (uint tap = 0u; tap < taps; ++tap) {
    uint left = tap;
    const ivec3 k = locate(left, record.kernel);
    uint from = 0u;
    bool is_seen = true;
    [[unroll]] for (uint d = 0u; d < 3u; ++d) {
      const int shifted = place[d] + int(record.padding[d]) - k[d] * int(record.dilation[d]);
      const int stride = int(record.stride[d]), index = shifted / stride;
      is_seen = is_seen && shifted >= 0 && index * stride == shifted &&
                index < int(record.extents_y[d]);
      from = from * record.extents_y[d] + uint(index);
    }
    if (!is_seen) continue;
    const uint64_t column = uint64_t(c * taps + tap) * uint64_t(record.images) + uint64_t(n);
    const uint64_t element = column * uint64_t(places) + uint64_t(from);
    take(sum, load_f32(kColumnType, record.columns + element * uint64_t(size_of(kColumnType))));
  }
  store_f32(kType, at(n, c, place), sum_of(sum));
}

void main() {
  const uint number = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(number) >= record.count) return;
  if (kFolds == 0u) {
    unfold(number);
  } else {
    fold(number);
  }
}
