// The parts that the shaders of recurrent sequences share: which of the cells runs, the units of a
// step, and the steps that each row has.
//
// An invocation has kUnits neighbours of one row. Buffers in the workspace have no gaps. If kUnits
// is 4, the number of units is a multiple of 4, and neighbours are loaded eight bytes at a time:
// lavapipe loads eight bytes by address in the time of four.

// The cells, as in recurrent.hpp. A GRU resets the state after its product with the weights, or
// before.
const uint kLstmCell = 0u, kResetAfter = 1u, kResetBefore = 2u, kTanhCell = 3u, kReluCell = 4u;

layout(constant_id = 1) const uint kStage = 0;
layout(constant_id = 2) const uint kCell = 0;
layout(constant_id = 3) const uint kType = 14;
layout(constant_id = 4) const uint kUnits = 1;

uint gate_count() {
  if (kCell == kLstmCell) return 4u;
  return kCell == kTanhCell || kCell == kReluCell ? 1u : 3u;
}

uint64_t moved(uint64_t address, int64_t stride, uint steps) {
  return address + uint64_t(stride * int64_t(uint64_t(steps)));
}

uint invocation() { return group_number() * kLocalSize + gl_LocalInvocationID.x; }

// Returns whether a row has a step. Without lengths every row has all steps.
bool has_step(uint64_t lengths, uint step, uint row) {
  return lengths == 0ul || step < Bytes4(lengths + 4ul * uint64_t(row)).value;
}

// ---- Neighbours ---------------------------------------------------------------------------------

// The values of the units of an invocation. With one unit only the first is used.
#define BP_UNITS(k) [[unroll]] for (uint k = 0u; k < 4u; ++k) if (k < kUnits)

vec4 load_pairs(uint type, uint64_t at) {
  const uvec2 first = unpackUint2x32(Bytes8(at).value);
  if (size_of(type) == 4u) {
    return uintBitsToFloat(uvec4(first, unpackUint2x32(Bytes8(at + 8ul).value)));
  }
  return vec4(decode_f32(type, first.x & 0xffffu), decode_f32(type, first.x >> 16),
              decode_f32(type, first.y & 0xffffu), decode_f32(type, first.y >> 16));
}

void store_pairs(uint type, uint64_t at, vec4 values) {
  uvec4 bits;
  [[unroll]] for (uint k = 0u; k < 4u; ++k) bits[k] = encode_f32(type, values[k]);
  if (size_of(type) == 4u) {
    Bytes8(at).value = packUint2x32(bits.xy);
    Bytes8(at + 8ul).value = packUint2x32(bits.zw);
  } else {
    Bytes8(at).value = packUint2x32(uvec2(bits.x | bits.y << 16, bits.z | bits.w << 16));
  }
}

// Element `place` of a buffer of `type`, and its neighbours.
vec4 load_from(uint type, uint64_t base, uint64_t place) {
  const uint64_t at = base + uint64_t(size_of(type)) * place;
  if (kUnits == 4u) return load_pairs(type, at);
  return vec4(load_f32(type, at), 0.0, 0.0, 0.0);
}
void store_to(uint type, uint64_t base, uint64_t place, vec4 values) {
  const uint64_t at = base + uint64_t(size_of(type)) * place;
  if (kUnits == 4u) {
    store_pairs(type, at, values);
  } else {
    store_f32(type, at, values.x);
  }
}
vec4 load_sums(uint64_t base, uint64_t place) { return load_from(BP_F32, base, place); }
void store_sums(uint64_t base, uint64_t place, vec4 values) {
  store_to(BP_F32, base, place, values);
}

// The elements (row, unit) of a tensor. Strides are in bytes. An absent tensor has address 0.
struct Elements {
  uint64_t address;
  int64_t row, unit;
};

uint64_t place_of(Elements of, uint row, uint unit) {
  return moved(moved(of.address, of.row, row), of.unit, unit);
}

// Returns whether the tensor has the units of a row without gaps, eight bytes from eight bytes on.
bool has_pairs(uint type, Elements of) {
  return kUnits == 4u && of.unit == int64_t(uint64_t(size_of(type))) &&
         (uint(of.address) & 7u) == 0u && (uint(of.row) & 7u) == 0u;
}

vec4 load(uint type, Elements of, uint row, uint unit) {
  const uint64_t at = place_of(of, row, unit);
  if (has_pairs(type, of)) return load_pairs(type, at);
  vec4 values = vec4(0.0);
  BP_UNITS(k) values[k] = load_f32(type, moved(at, of.unit, k));
  return values;
}
void store(uint type, Elements of, uint row, uint unit, vec4 values) {
  const uint64_t at = place_of(of, row, unit);
  if (has_pairs(type, of)) {
    store_pairs(type, at, values);
    return;
  }
  BP_UNITS(k) store_f32(type, moved(at, of.unit, k), values[k]);
}

vec4 sigmoid_of(vec4 x) {
  BP_UNITS(k) x[k] = sigmoid_f32(x[k]);
  return x;
}
vec4 tanh_of(vec4 x) {
  BP_UNITS(k) x[k] = tanh_f32(x[k]);
  return x;
}
