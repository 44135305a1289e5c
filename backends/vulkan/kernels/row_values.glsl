// The elements of rows, one at a time by address, as f32 or, with COMPUTE_F64, as f64. If
// BOUND_ROWS is defined, four neighbours are taken at a time from storage buffers: buffer 0 is
// written, and 1, 2 and 3 are read. On lavapipe a load of four elements costs little more than a
// load of one.
//
//   VALUES  what is loaded and computed with at once
//   PLACE   where it lies: an address, or a number of vectors from the begin of the buffer
#if defined(BOUND_ROWS)
#define VALUES vec4
#define PLACE uint
const uint kNeighbours = 4u;

layout(set = 0, binding = 0, scalar) writeonly buffer Eights0 { uvec2 v[]; } eights_0;
layout(set = 0, binding = 0, scalar) writeonly buffer Vectors0 { vec4 v[]; } vectors_0;
#define BP_OPERAND(k)                                                                        \
  layout(set = 0, binding = k, scalar) readonly buffer Eights##k { uvec2 v[]; } eights_##k;  \
  layout(set = 0, binding = k, scalar) readonly buffer Vectors##k { vec4 v[]; } vectors_##k;
BP_OPERAND(1)
BP_OPERAND(2)
BP_OPERAND(3)

vec4 load_values(uint operand, uint type, uint place) {
  if (size_of(type) == 4u) {
    if (operand == 1u) return vectors_1.v[place];
    return operand == 2u ? vectors_2.v[place] : vectors_3.v[place];
  }
  uvec2 bits;
  if (operand == 1u) {
    bits = eights_1.v[place];
  } else {
    bits = operand == 2u ? eights_2.v[place] : eights_3.v[place];
  }
  return vec4(decode_f32(type, bits.x & 0xffffu), decode_f32(type, bits.x >> 16),
              decode_f32(type, bits.y & 0xffffu), decode_f32(type, bits.y >> 16));
}

void store_values(uint type, uint place, vec4 values) {
  if (size_of(type) == 4u) {
    vectors_0.v[place] = values;
    return;
  }
  eights_0.v[place] = uvec2(encode_f32(type, values.x) | encode_f32(type, values.y) << 16,
                            encode_f32(type, values.z) | encode_f32(type, values.w) << 16);
}

// Returns the place `offset` bytes behind the begin of a tensor at `address`.
uint place_of(uint type, uint64_t address, uint64_t offset) {
  return uint(offset) / (kNeighbours * size_of(type));
}

float total_of(vec4 values) { return (values.x + values.y) + (values.z + values.w); }
float most_of(vec4 values) {
  return larger_of(larger_of(values.x, values.y), larger_of(values.z, values.w));
}
vec4 larger_of(vec4 a, vec4 b) {
  return vec4(larger_of(a.x, b.x), larger_of(a.y, b.y), larger_of(a.z, b.z), larger_of(a.w, b.w));
}

#elif defined(COMPUTE_F64)
#define VALUES double
#define PLACE uint64_t
const uint kNeighbours = 1u;

double load_values(uint operand, uint type, uint64_t place) { return load_f64(place); }
void store_values(uint type, uint64_t place, double value) { store_f64(place, value); }
uint64_t place_of(uint type, uint64_t address, uint64_t offset) { return address + offset; }
double total_of(double value) { return value; }
double most_of(double value) { return value; }

#else
#define VALUES float
#define PLACE uint64_t
const uint kNeighbours = 1u;

float load_values(uint operand, uint type, uint64_t place) { return load_f32(type, place); }
void store_values(uint type, uint64_t place, float value) { store_f32(type, place, value); }
uint64_t place_of(uint type, uint64_t address, uint64_t offset) { return address + offset; }
float total_of(float value) { return value; }
float most_of(float value) { return value; }
#endif

#define SUMMED VALUES
#include "sum.glsl"
