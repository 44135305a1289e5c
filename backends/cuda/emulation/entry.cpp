// The plugin on the CUDA for tests, without libraries.
#include "backends/cuda/backend.hpp"
#include "backends/cuda/fake/cuda.hpp"

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  return bp::cuda::enter(request, out_reply, bp::cuda::fake::driver);
}
