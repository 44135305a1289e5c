#version 460
#extension GL_GOOGLE_include_directive : require
// Computes y = op(a, b, c) for every element: copies, conversions within one kind of number,
// arithmetic, comparisons, activations and their gradients.
//
// The shader is compiled for each type in which it computes. There are two ways to walk the
// elements:
//
//   dense     All operands lie in one order without gaps, or repeat one element. An invocation
//             takes eight elements. It loads eight bytes at a time, which is twice as fast as four
//             bytes if the driver's loads are scalar: on lavapipe an add of 16M f32 takes 84 ms
//             in place of 145 ms.
//   strided   Anything else: an invocation takes kPerInvocation elements, and divides the number of
//             each by the extents.
#include "prelude.glsl"
#include "element.glsl"
#include "map.glsl"

const uint kPerInvocation = 4u;  // The elements of an invocation, if strided.

struct Operand {
  uint64_t address;     // If 0, the operand is `scalar`.
  int64_t strides[8];   // In bytes, the innermost axis first.
};

BP_RECORD {
  uint64_t scalar;
  uint64_t count;
  uint extents[8];
  Operand operands[4];
} BP_RECORD_NAME;

#if defined(COMPUTE_F32) || defined(COMPUTE_I32)
BITS load(uint size, uint64_t address) { return load_bits(size, address); }
void store(uint size, uint64_t address, BITS bits) { store_bits(size, address, bits); }
#else
BITS load(uint size, uint64_t address) { return load_wide_bits(size, address); }
void store(uint size, uint64_t address, BITS bits) { store_wide_bits(size, address, bits); }
#endif

uint64_t address_of(uint operand) {
  const uint64_t address = record.operands[operand].address;
  return address == 0ul ? push.arguments : address;
}

// ---- Dense --------------------------------------------------------------------------------------

// Returns element k of the loaded words.
BITS unpack(uint size, uint64_t words[8], uint k) {
  if (size == 8u) return BITS(words[k]);
  if (size == 4u) return BITS(unpackUint2x32(words[k >> 1])[k & 1u]);
  if (size == 2u) return BITS(unpackUint2x32(words[k >> 2])[k >> 1 & 1u] >> 16 * (k & 1u) & 0xffffu);
  return BITS(unpackUint2x32(words[0])[k >> 2] >> 8 * (k & 3u) & 0xffu);
}

// Loads the eight elements from `first` on.
void load_group(uint operand, uint64_t first, out VALUE values[8]) {
  const uint type = type_of(operand), size = size_of(type);
  const uint64_t address = address_of(operand);
  if (is_uniform(operand)) {
    const VALUE value = decode(type, load(size, address));
    [[unroll]] for (uint k = 0u; k < kGroup; ++k) values[k] = value;
    return;
  }
  uint64_t words[8];
  const uint64_t begin = address + first * uint64_t(size);
  [[unroll]] for (uint k = 0u; k < 8u; ++k) {
    if (k < size) words[k] = Bytes8(begin + uint64_t(8u * k)).value;
  }
  [[unroll]] for (uint k = 0u; k < kGroup; ++k) values[k] = decode(type, unpack(size, words, k));
}

void store_group(uint64_t first, VALUE values[8]) {
  const uint size = size_of(kType0);
  const uint64_t begin = address_of(0u) + first * uint64_t(size);
  [[unroll]] for (uint k = 0u; k < 8u; ++k) {
    if (k >= size) continue;
    uvec2 word = uvec2(0u);
    if (size == 8u) {
      Bytes8(begin + uint64_t(8u * k)).value = uint64_t(encode(kType0, values[k]));
      continue;
    } else if (size == 4u) {
      word = uvec2(uint(encode(kType0, values[2u * k & 7u])),
                   uint(encode(kType0, values[(2u * k + 1u) & 7u])));
    } else if (size == 2u) {
      [[unroll]] for (uint j = 0u; j < 4u; ++j) {
        word[j >> 1] |= (uint(encode(kType0, values[(4u * k + j) & 7u])) & 0xffffu) << 16 * (j & 1u);
      }
    } else {
      [[unroll]] for (uint j = 0u; j < 8u; ++j) {
        word[j >> 2] |= (uint(encode(kType0, values[j])) & 0xffu) << 8 * (j & 3u);
      }
    }
    Bytes8(begin + uint64_t(8u * k)).value = packUint2x32(word);
  }
}

VALUE load_dense(uint operand, uint64_t index) {
  const uint type = type_of(operand), size = size_of(type);
  const uint64_t offset = is_uniform(operand) ? 0ul : index * uint64_t(size);
  return decode(type, load(size, address_of(operand) + offset));
}

void run_dense() {
  const uint64_t count = record.count;
  const uint64_t first =
      uint64_t(group_number() * kLocalSize + gl_LocalInvocationID.x) * uint64_t(kGroup);
  if (first + uint64_t(kGroup) <= count) {
    VALUE a[8], b[8], c[8], y[8];
    load_group(1u, first, a);
    if (kOperands > 2u) load_group(2u, first, b);
    if (kOperands > 3u) load_group(3u, first, c);
    if (kIsLong) {
      [[dont_unroll]] for (uint k = 0u; k < kGroup; ++k) y[k] = apply(a[k], b[k], c[k]);
    } else {
      [[unroll]] for (uint k = 0u; k < kGroup; ++k) y[k] = apply(a[k], b[k], c[k]);
    }
    store_group(first, y);
    return;
  }
  const uint size = size_of(kType0);
  for (uint64_t i = first; i < count; ++i) {
    const VALUE a = load_dense(1u, i);
    VALUE b = VALUE(0), c = VALUE(0);
    if (kOperands > 2u) b = load_dense(2u, i);
    if (kOperands > 3u) c = load_dense(3u, i);
    store(size, address_of(0u) + i * uint64_t(size), encode(kType0, apply(a, b, c)));
  }
}

// ---- Strided ------------------------------------------------------------------------------------

VALUE load_at(uint operand, uint64_t address) {
  const uint type = type_of(operand);
  return decode(type, load(size_of(type), address));
}

void run_strided() {
  const uint count = uint(record.count);
  const uint begin = group_number() * kLocalSize * kPerInvocation + gl_LocalInvocationID.x;
  uint64_t bases[4];
  [[unroll]] for (uint k = 0u; k < 4u; ++k) {
    if (k < kOperands) bases[k] = address_of(k);
  }
  for (uint step = 0u; step < kPerInvocation; ++step) {
    const uint index = begin + step * kLocalSize;
    if (index >= count) return;
    uint64_t at[4] = bases;
    uint rest = index;
    [[unroll]] for (uint axis = 0u; axis < 8u; ++axis) {
      if (axis >= kRank) continue;
      const bool is_last = axis + 1u == kRank;
      const uint extent = record.extents[axis];
      const uint next = is_last ? 0u : rest / extent;
      const int64_t place = int64_t(uint64_t(is_last ? rest : rest - next * extent));
      rest = next;
      [[unroll]] for (uint k = 0u; k < 4u; ++k) {
        if (k < kOperands) at[k] += uint64_t(place * record.operands[k].strides[axis]);
      }
    }
    const VALUE a = load_at(1u, at[1]);
    VALUE b = VALUE(0), c = VALUE(0);
    if (kOperands > 2u) b = load_at(2u, at[2]);
    if (kOperands > 3u) c = load_at(3u, at[3]);
    store(size_of(kType0), at[0], encode(kType0, apply(a, b, c)));
  }
}

void main() {
  if (kRank == 0u) {
    run_dense();
  } else {
    run_strided();
  }
}
