#version 460
#extension GL_GOOGLE_include_directive : require
// cummax and cummin along one axis (running.glsl). Elements are compared by their keys, and results
// are copies of elements. The shader is compiled for each class of dtypes.
#include "prelude.glsl"
#include "element.glsl"
#define FIRST uint64_t
#define SECOND uint
#include "running.glsl"
#include "keys.glsl"

// A State is the rank of the most extreme element, and its index. NaN has the highest rank.
const uint kNoPlace = 0xffffffffu;

State none() { return State(0ul, kNoPlace); }

State load(uint64_t address, uint64_t index) {
  const uint64_t key = key_of(address);
  uint64_t rank = key;
  if (kWantsLargest == 0u && (key != ~0ul || kType == BP_I64)) rank = ~key;
  return State(rank, uint(index));
}

// Of equal elements, the later one stays.
State combine(State a, State b) {
  if (b.second == kNoPlace || (a.second != kNoPlace && a.first > b.first)) return a;
  return b;
}

void store(Line line, uint64_t place, State state) {
  const uint size = size_of(kType);
  const uint64_t from = moved(line.x, record.x_step, uint64_t(state.second));
  const uint64_t to = moved(line.y, record.y_step, place);
  if (size == 8u) {
    Bytes8(to).value = Bytes8(from).value;
  } else {
    store_bits(size, to, load_bits(size, from));
  }
  if (kHasIndices == 0u) return;
  store_i64(kIndexType, moved(line.indices, record.index_step, place),
            int64_t(uint64_t(state.second)));
}
