#include "backends/cuda/library_tables.hpp"

#include <string>

namespace bp::cuda {
namespace {

[[noreturn]] void fail(bp_status status, const char* call, const char* name) {
  throw StatusError(status, std::string(call) + " failed: " + (name == nullptr ? "?" : name));
}

}  // namespace

bp_status status_of(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return BP_OK;
    case CUBLAS_STATUS_ALLOC_FAILED:
      return BP_OUT_OF_MEMORY;
    case CUBLAS_STATUS_NOT_SUPPORTED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return BP_UNSUPPORTED;
    case CUBLAS_STATUS_EXECUTION_FAILED:
    case CUBLAS_STATUS_MAPPING_ERROR:
      return BP_DEVICE_LOST;
    default:
      return BP_INTERNAL;
  }
}

bp_status status_of(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return BP_OK;
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    return BP_OUT_OF_MEMORY;
  }
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case CUDNN_STATUS_NOT_SUPPORTED:
      return BP_UNSUPPORTED;
    case CUDNN_STATUS_EXECUTION_FAILED:
      return BP_DEVICE_LOST;
    default:
      return BP_INTERNAL;
  }
}

bp_status status_of(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
    case ncclInProgress:
      return BP_OK;
    case ncclRemoteError:  // Another rank is gone.
      return BP_ABORTED;
    case ncclInvalidUsage:
      return BP_INVALID_ARGUMENT;
    default:
      return BP_INTERNAL;
  }
}

void check(const CublasLt& library, cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(status_of(status), call, library.status_name(status));
}

void check(const Cudnn& library, cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) fail(status_of(status), call, library.error_string(status));
}

void check(const Nccl& library, ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  fail(status_of(result), call, library.error_string(result));
}

}  // namespace bp::cuda
