// The entry of a plugin that runs the kernels of this backend on the fake CUDA and the emulated
// device.
//
// The option `libraries` has one of three values. "none", the default, leaves cuBLASLt and cuDNN
// out, so that the backend's own kernels compute products and convolutions. "fake" adds the fake
// libraries. "broken" adds fake libraries that compute wrong results on purpose, to see that the
// suite finds them.
//
// The option `shared_memory` is the most shared memory of a block, in KiB: "227", the default, as
// on an H200, or "99", as on consumer devices.
#include <string_view>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/engines.hpp"
#include "backends/cuda/fake/cublaslt.hpp"
#include "backends/cuda/fake/cuda.hpp"
#include "backends/cuda/fake/cudnn.hpp"
#include "backends/cuda/fake/nccl.hpp"
#include "backplane/shell/options.hpp"

namespace bp::cuda {
namespace {

void put_libraries(const Instance& i) {
  Libraries& libraries = i.engines->libraries();
  const std::string_view wanted = find_option(*i.host, "libraries").value_or("none");
  libraries.put(fake::nccl());
  if (wanted == "none") {
    libraries.leave_out_cublaslt();
    libraries.leave_out_cudnn();
  } else if (wanted == "fake" || wanted == "broken") {
    libraries.put(wanted == "fake" ? fake::cublaslt() : fake::broken_cublaslt());
    libraries.put(wanted == "fake" ? fake::cudnn() : fake::broken_cudnn());
  } else {
    refuse_option("libraries", wanted, "none, fake or broken");
  }
}

void limit_shared_memory(const bp_host& host) {
  const std::string_view kib = find_option(host, "shared_memory").value_or("227");
  if (kib != "227" && kib != "99") refuse_option("shared_memory", kib, "227 or 99");
  fake::limit_shared_memory(kib == "99" ? 99 : 227);
}

}  // namespace
}  // namespace bp::cuda

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  const bp_status status = bp::cuda::enter(request, out_reply, bp::cuda::fake::driver);
  if (status != BP_OK) return status;
  return bp::guarded(*request->host, [&]() -> bp_status {
    // Devices are asked for their limits when they are first used.
    bp::cuda::limit_shared_memory(*request->host);
    bp::cuda::put_libraries(bp::cuda::instance(out_reply->backend->self));
    return BP_OK;
  });
}
