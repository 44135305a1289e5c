/* The parts that the plugins of the loader's tests share: an instance that registers one device,
 * and tables that do as little as a load needs. */
#ifndef BACKPLANE_REGISTRY_TESTS_PLUGINS_PLUGIN_H_
#define BACKPLANE_REGISTRY_TESTS_PLUGINS_PLUGIN_H_

#include "backplane/backend.h"

/* The reply of every plugin that accepts. */
static inline bp_status accept(bp_entry_reply* reply, const bp_backend* backend) {
  reply->abi_major = BP_ABI_MAJOR;
  reply->abi_minor = BP_ABI_MINOR;
  reply->abi_major_min = reply->abi_major_max = BP_ABI_MAJOR;
  reply->backend = backend;
  return BP_OK;
}

static inline bp_status end_nothing(void* self, uint64_t timeout_ns) {
  (void)self, (void)timeout_ns;
  return BP_OK;
}

#endif
