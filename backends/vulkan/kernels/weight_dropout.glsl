// The dropout of attention: each weight is multiplied by 0 or by 1 / (1 - p), as op dropout
// multiplies ones of shape (batch, heads, queries, keys).
#include "philox.glsl"

struct Dropout {
  uint64_t seed_address, offset_address;  // If 0, the value is here.
  uint64_t seed, offset;
  uint64_t heads, queries, keys;  // Of all weights, to count them.
  uint threshold;                 // A word whose upper 24 bits are below it drops its weight.
  float scale;                    // For the weights that are kept.
};

// Returns the number of a weight. The caller fills the batch and the head, of all heads.
uint64_t weight_number(Dropout d, uint batch, uint head, uint query, uint key) {
  const uint64_t row = (uint64_t(batch) * d.heads + uint64_t(head)) * d.queries + uint64_t(query);
  return row * d.keys + uint64_t(key);
}

uvec4 words_of_block(Dropout d, uint64_t block) {
  uint64_t seed = d.seed, offset = d.offset;
  if (d.seed_address != 0ul) seed = Bytes8(d.seed_address).value;
  if (d.offset_address != 0ul) offset = Bytes8(d.offset_address).value;
  return random_words(seed, offset, block);
}

float factor_of_word(Dropout d, uint word) { return word >> 8 >= d.threshold ? d.scale : 0.0; }

// Returns the factor of a weight.
float dropout_factor(Dropout d, uint64_t number) {
  return factor_of_word(d, words_of_block(d, number >> 2)[uint(number) & 3u]);
}

// Returns the factors of four weights that follow each other.
vec4 dropout_factors(Dropout d, uint64_t number) {
  const uint skipped = uint(number) & 3u;
  const uvec4 first = words_of_block(d, number >> 2);
  uvec4 second = first;
  if (skipped != 0u) second = words_of_block(d, (number >> 2) + 1ul);
  vec4 factors;
  [[unroll]] for (uint i = 0u; i < 4u; ++i) {
    const uint at = skipped + i;
    factors[i] = factor_of_word(d, at < 4u ? first[at & 3u] : second[at & 3u]);
  }
  return factors;
}
