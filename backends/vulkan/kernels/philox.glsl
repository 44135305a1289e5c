// Philox4x32-10 (Salmon and others, 2011). Block b of (seed, offset) has the counter (b low, b high,
// offset low, offset high) and the key (seed low, seed high), and gives four words.
uvec4 philox(uvec4 counter, uvec2 key) {
  [[unroll]] for (uint round = 0u; round < 10u; ++round) {
    uint high0, low0, high1, low1;
    umulExtended(0xD2511F53u, counter.x, high0, low0);
    umulExtended(0xCD9E8D57u, counter.z, high1, low1);
    counter = uvec4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
    key += uvec2(0x9E3779B9u, 0xBB67AE85u);
  }
  return counter;
}

uvec4 random_words(uint64_t seed, uint64_t offset, uint64_t block) {
  return philox(uvec4(unpackUint2x32(block), unpackUint2x32(offset)), unpackUint2x32(seed));
}
