// A pipeline cache on disk: the driver's data behind a header that shows damage.
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

// The device and driver that a cache must be made for.
struct CacheIdentity {
  uint32_t vendor_id = 0, device_id = 0;
  std::array<uint8_t, 16> uuid{};
};

// Returns the data in the file. They are empty if there is no such file, or if it cannot be used;
// in the latter case `out_warning` says why.
std::vector<std::byte> read_cache(const std::string& path, const CacheIdentity& identity,
                                  std::string& out_warning);

// Replaces the file atomically, so that other processes see the old or the new file. Returns false,
// and gives the reason, if it cannot.
bool write_cache(const std::string& path, const std::vector<std::byte>& data,
                 std::string& out_warning);

}  // namespace bp::vulkan
