/* The smallest plugin: it refuses every host, and says why. */
#include "backplane/backend.h"

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  (void)out_reply;
  const bp_host* host = request->host;
  return host->set_error(host->self, BP_UNSUPPORTED, "this chip is a sample without hardware");
}
