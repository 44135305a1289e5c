/* A plugin that accepts and delivers nothing. */
#include "plugin.h"

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  (void)request;
  return accept(out_reply, NULL);
}
