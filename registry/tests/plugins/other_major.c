/* A backend that only serves hosts of another ABI. */
#include "plugin.h"

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  const bp_host* host = request->host;
  out_reply->abi_major_min = 7;
  out_reply->abi_major_max = 8;
  return host->set_error(host->self, BP_INCOMPATIBLE, "this backend serves ABI 7.0 to 8.3");
}
