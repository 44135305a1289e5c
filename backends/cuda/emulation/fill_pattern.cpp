// Fills memory with a pattern on the emulated device.
#include "backends/cuda/fake/cuda.hpp"
#include "backends/cuda/memory.hpp"

namespace bp::cuda {
namespace {

const char kEntry = 0;

void add_fill() {
  fake::add_kernel(&kEntry, [](void** args) -> std::function<void()> {
    auto* const to = *static_cast<std::byte**>(args[0]);
    const uint64_t size_bytes = *static_cast<const uint64_t*>(args[1]);
    const Pattern pattern = *static_cast<const Pattern*>(args[2]);
    return [=] {
      for (uint64_t i = 0; i < size_bytes; ++i) {
        to[i] = static_cast<std::byte>(pattern.bytes[i % pattern.size_bytes]);
      }
    };
  });
}

}  // namespace

void fill_pattern(const Driver& driver, cudaStream_t stream, std::byte* to, uint64_t size_bytes,
                  const Pattern& pattern) {
  if (size_bytes == 0) return;
  static const bool is_known = (add_fill(), true);
  static_cast<void>(is_known);
  Pattern copied = pattern;
  void* args[] = {&to, &size_bytes, &copied};
  check(driver, driver.cudaLaunchKernel(&kEntry, 1, 1, args, 0, stream), "fill");
}

}  // namespace bp::cuda
