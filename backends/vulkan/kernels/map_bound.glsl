// Computes the elements of map.comp, eight at a time, if tensors are bound as storage buffers.
// Operand k is buffer k of set 0. A uniform operand repeats one element, which is `scalar` if bit k
// of kInline is set. If BOUND_ROWS is defined, the record gives the place of each group of eight
// elements; else the groups follow each other.
//
// On lavapipe an add of 4M f32 takes 9.5 ms on two threads with loads of 16 bytes, 15 ms with loads
// of words, and 22 ms with loads of 8 bytes by address. The record is pushed, because a load of it
// costs as much as the data of the invocation.
#define BP_PUSHED uint64_t scalar; uint count;
#include "prelude.glsl"
#include "element.glsl"
#include "map.glsl"

layout(constant_id = 9) const uint kInline = 0;

#if defined(BOUND_ROWS)
BP_RECORD {
  uint extents[8];     // The innermost axis first, in groups of eight.
  uint strides[4][8];  // In groups; elements if uniform.
} BP_RECORD_NAME;
#endif

#define BP_OPERAND(k, access)                                                              \
  layout(set = 0, binding = k, scalar) access buffer Ones##k { uint8_t v[]; } ones_##k;    \
  layout(set = 0, binding = k, scalar) access buffer Twos##k { uint16_t v[]; } twos_##k;   \
  layout(set = 0, binding = k, scalar) access buffer Fours##k { uint v[]; } fours_##k;     \
  layout(set = 0, binding = k, scalar) access buffer Eights##k { uvec2 v[]; } eights_##k;  \
  layout(set = 0, binding = k, scalar) access buffer Vectors##k { uvec4 v[]; } vectors_##k;
BP_OPERAND(0, writeonly)
BP_OPERAND(1, readonly)
BP_OPERAND(2, readonly)
BP_OPERAND(3, readonly)

uint byte_at(uint operand, uint i) {
  if (operand == 1u) return uint(ones_1.v[i]);
  return uint(operand == 2u ? ones_2.v[i] : ones_3.v[i]);
}
uint half_at(uint operand, uint i) {
  if (operand == 1u) return uint(twos_1.v[i]);
  return uint(operand == 2u ? twos_2.v[i] : twos_3.v[i]);
}
uint word_at(uint operand, uint i) {
  if (operand == 1u) return fours_1.v[i];
  return operand == 2u ? fours_2.v[i] : fours_3.v[i];
}
uvec2 pair_at(uint operand, uint i) {
  if (operand == 1u) return eights_1.v[i];
  return operand == 2u ? eights_2.v[i] : eights_3.v[i];
}
uvec4 vector_at(uint operand, uint i) {
  if (operand == 1u) return vectors_1.v[i];
  return operand == 2u ? vectors_2.v[i] : vectors_3.v[i];
}

VALUE value_of(uint type, uvec2 bits) {
#if defined(COMPUTE_F32) || defined(COMPUTE_I32)
  return decode(type, bits.x);
#else
  return decode(type, packUint2x32(bits));
#endif
}

uvec2 bits_of(VALUE value) {
#if defined(COMPUTE_F32) || defined(COMPUTE_I32)
  return uvec2(encode(kType0, value), 0u);
#else
  return unpackUint2x32(encode(kType0, value));
#endif
}

VALUE load_one(uint operand, uint i) {
  const uint type = type_of(operand), size = size_of(type);
  if ((kInline >> operand & 1u) != 0u) return value_of(type, unpackUint2x32(push.scalar));
  if (size == 8u) return value_of(type, pair_at(operand, i));
  if (size == 4u) return value_of(type, uvec2(word_at(operand, i), 0u));
  if (size == 2u) return value_of(type, uvec2(half_at(operand, i), 0u));
  return value_of(type, uvec2(byte_at(operand, i), 0u));
}

// Loads the eight elements of group `group`. A uniform operand repeats its element `group`.
void load_group(uint operand, uint group, out VALUE values[8]) {
  const uint type = type_of(operand), size = size_of(type);
  if (is_uniform(operand)) {
    const VALUE value = load_one(operand, group);
    [[unroll]] for (uint k = 0u; k < kGroup; ++k) values[k] = value;
    return;
  }
  uvec4 words[4];
  if (size == 1u) {
    words[0].xy = pair_at(operand, group);
  } else {
    [[unroll]] for (uint k = 0u; k < 4u; ++k) {
      if (2u * k < size) words[k] = vector_at(operand, group * (size >> 1) + k);
    }
  }
  [[unroll]] for (uint k = 0u; k < kGroup; ++k) {
    uvec2 bits = uvec2(0u);
    if (size == 8u) {
      bits = (k & 1u) == 0u ? words[k >> 1].xy : words[k >> 1].zw;
    } else if (size == 4u) {
      bits.x = words[k >> 2][k & 3u];
    } else if (size == 2u) {
      bits.x = words[0][k >> 1] >> 16u * (k & 1u) & 0xffffu;
    } else {
      bits.x = words[0][k >> 2] >> 8u * (k & 3u) & 0xffu;
    }
    values[k] = value_of(type, bits);
  }
}

void store_group(uint group, VALUE values[8]) {
  const uint size = size_of(kType0);
  uvec4 words[4];
  [[unroll]] for (uint k = 0u; k < 4u; ++k) words[k] = uvec4(0u);
  [[unroll]] for (uint k = 0u; k < kGroup; ++k) {
    const uvec2 bits = bits_of(values[k]);
    if (size == 8u) {
      words[k >> 1][2u * (k & 1u)] = bits.x;
      words[k >> 1][2u * (k & 1u) + 1u] = bits.y;
    } else if (size == 4u) {
      words[k >> 2][k & 3u] = bits.x;
    } else if (size == 2u) {
      words[0][k >> 1] |= (bits.x & 0xffffu) << 16u * (k & 1u);
    } else {
      words[0][k >> 2] |= (bits.x & 0xffu) << 8u * (k & 3u);
    }
  }
  if (size == 1u) {
    eights_0.v[group] = words[0].xy;
    return;
  }
  [[unroll]] for (uint k = 0u; k < 4u; ++k) {
    if (2u * k < size) vectors_0.v[group * (size >> 1) + k] = words[k];
  }
}

void store_one(uint i, VALUE value) {
  const uint size = size_of(kType0);
  const uvec2 bits = bits_of(value);
  if (size == 8u) {
    eights_0.v[i] = bits;
  } else if (size == 4u) {
    fours_0.v[i] = bits.x;
  } else if (size == 2u) {
    twos_0.v[i] = uint16_t(bits.x);
  } else {
    ones_0.v[i] = uint8_t(bits.x);
  }
}

void run_group(uint at[4]) {
  VALUE a[8], b[8], c[8], y[8];
  load_group(1u, at[1], a);
  if (kOperands > 2u) load_group(2u, at[2], b);
  if (kOperands > 3u) load_group(3u, at[3], c);
  if (kIsLong) {
    [[dont_unroll]] for (uint k = 0u; k < kGroup; ++k) y[k] = apply(a[k], b[k], c[k]);
  } else {
    [[unroll]] for (uint k = 0u; k < kGroup; ++k) y[k] = apply(a[k], b[k], c[k]);
  }
  store_group(at[0], y);
}

#if defined(BOUND_ROWS)
void main() {
  const uint group = group_number() * kLocalSize + gl_LocalInvocationID.x;
  if (group >= push.count) return;
  uint at[4] = uint[4](0u, 0u, 0u, 0u), rest = group;
  [[unroll]] for (uint axis = 0u; axis < 8u; ++axis) {
    if (axis >= kRank) continue;
    const bool is_last = axis + 1u == kRank;
    const uint extent = record.extents[axis], next = is_last ? 0u : rest / extent;
    const uint place = is_last ? rest : rest - next * extent;
    rest = next;
    [[unroll]] for (uint k = 0u; k < 4u; ++k) {
      if (k < kOperands) at[k] += place * record.strides[k][axis];
    }
  }
  run_group(at);
}
#else
uint place_of(uint operand, uint i) { return is_uniform(operand) ? 0u : i; }

void main() {
  const uint count = push.count, group = group_number() * kLocalSize + gl_LocalInvocationID.x;
  const uint first = group * kGroup;
  if (first >= count) return;
  if (first + kGroup <= count) {
    uint at[4];
    [[unroll]] for (uint k = 0u; k < 4u; ++k) at[k] = place_of(k, group);
    run_group(at);
    return;
  }
  for (uint i = first; i < count; ++i) {
    const VALUE a = load_one(1u, place_of(1u, i));
    VALUE b = VALUE(0), c = VALUE(0);
    if (kOperands > 2u) b = load_one(2u, place_of(2u, i));
    if (kOperands > 3u) c = load_one(3u, place_of(3u, i));
    store_one(i, apply(a, b, c));
  }
}
#endif
