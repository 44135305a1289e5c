// Eight bytes at a time, with eight tables (Kounavis and Berry 2008, "slicing-by-8"). It needs no
// instructions of a special processor.
#include "runtime/distributed/checksum.hpp"

#include <array>

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

}  // namespace

uint32_t crc32c(const void* bytes, size_t size) {
  const auto* next = static_cast<const uint8_t*>(bytes);
  uint32_t rest = 0xFFFFFFFF;
  for (; size >= kSlices; size -= kSlices, next += kSlices) {
    uint32_t sum = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      const uint32_t mixed = i < 4 ? (rest >> (8 * i)) & 0xFF : 0;
      sum ^= kTables[kSlices - 1 - i][next[i] ^ mixed];
    }
    rest = sum;
  }
  for (; size > 0; --size, ++next) rest = rest >> 8 ^ kTables[0][(rest ^ *next) & 0xFF];
  return ~rest;
}

}  // namespace bp::distributed
