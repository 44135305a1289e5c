// The plugin on the CUDA for tests and the emulated device, without NVIDIA's libraries: the kernels
// of this backend run.
#include "backends/cuda/backend.hpp"
#include "backends/cuda/engines.hpp"
#include "backends/cuda/fake/cuda.hpp"

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  const bp_status status = bp::cuda::enter(request, out_reply, bp::cuda::fake::driver);
  if (status == BP_OK) {
    bp::cuda::Libraries& libraries =
        bp::cuda::instance(out_reply->backend->self).engines->libraries();
    libraries.leave_out_cublaslt();
    libraries.leave_out_cudnn();
  }
  return status;
}
