// Fuzzes the file of a pipeline cache. The file is used, or ignored with a warning, and a file that
// is used is whole.
#include <cstring>
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "api/fuzz/scratch.hpp"
#include "backends/vulkan/cache_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using bp::fuzz::check;
  static const bp::fuzz::Scratch scratch;
  constexpr bp::vulkan::CacheIdentity kIdentity{0x1002, 0x73bf, {1, 2, 3, 4}};
  const std::string path = scratch.write("cache.bin", bp::fuzz::text_of(data, size));
  std::string warning;
  const std::vector<std::byte> read = bp::vulkan::read_cache(path, kIdentity, warning);
  check(read.empty() != warning.empty(), "there is data, or a warning", warning);
  if (read.empty()) {
    // Here the header is valid, and the driver's own part decides.
    std::vector<std::byte> raw(size);
    if (size != 0) std::memcpy(raw.data(), data, size);
    check(bp::vulkan::write_cache(path, raw, warning), "a file is replaced", warning);
    warning.clear();
    const std::vector<std::byte> again = bp::vulkan::read_cache(path, kIdentity, warning);
    check(again == raw || (again.empty() && !warning.empty()),
          "what was written comes back, or is of another driver", warning);
    return 0;
  }
  check(read.size() == size - 24, "the data is all that follows the header");
  check(std::memcmp(read.data(), data + 24, read.size()) == 0, "and is what the file has");
  return 0;
}
