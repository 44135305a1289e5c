// An NCCL for tests, within one process: ranks are devices of the CUDA for tests, and meet on its
// streams as kernels of NCCL do. What waits for a rank waits in its stream, until the rank comes or
// the communicator is aborted.
#pragma once

#include <string>

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

// The table. Its functions share one state per process, or per plugin that this is linked into.
Nccl nccl();

// Lets every call of the function `name`, such as "ncclAllReduce", fail; "" ends that.
void fail_nccl_call(const std::string& name, ncclResult_t result);

// Sets what get_async_error() returns for every communicator that is ready. ncclSuccess ends this.
void fail_nccl_async(ncclResult_t result);

// Returns the number of communicators that were made and not ended.
int live_communicators();

}  // namespace bp::cuda::fake
