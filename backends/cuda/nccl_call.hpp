// One call of a process group as NCCL runs it. NCCL has fewer kinds than the ABI: parts of uneven
// size are calls for each part, and what goes between a root and all others is sends and receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/library_tables.hpp"
#include "backplane/collective.h"

namespace bp::cuda {

// By value: it is submitted later where its stream is held back.
struct NcclCall {
  bp_collective_kind kind = 0;
  bp_reduction reduction = 0;
  bp_dtype dtype = 0;
  uint32_t rank = 0, world_size = 0, root = 0;
  uint64_t tag = 0;
  double scale = 1;
  std::vector<uint64_t> counts;          // A part for each rank; all alike where they are even.
  std::vector<uint64_t> receive_counts;  // Of all_to_all.
  bool is_even = true;
  std::byte* send = nullptr;
  std::byte* receive = nullptr;
};

// Why NCCL does not run such calls; empty if it does.
std::string refuse_nccl_call(bp_collective_kind kind, bp_reduction reduction, bp_dtype dtype);

bool reduces(bp_collective_kind kind);
bool is_between_peers(bp_collective_kind kind);

// The name of a kind: "all_reduce".
const char* collective_name(bp_collective_kind kind);

// Elements that a rank sends and receives.
uint64_t sent_elements(const NcclCall& call);
uint64_t received_elements(const NcclCall& call);

// Reductions that NCCL was given for calls, ended behind them.
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
