// The generator of a device: a seed, and how many calls have drawn from it.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>
#include <utility>

namespace bpt {

const at::Generator& default_generator(c10::DeviceIndex index);  // -1: the current device.
at::Generator new_generator(c10::DeviceIndex index);

// Seed and offset for one call of a random op. Each call has an offset of its own, and so a
// sequence of its own of Philox4x32-10: the library counts the blocks of a call in other words of
// the counter.
std::pair<uint64_t, uint64_t> next_random(const std::optional<at::Generator>& generator,
                                          c10::Device device);

}  // namespace bpt
