#version 460
#extension GL_GOOGLE_include_directive : require
// The matrix product for devices with many threads, by tiles of 64 x 64. Products of integers wrap.
// They are computed in 32 bits if y has no more, and in 64 bits otherwise: the low bits of a sum
// depend on the low bits of its terms alone.
#include "matmul.glsl"

Tile tile;  // The tile of this workgroup.

uint64_t place_of_a(uint m, uint k) { return moved(moved(tile.a, record.a_m, m), record.a_k, k); }
uint64_t place_of_b(uint k, uint n) { return moved(moved(tile.b, record.b_k, k), record.b_n, n); }
uint64_t place_of_y(uint m, uint n) { return moved(moved(tile.y, record.y_m, m), record.y_n, n); }

#if defined(COMPUTE_I32)
#define VALUE int
#define VALUES ivec4
// Of an i64 these are the low bits.
int load_value(uint type, uint64_t at) { return decode_i32(type, load_bits(size_of(type), at)); }
void finish_value(uint m, uint n, int sum) {
  store_bits(size_of(kTypeY), place_of_y(m, n), uint(sum));
}
#elif defined(COMPUTE_I64)
#define VALUE int64_t
#define VALUES i64vec4
int64_t load_value(uint type, uint64_t at) { return load_i64(type, at); }
void finish_value(uint m, uint n, int64_t sum) { store_i64(kTypeY, place_of_y(m, n), sum); }
#else
#define VALUE float
#define VALUES vec4
float load_value(uint type, uint64_t at) { return load_f32(type, at); }
void finish_value(uint m, uint n, float sum) { finish(tile, m, n, sum); }
#endif

VALUE value_of_a(uint m, uint k) { return load_value(kTypeA, place_of_a(m, k)); }
VALUE value_of_b(uint k, uint n) { return load_value(kTypeB, place_of_b(k, n)); }

#include "matmul_tile.glsl"

void main() {
  if (!tile_exists(group_number(), kTile, kTile)) return;
  tile = find_tile(group_number(), kTile, kTile);
  run_tile(tile.m, tile.n, record.m, record.n, tile.k);
}
