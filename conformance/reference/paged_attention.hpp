// Oracles of kv_cache_append and paged_attention. Every index is in range, but for slots below 0.
#pragma once

#include "conformance/reference/attention.hpp"

namespace bp::conformance::reference {

// Row slots[i] of the cache, which has (blocks, block_size) rows, becomes row i of x. A negative
// slot writes nothing.
template <typename N>
Array<N> kv_cache_append(Array<N> cache, const Array<N>& x, const Array<int64_t>& slots) {
  const int64_t width = cache.shape[2] * cache.shape[3];
  for (int64_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) continue;
    for (int64_t c = 0; c < width; ++c) cache[slots[i] * width + c] = x[i * width + c];
  }
  return cache;
}

// The shapes: q is (tokens, heads, width), the caches are (blocks, block_size, key heads, width).
template <typename N>
struct PagedAttention {
  Array<N> q, k_cache, v_cache;
  Array<int64_t> block_table, lengths, offsets;
  double scale = 1;
  int64_t window_left = 0;
  double softcap = 0;

  int64_t sequences() const { return lengths.size(); }
  int64_t queries(int64_t s) const { return offsets[s + 1] - offsets[s]; }

  // Returns the keys or values of a sequence as sdpa has them: (1, key heads, keys, width).
  Array<N> unpaged(const Array<N>& cache, int64_t s) const {
    const int64_t size = cache.shape[1], heads = cache.shape[2], width = cache.shape[3];
    const int64_t blocks = block_table.shape[1];
    Array<N> rows(Shape{1, heads, lengths[s], width});
    for (int64_t i = 0; i < rows.size(); ++i) {
      const int64_t c = i % width, key = i / width % lengths[s], head = i / width / lengths[s];
      const int64_t block = block_table[s * blocks + key / size];
      rows[i] = cache[((block * size + key % size) * heads + head) * width + c];
    }
    return rows;
  }

  // Returns the number of the row of q, with heads as rows, that is query i of a head.
  int64_t row(int64_t s, int64_t head, int64_t i) const {
    return (offsets[s] + i) * q.shape[1] + head;
  }

  // Returns a sequence as an attention of its own.
  Attention<N> sequence(int64_t s) const {
    const int64_t heads = q.shape[1], width = q.shape[2];
    Attention<N> a{Array<N>(Shape{1, heads, queries(s), width}),
                   unpaged(k_cache, s),
                   unpaged(v_cache, s),
                   {},
                   {}};
    for (int64_t i = 0; i < a.q.size(); ++i) {
      const int64_t query = i / width % queries(s), head = i / width / queries(s);
      a.q[i] = q[row(s, head, query) * width + i % width];
    }
    a.scale = scale;
    a.causal = Causal::kBottomRight;
    a.window_left = window_left;
    a.softcap = softcap;
    return a;
  }

  // Moves results of a sequence, (1, heads, queries, value width), to their tokens. `y` is (tokens,
  // heads, value width).
  template <typename From, typename To>
  void store(int64_t s, const From& from, To& y) const {
    const int64_t width = v_cache.shape[3], count = queries(s);
    for (int64_t i = 0; i < q.shape[1] * count * width; ++i) {
      const int64_t head = i / width / count, query = i / width % count;
      y[static_cast<size_t>(row(s, head, query) * width + i % width)] =
          from[static_cast<size_t>(i)];
    }
  }
};

// A row of no sequence gives 0.
template <typename N>
Array<N> paged_attention(const PagedAttention<N>& p) {
  Array<N> y(Shape{p.q.shape[0], p.q.shape[1], p.v_cache.shape[3]});
  for (int64_t s = 0; s < p.sequences(); ++s) p.store(s, sdpa(p.sequence(s)).y.data, y.data);
  return y;
}

}  // namespace bp::conformance::reference
