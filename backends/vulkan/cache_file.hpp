// A pipeline cache on disk: what the driver gave, behind a header that shows damage.
//
//   "BPVKPC01"  8 bytes
//   size        8 bytes, of the data
//   hash        8 bytes, FNV-1a of the data
//   data        begins with the driver's own header, which names device and driver
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bp::vulkan {

// What a cache has to be of.
struct CacheIdentity {
  uint32_t vendor_id = 0, device_id = 0;
  std::array<uint8_t, 16> uuid{};
};

// The data in the file; empty if there is no such file, or if it cannot be used: `out_warning` then
// says why.
std::vector<std::byte> read_cache(const std::string& path, const CacheIdentity& identity,
                                  std::string& out_warning);

// Replaces the file at once, so that other processes see the old or the new one. False, with the
// reason, if that cannot be.
bool write_cache(const std::string& path, const std::vector<std::byte>& data,
                 std::string& out_warning);

}  // namespace bp::vulkan
