/* The entry, and what it registers. Copy this folder, rename "acme.template", and fill in one file
 * after the other: `bp-conformance run ./libmychip.so` says what is right, wrong and missing. */
#include <stdlib.h>

#include "template.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

static bp_status register_all(void* self, const bp_registrar* r) {
  instance* i = self;
  const bp_kernel* const kernels[] = {&i->add};
  bp_registrar known; /* The registrar as this build knows it; that of a newer host is longer. */
  const uint32_t first = offsetof(bp_registrar, add_ops) + sizeof(void*);
  bp_status status = bp_struct_read(r, first, &known, sizeof(known), NULL);
  if (status != BP_OK) return fail(i, status, "register_all: the registrar cannot be read");
  status = r->add_device(r->self, 0, NULL, &i->devices, NULL);
  if (status == BP_OK) status = r->add_allocator(r->self, 0, NULL, &i->allocator, NULL);
  if (status == BP_OK) status = r->add_streams(r->self, 0, NULL, &i->streams, &i->events, NULL);
  if (status == BP_OK) status = r->add_kernels(r->self, 0, NULL, 1, kernels, NULL);
  return status;
}

static bp_status shutdown_instance(void* self, uint64_t timeout_ns) {
  (void)timeout_ns; /* No work runs behind a call. */
  free(self);
  return BP_OK;
}

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  const bp_host* host = request->host;
  const uint32_t first = offsetof(bp_entry_reply, abi_major_max) + sizeof(uint32_t);
  bp_entry_reply known;
  const int fits = bp_struct_read(out_reply, first, &known, sizeof(known), NULL) == BP_OK;
  instance* i;
  if (fits) out_reply->abi_major_min = out_reply->abi_major_max = BP_ABI_MAJOR;
  if (!fits || !bp_abi_is_served(request)) {
    return host->set_error(host->self, BP_INCOMPATIBLE,
                           "acme.template serves ABI " TEXT(BP_ABI_MAJOR) "." TEXT(BP_ABI_MINOR));
  }
  i = calloc(1, sizeof(instance));
  if (i == NULL) return host->set_error(host->self, BP_OUT_OF_MEMORY, "out of host memory");
  i->host = host;
  i->backend = (bp_backend){.struct_size = sizeof(bp_backend),
                            .struct_type = BP_STRUCT_BACKEND,
                            .self = i,
                            .name = "acme.template",
                            .version = "0.1",
                            .register_all = register_all,
                            .shutdown = shutdown_instance};
  init_device(i);
  init_memory(i);
  init_streams(i);
  init_kernels(i);
  out_reply->abi_major = BP_ABI_MAJOR;
  out_reply->abi_minor = BP_ABI_MINOR;
  out_reply->backend = &i->backend;
  return BP_OK;
}
