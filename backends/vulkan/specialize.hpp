// Shaders without the code that their constants rule out.
//
// A shader of the kernels has the formulas of many ops, and its constants choose one. A driver
// translates and optimises all of a module before it puts the constants in. On a busy machine,
// lavapipe took 2.2 s for a pipeline of exp2 with the formulas of all ops, and takes 0.3 s without
// them. So the code is left out before the driver sees it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bp::vulkan {

// Returns the words of a SPIR-V module in which `constants` are the specialisation constants 0, 1
// and so on. Of branches and switches on them only the chosen ones are left, and functions that
// nothing calls are gone. The words must be those of a valid module with one entry point. The
// constants keep their numbers, so the same specialisation serves both modules.
std::vector<uint32_t> specialize(std::span<const uint32_t> words,
                                 std::span<const uint32_t> constants);

}  // namespace bp::vulkan
