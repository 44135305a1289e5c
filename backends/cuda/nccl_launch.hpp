// How submitted calls of process groups reach NCCL.
//
// NCCL puts a call on its stream only after it has made the connections that the call needs, for
// which the other ranks must come. It does this in the background, and takes no other call of the
// communicator meanwhile. So each rank has a queue for its calls, which threads of the backend
// work off. The streams of a call are held from its submission until NCCL has put it there, so
// that later work comes behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/nccl_world.hpp"

namespace bp::cuda {

// One checked call.
struct NcclSubmission {
  std::shared_ptr<NcclWorld> world;
  NcclMember* member = nullptr;
  std::shared_ptr<Lane> lane;
  NcclCall call;
  uint64_t timeout_ns = 0;
};

// Submits calls of one rank, as one group of NCCL's, behind the earlier calls of the rank and the
// earlier work of their streams. Never waits. A call that fails later fails its stream and ends its
// world.
void launch_calls(NcclWatch& watch, std::vector<NcclSubmission> calls);

}  // namespace bp::cuda
