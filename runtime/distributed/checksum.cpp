// Processors with SSE4.2 have an instruction for eight bytes. Others take eight bytes at a time
// with eight tables (Kounavis and Berry 2008, "slicing-by-8").
#include "runtime/distributed/checksum.hpp"

#include <array>
#include <cstring>

namespace bp::distributed {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Of Castagnoli, with its bits reversed.
constexpr size_t kSlices = 8;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

// Entry [k][b] is the remainder of byte b with k bytes of zeros behind it.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ ((rest & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = rest;
  }
  for (size_t slice = 1; slice < kSlices; ++slice) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[slice - 1][byte];
      tables[slice][byte] = before >> 8 ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// The functions take and give the rest before its last inversion.

uint32_t add_by_tables(uint32_t rest, const uint8_t* next, size_t size) {
  for (; size >= kSlices; size -= kSlices, next += kSlices) {
    uint32_t sum = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      const uint32_t mixed = i < 4 ? (rest >> (8 * i)) & 0xFF : 0;
      sum ^= kTables[kSlices - 1 - i][next[i] ^ mixed];
    }
    rest = sum;
  }
  for (; size > 0; --size, ++next) rest = rest >> 8 ^ kTables[0][(rest ^ *next) & 0xFF];
  return rest;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t add_by_instruction(uint32_t rest, const uint8_t* next,
                                                              size_t size) {
  for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t), next += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, next, sizeof(word));
    rest = static_cast<uint32_t>(__builtin_ia32_crc32di(rest, word));
  }
  for (; size > 0; --size, ++next) rest = __builtin_ia32_crc32qi(rest, *next);
  return rest;
}
#endif

}  // namespace

uint32_t crc32c(const void* bytes, size_t size) {
  const auto* const next = static_cast<const uint8_t*>(bytes);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~add_by_instruction(0xFFFFFFFF, next, size);
#endif
  return ~add_by_tables(0xFFFFFFFF, next, size);
}

uint32_t crc32c_by_tables(const void* bytes, size_t size) {
  return ~add_by_tables(0xFFFFFFFF, static_cast<const uint8_t*>(bytes), size);
}

}  // namespace bp::distributed
