// The entry of a plugin that runs on the fake CUDA and the fake NCCL.
#include "backends/cuda/backend.hpp"
#include "backends/cuda/engines.hpp"
#include "backends/cuda/fake/cuda.hpp"
#include "backends/cuda/fake/nccl.hpp"

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  const bp_status status = bp::cuda::enter(request, out_reply, bp::cuda::fake::driver);
  if (status == BP_OK) {
    const bp::cuda::Instance& i = bp::cuda::instance(out_reply->backend->self);
    bp::cuda::Libraries& libraries = i.engines->libraries();
    libraries.put(bp::cuda::fake::nccl());
    libraries.leave_out_cublaslt();
    libraries.leave_out_cudnn();
  }
  return status;
}
