#include "backends/vulkan/kernels/submit.hpp"

#include <algorithm>
#include <string>

namespace bp::vulkan {

void fold_groups(const Env& env, uint64_t count, uint32_t (&out_groups)[3]) {
  const uint64_t rows = ceil_divide(count, env.max_groups(0));
  if (rows > env.max_groups(1)) {
    throw StatusError(BP_UNSUPPORTED, "launch: the device does not take the " +
                                          std::to_string(count) + " workgroups that this needs");
  }
  out_groups[1] = static_cast<uint32_t>(std::max<uint64_t>(rows, 1));
  out_groups[0] = static_cast<uint32_t>(ceil_divide(count, out_groups[1]));
  out_groups[2] = 1;
}

}  // namespace bp::vulkan
