#include "backends/sim/lane.hpp"

#include <chrono>
#include <thread>

namespace bp::sim {
namespace {

// Returns the SplitMix64 hash, which is the same on every machine.
uint64_t mix(uint64_t word) {
  word += 0x9E3779B97F4A7C15u;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
}

}  // namespace

void Lane::pause() {
  const DelayOptions delays = delays_.get();
  if (delays.bound_us == 0 || delays.probability <= 0) return;
  const uint64_t draw = mix(mix(delays.seed ^ mix(stream_number_)) + drawn_++);
  const double unit = static_cast<double>(draw >> 32) * 0x1p-32;
  if (unit >= delays.probability) return;
  const uint64_t length_us = 1 + (draw & 0xFFFFFFFFu) % delays.bound_us;
  std::this_thread::sleep_for(std::chrono::microseconds(length_us));
}

OpenUses::OpenUses(const std::vector<Use>& uses) : uses_(uses) {
  try {
    for (; open_ < uses_.size(); ++open_) uses_[open_].open();
  } catch (...) {
    while (open_-- > 0) uses_[open_].close();
    throw;
  }
}

OpenUses::~OpenUses() {
  while (open_-- > 0) uses_[open_].close();
}

void corrupt(const std::vector<Use>& uses) {
  for (size_t i = uses.size(); i-- > 0;) {
    const Use& use = uses[i];
    if (use.access != Access::kWrite || use.size_bytes == 0) continue;
    use.address()[use.size_bytes / 2] ^= std::byte{0x55};
    return;
  }
}

}  // namespace bp::sim
