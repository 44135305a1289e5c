#include "registry/files/sha256.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace bp {
namespace {

using Words = std::array<uint32_t, 8>;

constexpr size_t kBlockBytes = 64;

// The standard defines its constants as the first 32 bits of the fractional parts of roots of the
// first primes; integers alone find them.
constexpr bool is_prime(uint32_t n) {
  for (uint32_t d = 2; d * d <= n; ++d) {
    if (n % d == 0) return false;
  }
  return n > 1;
}

__extension__ using Wide = unsigned __int128;

// Returns floor(n^(1/degree) * 2^32) modulo 2^32, for the square and the cube root.
constexpr uint32_t root_fraction(uint32_t n, int degree) {
  uint64_t low = 0, high = uint64_t{1} << 36;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    // Compares middle^degree with n * 2^(32 * degree). For a cube, both sides lose their lowest 32
    // bits.
    const Wide square = Wide{middle} * middle;
    const bool fits =
        degree == 2
            ? square <= Wide{n} << 64
            : (square >> 32) * middle + ((square & 0xFFFFFFFF) * middle >> 32) < Wide{n} << 64;
    (fits ? low : high) = middle;
  }
  return static_cast<uint32_t>(low);
}

template <size_t kCount>
constexpr std::array<uint32_t, kCount> root_fractions(int degree) {
  std::array<uint32_t, kCount> found{};
  uint32_t n = 2;
  for (uint32_t& each : found) {
    while (!is_prime(n)) ++n;
    each = root_fraction(n++, degree);
  }
  return found;
}

constexpr Words kStart = root_fractions<8>(2);
constexpr std::array<uint32_t, 64> kRounds = root_fractions<64>(3);
static_assert(kStart[0] == 0x6a09e667 && kStart[7] == 0x5be0cd19);
static_assert(kRounds[0] == 0x428a2f98 && kRounds[63] == 0xc67178f2);

uint32_t big_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void add_block(Words& sum, const unsigned char* block) {
  std::array<uint32_t, 64> schedule;
  for (size_t i = 0; i < 16; ++i) schedule[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < schedule.size(); ++i) {
    const uint32_t near = schedule[i - 2], far = schedule[i - 15];
    schedule[i] = schedule[i - 16] + schedule[i - 7] +
                  (std::rotr(far, 7) ^ std::rotr(far, 18) ^ far >> 3) +
                  (std::rotr(near, 17) ^ std::rotr(near, 19) ^ near >> 10);
  }
  Words w = sum;
  for (size_t i = 0; i < schedule.size(); ++i) {
    const uint32_t mixed = w[7] + kRounds[i] + schedule[i] + ((w[4] & w[5]) ^ (~w[4] & w[6])) +
                           (std::rotr(w[4], 6) ^ std::rotr(w[4], 11) ^ std::rotr(w[4], 25));
    const uint32_t majority = (w[0] & w[1]) ^ (w[0] & w[2]) ^ (w[1] & w[2]);
    const uint32_t turned = std::rotr(w[0], 2) ^ std::rotr(w[0], 13) ^ std::rotr(w[0], 22);
    w = {mixed + majority + turned, w[0], w[1], w[2], w[3] + mixed, w[4], w[5], w[6]};
  }
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += w[i];
}

}  // namespace

std::string sha256(const void* bytes, size_t size) {
  const auto* data = static_cast<const unsigned char*>(bytes);
  Words sum = kStart;
  size_t done = 0;
  for (; size - done >= kBlockBytes; done += kBlockBytes) add_block(sum, data + done);

  // The tail has the rest, a one bit, zeros, and the number of bits at the end of the last block.
  std::array<unsigned char, 2 * kBlockBytes> tail{};
  const size_t rest = size - done;
  if (rest != 0) std::memcpy(tail.data(), data + done, rest);
  tail[rest] = 0x80;
  const size_t tail_bytes = rest + 9 <= kBlockBytes ? kBlockBytes : 2 * kBlockBytes;
  for (size_t i = 0; i < 8; ++i) {
    tail[tail_bytes - 1 - i] = static_cast<unsigned char>(uint64_t{size} * 8 >> 8 * i);
  }
  for (size_t at = 0; at < tail_bytes; at += kBlockBytes) add_block(sum, tail.data() + at);

  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint32_t word : sum) {
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  }
  return text;
}

}  // namespace bp
