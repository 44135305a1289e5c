#include "conformance/numerics/philox.hpp"

namespace bp::conformance {
namespace {

struct Product {
  uint32_t high, low;
};

Product multiply(uint32_t a, uint32_t b) {
  const uint64_t product = uint64_t{a} * b;
  return {static_cast<uint32_t>(product >> 32), static_cast<uint32_t>(product)};
}

}  // namespace

PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const Product first = multiply(0xD2511F53u, counter[0]);
    const Product second = multiply(0xCD9E8D57u, counter[2]);
    counter = {second.high ^ counter[1] ^ key[0], second.low, first.high ^ counter[3] ^ key[1],
               first.low};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

uint64_t element_bits(uint64_t key, uint32_t tensor, uint64_t index) {
  const PhiloxCounter words =
      philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), tensor, 0},
             {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  return words[0] | (uint64_t{words[1]} << 32);
}

}  // namespace bp::conformance
