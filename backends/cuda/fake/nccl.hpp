// A fake NCCL for tests, within one process. Its ranks are devices of the fake CUDA, and they meet
// on its streams, as kernels of NCCL do. Work that waits for a rank waits in its stream until the
// rank comes or the communicator is aborted.
//
// Connections are lazy: the first call of each kind reaches its stream when the other ranks have
// made it too, and the communicator is in progress until then. Meanwhile it takes no further call,
// and the thread that made the call begins no further group, which is what NCCL before 2.27 asks.
#pragma once

#include <string>
#include <vector>

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

// Returns the table of its functions. They share one state in a program or plugin that links them.
Nccl nccl();

// Makes every call of the function `name`, such as "ncclAllReduce", fail with `result`. If `name`
// is "", no call fails.
void fail_nccl_call(const std::string& name, ncclResult_t result);

// Sets what get_async_error() returns for every communicator that all ranks have joined.
// ncclSuccess ends this.
void fail_nccl_async(ncclResult_t result);

// Returns maxCTAs of each communicator that was made or split since the last call.
std::vector<int> take_max_ctas();

// Returns the number of communicators that were made and not ended.
int live_communicators();

}  // namespace bp::cuda::fake
