// Tables of the functions of NVIDIA's libraries that this backend calls. libraries.cpp fills them
// from opened libraries, and tests fill them with fakes. A failed call becomes a StatusError that
// names the function and the library's name of the error.
#pragma once

#include <string>

#include "backends/cuda/dialect.hpp"
#include "backplane/shell/boundary.hpp"

#if !BP_IS_HIP
#include <cublasLt.h>
#include <cudnn_graph.h>
#include <nccl.h>
#endif

namespace bp::cuda {

#if BP_IS_HIP

// AMD's GPUs have none of these libraries, so nothing fills the tables.
struct CublasLt {};
struct Cudnn {};
struct Nccl {};

#else

struct CublasLt {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&::cublasLtMatmulDescCreate) desc_create;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&::cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&::cublasLtGetStatusName) status_name;
};

struct Cudnn {
  decltype(&::cudnnCreate) create;
  decltype(&::cudnnDestroy) destroy;
  decltype(&::cudnnSetStream) set_stream;
  decltype(&::cudnnGetErrorString) error_string;
  decltype(&::cudnnGetVersion) version;
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&::cudnnBackendSetAttribute) set_attribute;
  decltype(&::cudnnBackendGetAttribute) get_attribute;
  decltype(&::cudnnBackendFinalize) finalize;
  decltype(&::cudnnBackendExecute) execute;
};

struct Nccl {
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRankConfig) init_rank;
  decltype(&::ncclCommSplit) split;
  decltype(&::ncclCommFinalize) finalize;
  decltype(&::ncclCommDestroy) destroy;
  decltype(&::ncclCommAbort) abort;
  decltype(&::ncclCommGetAsyncError) get_async_error;
  decltype(&::ncclCommCount) count;
  decltype(&::ncclCommUserRank) user_rank;
  decltype(&::ncclGetErrorString) error_string;
  decltype(&::ncclGetLastError) last_error;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclReduce) reduce;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) receive;
  decltype(&::ncclRedOpCreatePreMulSum) create_scaled_sum;
  decltype(&::ncclRedOpDestroy) destroy_reduction;
};

// Return the status of a library's failure. An argument that a library refuses is a bug of this
// backend, because the caller's arguments were checked before. A failed execution leaves the
// context unusable.
bp_status status_of(cublasStatus_t status);
bp_status status_of(cudnnStatus_t status);
bp_status status_of(ncclResult_t result);

// Throw StatusError unless the call succeeded; `call` is the function's name.
void check(const CublasLt& library, cublasStatus_t status, const char* call);
void check(const Cudnn& library, cudnnStatus_t status, const char* call);
// Throws StatusError unless the call succeeded, or goes on in the background.
void check(const Nccl& library, ncclResult_t result, const char* call);

#endif

// A library could not run a kernel. It does not say whether the launch was wrong or the device is
// lost, so who submits work asks CUDA (run_launch()).
class ExecutionFailed : public StatusError {
 public:
  explicit ExecutionFailed(const std::string& text) : StatusError(BP_INTERNAL, text) {}
};

}  // namespace bp::cuda
