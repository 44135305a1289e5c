#version 460
#extension GL_GOOGLE_include_directive : require
// interpolate and its gradient, over up to three spatial axes. There is one invocation for each
// element of the result. backplane/shell/sampling.hpp says what the numbers of an axis mean.
#include "prelude.glsl"
#include "element.glsl"
#include "grid.glsl"
#define SUMMED float
#include "sum.glsl"

layout(constant_id = 1) const uint kIsBackward = 0;
layout(constant_id = 2) const uint kType = 14;
layout(constant_id = 3) const uint kIsLinear = 0;

// Axes are n, c and three spatial ones; strides are in bytes. The gradient computes grad_x, in the
// place of x, from grad_y, in the place of y.
BP_RECORD {
  uint64_t x, y;
  uint64_t count;  // The elements of the result.
  uint extents_x[5], extents_y[5];
  int64_t strides_x[5], strides_y[5];
  int64_t step[3], offset[3], unit[3];
} BP_RECORD_NAME;

// The element of x below a position, or at it. It has the weight (unit - rest) / unit, and the
// element above it has the weight rest / unit.
struct Place {
  int below, rest;
};

Place place_of(uint d, int number) {
  const int64_t unit = record.unit[d], last = int64_t(uint64_t(record.extents_x[d + 2u] - 1u));
  const int64_t at = int64_t(uint64_t(uint(number))) * record.step[d] + record.offset[d];
  if (at <= 0l) return Place(0, 0);
  if (at >= last * unit) return Place(int(last), 0);
  const int64_t below = at / unit;
  return Place(int(below), kIsLinear == 0u ? 0 : int(at - below * unit));
}

// Returns the weight of the element below a position, or of that above it.
float share_of(uint d, Place at, bool is_above) {
  if (at.rest == 0) return is_above ? 0.0 : 1.0;
  const int unit = int(record.unit[d]);
  return float(is_above ? at.rest : unit - at.rest) / float(unit);
}

// Returns the weight of an element in an output that reads it.
float weight_of(uint d, int number, int element) {
  const Place at = place_of(d, number);
  return share_of(d, at, at.below != element);
}

// Returns the number of outputs whose position is below number / unit.
int outputs_below(uint d, int64_t number) {
  const int64_t outputs = int64_t(uint64_t(record.extents_y[d + 2u])), step = record.step[d];
  const int64_t way = number - record.offset[d];
  if (way <= 0l) return 0;
  return step == 0l ? int(outputs) : int(min((way + step - 1l) / step, outputs));
}

int outputs_before(uint d, int element) {
  if (element <= 0) return 0;
  if (uint(element) >= record.extents_x[d + 2u]) return int(record.extents_y[d + 2u]);
  return outputs_below(d, int64_t(uint64_t(uint(element))) * record.unit[d]);
}

int first_output(uint d, int element) {
  if (kIsLinear == 0u || element == 0) return outputs_before(d, element);
  return outputs_below(d, int64_t(uint64_t(uint(element - 1))) * record.unit[d] + 1l);
}

void run_forward(uint number) {
  uint n, c;
  ivec3 place;
  locate(number, record.extents_y, n, c, place);
  const Place x = place_of(0u, place.x), y = place_of(1u, place.y), z = place_of(2u, place.z);
  float sum = -0.0;  // Adding a -0 to it gives -0.
  for (int i = 0; i <= min(x.rest, 1); ++i) {
    const float outer = share_of(0u, x, i == 1);
    for (int j = 0; j <= min(y.rest, 1); ++j) {
      const float middle = outer * share_of(1u, y, j == 1);
      for (int k = 0; k <= min(z.rest, 1); ++k) {
        const ivec3 from = ivec3(x.below + i, y.below + j, z.below + k);
        const float weight = middle * share_of(2u, z, k == 1);
        sum += weight * load_f32(kType, at(record.x, record.strides_x, n, c, from));
      }
    }
  }
  store_f32(kType, at(record.y, record.strides_y, n, c, place), sum);
}

// Computes an element of the gradient from the outputs that read it.
void run_backward(uint number) {
  uint n, c;
  ivec3 place;
  locate(number, record.extents_x, n, c, place);
  ivec3 begin, end;
  [[unroll]] for (uint d = 0u; d < 3u; ++d) {
    begin[d] = first_output(d, place[d]);
    end[d] = outputs_before(d, place[d] + 1);
  }
  Sum sum = no_sum();
  for (int i = begin.x; i < end.x; ++i) {
    const float outer = weight_of(0u, i, place.x);
    for (int j = begin.y; j < end.y; ++j) {
      const float middle = outer * weight_of(1u, j, place.y);
      for (int k = begin.z; k < end.z; ++k) {
        const float weight = middle * weight_of(2u, k, place.z);
        take(sum, weight * load_f32(kType, at(record.y, record.strides_y, n, c, ivec3(i, j, k))));
      }
    }
  }
  store_f32(kType, at(record.x, record.strides_x, n, c, place), sum_of(sum));
}

void main() {
  const uint number = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(number) >= record.count) return;
  if (kIsBackward == 0u) {
    run_forward(number);
  } else {
    run_backward(number);
  }
}
