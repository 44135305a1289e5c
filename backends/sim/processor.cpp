#include "backends/sim/processor.hpp"

namespace bp::sim {

const char* missing_processor_feature() {
#if BP_SIM_NEEDS_AVX2
  if (!__builtin_cpu_supports("avx2")) return "AVX2";
  if (!__builtin_cpu_supports("fma")) return "FMA";
  if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("pclmul")) return "AES";
#endif
  return nullptr;
}

}  // namespace bp::sim
