#version 460
#extension GL_GOOGLE_include_directive : require
// The gradients of norms of channels. A plane is a channel of one sample, or of all samples, and a
// unit is the planes that share a mean. With u = (x - mean) * rstd and h = grad_y * gamma:
//
//   sums   computes the sums of grad_y, grad_y * u, h and h * u in each plane.
//   join   adds the sums of planes: to the gradients of beta and gamma, or to the means of h and of
//          h * u in each unit.
//   write  computes grad_x = rstd * (h - mean(h) - u * mean(h * u)).
//
// kLanes invocations share a plane, or the planes that are joined. Sums are added in blocks of 64.
#include "prelude.glsl"
#include "element.glsl"
#include "lanes.glsl"
#include "axes.glsl"
#define SUMMED float
#include "sum.glsl"

layout(constant_id = 2) const uint kOp = 0;
layout(constant_id = 3) const uint kType = 14;
layout(constant_id = 4) const uint kJoinedType = 14;
layout(constant_id = 5) const uint kHasRstd = 1;  // If 0, the statistics are mean and variance.
layout(constant_id = 6) const uint kPlaneRank = 1;
layout(constant_id = 7) const uint kInnerRank = 1;

const uint kSums = 0u, kJoin = 1u, kWrite = 2u;

// A missing tensor is 0. All strides are in bytes, and axes are listed with the innermost first.
BP_RECORD {
  uint64_t grad_x, grad_y, x, gamma, mean, spread;
  uint64_t sums, means;          // Two pairs of f32 by plane, and a pair by unit.
  uint64_t row_count, row_size;  // The rows are planes, or results of a join.
  float eps;
  uint plane_extents[8];
  int64_t plane_grad_x[8], plane_grad_y[8], plane_x[8], plane_gamma[8], plane_mean[8],
      plane_spread[8], plane_means[8];
  uint inner_extents[8];
  int64_t inner_grad_x[8], inner_grad_y[8], inner_x[8];
  // A join. Its result number r has the planes r * row_step, r * row_step + plane_step and so on.
  uint row_step, plane_step;
  float divisor;
  uint64_t joined_g, joined_gu;
  int64_t stride_g, stride_gu;
} BP_RECORD_NAME;

uint64_t of_plane(uint64_t address, uint plane, int64_t strides[8]) {
  return address + offset_of(plane, kPlaneRank, record.plane_extents, strides);
}

uint64_t inner(uint64_t plane, uint i, int64_t strides[8]) {
  return plane + offset_of(i, kInnerRank, record.inner_extents, strides);
}

uint64_t moved(uint64_t address, int64_t stride, uint steps) {
  return address + uint64_t(stride * int64_t(uint64_t(steps)));
}

// The operands of a plane.
struct Plane {
  uint64_t grad_y, x;
  float mean, rstd;
};

Plane find_plane(uint number) {
  Plane plane;
  plane.grad_y = of_plane(record.grad_y, number, record.plane_grad_y);
  plane.x = of_plane(record.x, number, record.plane_x);
  plane.mean = Float32(of_plane(record.mean, number, record.plane_mean)).value;
  const float spread = Float32(of_plane(record.spread, number, record.plane_spread)).value;
  plane.rstd = kHasRstd != 0u ? spread : 1.0 / sqrt(spread + record.eps);
  return plane;
}

float grad_y_at(Plane plane, uint i) {
  return load_f32(kType, inner(plane.grad_y, i, record.inner_grad_y));
}

float u_at(Plane plane, uint i) {
  return (load_f32(kType, inner(plane.x, i, record.inner_x)) - plane.mean) * plane.rstd;
}

float gamma_of(uint plane) {
  if (record.gamma == 0ul) return 1.0;
  return load_f32(kType, of_plane(record.gamma, plane, record.plane_gamma));
}

void store_pair(uint64_t address, float first, float second) {
  Float32(address).value = first;
  Float32(address + 4ul).value = second;
}

// Returns the sums of weight * grad_y and weight * grad_y * u in the first `size` elements.
vec2 sums_of(Plane plane, uint size, float weight) {
  Sum g_sum = no_sum(), gu_sum = no_sum();
  for (uint i = lane(); i < size; i += kLanes) {
    const float g = grad_y_at(plane, i) * weight;
    take(g_sum, g);
    take(gu_sum, g * u_at(plane, i));
  }
  return vec2(sum_lanes(sum_of(g_sum)), sum_lanes(sum_of(gu_sum)));
}

void run_sums(uint number, bool exists) {
  const uint size = exists ? uint(record.row_size) : 0u;
  const Plane plane = find_plane(exists ? number : 0u);
  const float gamma = gamma_of(exists ? number : 0u);
  // The product of an infinite gamma and a sum is not the sum of products.
  const bool is_finite = (floatBitsToUint(gamma) & 0x7f800000u) != 0x7f800000u;
  const vec2 of_g = sums_of(plane, size, 1.0);
  const vec2 of_weighted = sums_of(plane, is_finite ? 0u : size, gamma);
  const vec2 of_h = is_finite ? gamma * of_g : of_weighted;
  if (!exists || lane() != 0u) return;
  const uint64_t to = record.sums + 16ul * uint64_t(number);
  store_pair(to, of_g.x, of_g.y);
  store_pair(to + 8ul, of_h.x, of_h.y);
}

void run_join(uint number, bool exists) {
  const uint size = exists ? uint(record.row_size) : 0u;
  Sum g_sum = no_sum(), gu_sum = no_sum();
  for (uint i = lane(); i < size; i += kLanes) {
    const uint plane = number * record.row_step + i * record.plane_step;
    const uint64_t from = record.sums + 16ul * uint64_t(plane);
    take(g_sum, Float32(from).value);
    take(gu_sum, Float32(from + 4ul).value);
  }
  const float g = sum_lanes(sum_of(g_sum)), gu = sum_lanes(sum_of(gu_sum));
  if (!exists || lane() != 0u) return;
  if (record.joined_g != 0ul) {
    store_f32(kJoinedType, moved(record.joined_g, record.stride_g, number), g / record.divisor);
  }
  if (record.joined_gu != 0ul) {
    store_f32(kJoinedType, moved(record.joined_gu, record.stride_gu, number), gu / record.divisor);
  }
}

void run_write(uint number) {
  const Plane plane = find_plane(number);
  const uint64_t grad_x = of_plane(record.grad_x, number, record.plane_grad_x);
  const uint64_t means = of_plane(record.means, number, record.plane_means);
  const float mean_h = Float32(means).value, mean_hu = Float32(means + 4ul).value;
  const float gamma = gamma_of(number);
  for (uint i = lane(); i < uint(record.row_size); i += kLanes) {
    const float h = grad_y_at(plane, i) * gamma;
    const float value = plane.rstd * (h - mean_h - u_at(plane, i) * mean_hu);
    store_f32(kType, inner(grad_x, i, record.inner_grad_x), value);
  }
}

void main() {
  const uint number = row_number();
  const bool exists = uint64_t(number) < record.row_count;
  if (kOp == kSums) {
    run_sums(number, exists);
  } else if (kOp == kJoin) {
    run_join(number, exists);
  } else if (exists) {
    run_write(number);
  }
}
