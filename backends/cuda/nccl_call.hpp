// One call of a process group as NCCL runs it. NCCL has fewer kinds of calls than the ABI. A call
// with uneven parts becomes a call for each part. Data between a root and all other ranks become
// sends and receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/library_tables.hpp"
#include "backplane/collective.h"
#include "backplane/shell/group_checks.hpp"

namespace bp::cuda {

// A call. It owns all its data, because it is submitted later if its stream is held back.
struct NcclCall : GroupCall {
  bool is_even = true;  // All parts of `send_counts` are equal.
  std::byte* send = nullptr;
  std::byte* receive = nullptr;
};

// Returns why NCCL does not run such calls, or an empty text if it does.
std::string refuse_nccl_call(bp_collective_kind kind, bp_reduction reduction, bp_dtype dtype);

// Returns the name of a kind, such as "all_reduce".
const char* collective_name(bp_collective_kind kind);

// Reductions that were made in NCCL for calls, and are ended after the calls.
class NcclReductions {
 public:
  NcclReductions(const Nccl& nccl, ncclComm_t comm) : nccl_(nccl), comm_(comm) {}
  NcclReductions(const NcclReductions&) = delete;
  ~NcclReductions();

  // Throws StatusError.
  ncclRedOp_t find(const NcclCall& call);

 private:
  const Nccl& nccl_;
  const ncclComm_t comm_;
  std::vector<ncclRedOp_t> made_;
};

// Submits a call to `stream`, within a group. `scratch` is 8 bytes of the device. Throws
// StatusError.
void submit_nccl_call(const Nccl& nccl, ncclComm_t comm, NcclReductions& reductions,
                      const NcclCall& call, void* scratch, cudaStream_t stream);

}  // namespace bp::cuda
