// The parts that all variants of the matrix product share: the record, elements, and the steps
// after the sum.
//
//   y[m, n] = activation(sum over k of a[m, k] * b[k, n] + bias[n])
//
// A long sum may be cut into parts. Each part has its own result, and the parts are the next axis
// after the batch.
#include "prelude.glsl"
#include "element.glsl"
#include "math.glsl"
#include "axes.glsl"
#include "matmul_block.glsl"

layout(constant_id = 1) const uint kTypeA = 14;
layout(constant_id = 2) const uint kTypeB = 14;
layout(constant_id = 3) const uint kTypeY = 14;  // Also for bias and preactivation.
layout(constant_id = 4) const uint kActivation = 1;
layout(constant_id = 5) const uint kHasBias = 0;
layout(constant_id = 6) const uint kHasPreactivation = 0;
layout(constant_id = 7) const uint kBatchRank = 1;
// The way in which two neighbours can be loaded at once: 0 means not at all, 1 along k, 2 along the
// other axis.
layout(constant_id = 8) const uint kPairsA = 0;
layout(constant_id = 9) const uint kPairsB = 0;

BP_RECORD {
  uint64_t a, b, y, bias, preactivation;
  uint64_t batch_count;  // The products, counting each part.
  uint m, n, k;
  uint part_count, part_size;  // A part's elements along k.
  uint batch_extents[8];
  int64_t a_m, a_k, b_k, b_n, y_m, y_n, bias_n, preactivation_m, preactivation_n;  // In bytes.
  int64_t y_part;
  int64_t batch_a[8], batch_b[8], batch_y[8], batch_bias[8];
} BP_RECORD_NAME;

#include "activate.glsl"

uint64_t moved(uint64_t address, int64_t stride, uint steps) {
  return address + uint64_t(stride * int64_t(uint64_t(steps)));
}

// One tile of one product: where its matrices begin, and its part of k.
struct Tile {
  uint64_t a, b, y, bias;
  uint m, n;  // The first row and column.
  uint k;     // The elements along k.
};

// Returns the tile of this workgroup, which has rows x cols elements.
Tile find_tile(uint number, uint rows, uint cols) {
  const uint m_tiles = (record.m + rows - 1u) / rows, n_tiles = (record.n + cols - 1u) / cols;
  const uint product = number / (m_tiles * n_tiles);
  const uint place = number - product * (m_tiles * n_tiles);
  const uint batch = product / record.part_count, part = product - batch * record.part_count;
  const uint begin = part * record.part_size;
  Tile tile;
  tile.m = place / n_tiles * rows;
  tile.n = place % n_tiles * cols;
  tile.k = begin < record.k ? min(record.part_size, record.k - begin) : 0u;
  tile.a = moved(record.a, record.a_k, begin) +
           offset_of(batch, kBatchRank, record.batch_extents, record.batch_a);
  tile.b = moved(record.b, record.b_k, begin) +
           offset_of(batch, kBatchRank, record.batch_extents, record.batch_b);
  tile.y = moved(record.y, record.y_part, part) +
           offset_of(batch, kBatchRank, record.batch_extents, record.batch_y);
  tile.bias = record.bias + offset_of(batch, kBatchRank, record.batch_extents, record.batch_bias);
  return tile;
}

bool tile_exists(uint number, uint rows, uint cols) {
  const uint m_tiles = (record.m + rows - 1u) / rows, n_tiles = (record.n + cols - 1u) / cols;
  return uint64_t(number) < record.batch_count * uint64_t(m_tiles * n_tiles);
}

// Writes y[m, n].
void finish(Tile tile, uint m, uint n, float sum) {
  if (m >= record.m || n >= record.n) return;
  if (kHasBias != 0u) sum += load_f32(kTypeY, moved(tile.bias, record.bias_n, n));
  if (kHasPreactivation != 0u) {
    const uint64_t row = moved(record.preactivation, record.preactivation_m, m);
    store_f32(kTypeY, moved(row, record.preactivation_n, n), sum);
  }
  store_f32(kTypeY, moved(moved(tile.y, record.y_m, m), record.y_n, n), activate(sum));
}
