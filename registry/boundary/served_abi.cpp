#include "registry/boundary/served_abi.hpp"

#include "backplane/host.h"
#include "registry/boundary/fail.hpp"

namespace bp::core {

constinit const AbiRange kServedAbi{.major_min = BP_ABI_MAJOR,
                                    .major = BP_ABI_MAJOR,
                                    .minor_min = BP_ABI_MINOR_MIN,
                                    .minor = BP_ABI_MINOR};

bool serves_abi(const AbiRange& plugin) {
  const AbiRange& ours = kServedAbi;
  if (ours.major < plugin.major_min || plugin.major < ours.major) return false;
  // Before the freeze minors decide, and major 0 stands alone.
  return ours.major != 0 ||
         (plugin.major == 0 && plugin.minor_min <= ours.minor && ours.minor_min <= plugin.minor);
}

std::string abi_text(uint32_t major, uint32_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string served_abi_text() {
  return "ABI " + abi_text(kServedAbi.major, kServedAbi.minor_min) + " to " +
         abi_text(kServedAbi.major, kServedAbi.minor);
}

}  // namespace bp::core

bp_status bp_abi_version(uint32_t* out_major, uint32_t* out_minor) {
  if (out_major == nullptr) return bp::is_null("bp_abi_version: out_major");
  if (out_minor == nullptr) return bp::is_null("bp_abi_version: out_minor");
  *out_major = bp::core::kServedAbi.major;
  *out_minor = bp::core::kServedAbi.minor;
  return BP_OK;
}
