#version 460
#extension GL_GOOGLE_include_directive : require
// scatter, scatter_reduce, embedding_backward and max_pool_backward write elements of src to the
// places of y that indices name, or add them there.
//
// All elements that can meet in one place form a line, which one invocation walks from its
// beginning. So results are the same in every run, and the last of equal indices wins. The rounding
// error of a sum of floats is summed beside it, so that the error does not grow with the number of
// terms. A long walk is cut into several dispatches, because drivers may end a loop silently after
// 65,535 trips.
#include "prelude.glsl"
#include "element.glsl"
#include "axes.glsl"
#include "failure.glsl"

layout(constant_id = 1) const uint kAdds = 0;
layout(constant_id = 2) const uint kToType = 14;
layout(constant_id = 3) const uint kFromType = 14;
layout(constant_id = 4) const uint kIndexType = 7;
layout(constant_id = 5) const uint kLineRank = 1;
layout(constant_id = 6) const uint kWalkRank = 1;
layout(constant_id = 7) const uint kPlaceRank = 1;
layout(constant_id = 8) const uint kSkipsMinusOne = 0;
layout(constant_id = 9) const uint kClamps = 0;

BP_RECORD {
  uint64_t y, src, indices, failure;
  uint64_t lost;  // The distance from a sum in y to its rounding error.
  uint64_t line_count;
  uint walk_begin, walk_end;
  int64_t place_count;  // Indices are below it.
  // All strides are in bytes, the innermost axis first.
  uint line_extents[8];
  int64_t line_y[8], line_src[8], line_indices[8];
  uint walk_extents[8];
  int64_t walk_src[8], walk_indices[8];
  uint place_extents[8];
  int64_t place_y[8];
} BP_RECORD_NAME;

void put(uint64_t to, uint64_t from) {
#if defined(COMPUTE_F32)
  const float value = load_f32(kFromType, from);
  if (kAdds == 0u) {
    store_f32(kToType, to, value);
    return;
  }
  // The sum and its rounding error are exact together (Knuth's two-sum).
  const float sum = Float32(to).value;
  precise const float total = sum + value, part = total - sum;
  precise const float rest = (sum - (total - part)) + (value - part);
  Float32(to).value = total;
  if (rest != 0.0 && abs(total) < infinity()) Float32(to + record.lost).value += rest;
#else
  int64_t value = load_i64(kFromType, from);
  if (kAdds != 0u) value += load_i64(kToType, to);
  store_i64(kToType, to, value);
#endif
}

void main() {
  const uint line = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (uint64_t(line) >= record.line_count) return;
  const uint64_t y = record.y + offset_of(line, kLineRank, record.line_extents, record.line_y);
  const uint64_t src =
      record.src + offset_of(line, kLineRank, record.line_extents, record.line_src);
  const uint64_t indices =
      record.indices + offset_of(line, kLineRank, record.line_extents, record.line_indices);
  const int64_t place_count = record.place_count;
  for (uint i = record.walk_begin; i < record.walk_end; ++i) {
    const uint64_t from =
        indices + offset_of(i, kWalkRank, record.walk_extents, record.walk_indices);
    const int64_t index = load_i64(kIndexType, from);
    if (kSkipsMinusOne != 0u && index == -1l) continue;
    const int64_t place = acting(index, place_count, kClamps);
    if (!is_place(place, place_count)) {
      fail_with(record.failure, place, from);
      continue;
    }
    put(y + offset_of(uint(place), kPlaceRank, record.place_extents, record.place_y),
        src + offset_of(i, kWalkRank, record.walk_extents, record.walk_src));
  }
}
