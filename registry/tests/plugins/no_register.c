/* A plugin whose registration fails. */
#include "plugin.h"

static const bp_host* host;

static bp_status register_all(void* self, const bp_registrar* r) {
  (void)self, (void)r;
  return host->set_error(host->self, BP_INTERNAL, "the firmware does not answer");
}

static const bp_backend backend = {.struct_size = sizeof(bp_backend),
                                   .struct_type = BP_STRUCT_BACKEND,
                                   .name = "test.no_register",
                                   .version = "1",
                                   .register_all = register_all,
                                   .shutdown = end_nothing};

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  host = request->host;
  return accept(out_reply, &backend);
}
