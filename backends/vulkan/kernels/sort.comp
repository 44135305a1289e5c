#version 460
#extension GL_GOOGLE_include_directive : require
// sort and topk along one axis, by merging. A row consists of sorted runs of `run` elements, and a
// pass merges pairs of neighbouring runs. The place of an element in the merged run is its place in
// its own run plus the number of elements of the other run before it, which a binary search finds.
// No loop has more than 32 trips, and equal elements keep their order.
//
//   encode  keys (rows, size) u64, in whose order elements stand, and their places, u32
//   merge   from one pair of keys and places to the other
//   write   the first elements, as they lie in x, and their places
//
// The shader is compiled for each class of dtypes.
#include "prelude.glsl"
#include "element.glsl"
#include "axes.glsl"

layout(constant_id = 1) const uint kStage = 0;
layout(constant_id = 2) const uint kType = 14;
layout(constant_id = 3) const uint kRank = 1;
layout(constant_id = 4) const uint kIsDescending = 0;
layout(constant_id = 5) const uint kIndexType = 7;

const uint kEncode = 0u, kMerge = 1u, kWrite = 2u;

BP_RECORD {
  uint64_t x, y, indices;                // `indices` may be 0.
  uint64_t keys, places;                 // Read, or written by `encode`.
  uint64_t merged_keys, merged_places;
  int64_t x_step, y_step, index_step;    // In bytes, along the axis.
  uint count;                            // The invocations.
  uint size;                             // The elements of a row.
  uint written;                          // The elements of its result.
  uint run;
  uint extents[8];  // The other axes' extents.
  int64_t x_strides[8], y_strides[8], index_strides[8];
} BP_RECORD_NAME;

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Keys { uint64_t v[]; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Places { uint v[]; };

#include "keys.glsl"

uint64_t moved(uint64_t address, int64_t stride, uint steps) {
  return address + uint64_t(stride * int64_t(uint64_t(steps)));
}

void encode(uint i) {
  const uint row = i / record.size, place = i - row * record.size;
  const uint64_t from = record.x + offset_of(row, kRank, record.extents, record.x_strides);
  const uint64_t key = key_of(moved(from, record.x_step, place));
  Keys(record.keys).v[i] = kIsDescending != 0u ? ~key : key;
  Places(record.places).v[i] = place;
}

void merge(uint i) {
  Keys keys = Keys(record.keys);
  const uint size = record.size, run = record.run;
  const uint row = i / size * size, place = i - row;
  const uint pair = place / run & ~1u;  // The first of the two runs.
  const uint begin = pair * run, middle = min(begin + run, size), end = min(middle + run, size);
  const bool is_first = place < middle;
  const uint64_t key = keys.v[i];
  // The search counts the elements of the other run that come before this one. Of equal elements,
  // those of the first run come first.
  uint low = is_first ? middle : begin, high = is_first ? end : middle;
  const uint other = low;
  for (uint trip = 0u; trip < 32u && low < high; ++trip) {
    const uint half_way = low + (high - low) / 2u;
    const uint64_t there = keys.v[row + half_way];
    if (is_first ? there < key : there <= key) {
      low = half_way + 1u;
    } else {
      high = half_way;
    }
  }
  const uint to = row + (is_first ? place : begin + place - middle) + low - other;
  Keys(record.merged_keys).v[to] = key;
  Places(record.merged_places).v[to] = Places(record.places).v[i];
}

void write(uint i) {
  const uint row = i / record.written, place = i - row * record.written;
  const uint from = Places(record.places).v[row * record.size + place];
  const uint64_t x = record.x + offset_of(row, kRank, record.extents, record.x_strides);
  const uint64_t y = record.y + offset_of(row, kRank, record.extents, record.y_strides);
  const uint bytes = size_of(kType);
  store_wide_bits(bytes, moved(y, record.y_step, place),
                  load_wide_bits(bytes, moved(x, record.x_step, from)));
  if (record.indices == 0ul) return;
  const uint64_t to =
      record.indices + offset_of(row, kRank, record.extents, record.index_strides);
  store_i64(kIndexType, moved(to, record.index_step, place), int64_t(uint64_t(from)));
}

void main() {
  const uint i = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (i >= record.count) return;
  if (kStage == kEncode) {
    encode(i);
  } else if (kStage == kMerge) {
    merge(i);
  } else {
    write(i);
  }
}
