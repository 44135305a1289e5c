#include "backends/cuda/library_tables.hpp"

namespace bp::cuda {
namespace {

std::string failure_text(const char* call, const char* name) {
  return std::string(call) + " failed: " + (name == nullptr ? "?" : name);
}

bool could_not_execute(cublasStatus_t status) {
  return status == CUBLAS_STATUS_EXECUTION_FAILED || status == CUBLAS_STATUS_MAPPING_ERROR;
}

bool could_not_execute(cudnnStatus_t status) {
  return CUDNN_STATUS_CATEGORY(static_cast<int>(status)) == CUDNN_STATUS_EXECUTION_FAILED;
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
  const bool is_unsupported =
      CUDNN_STATUS_CATEGORY(static_cast<int>(status)) == CUDNN_STATUS_NOT_SUPPORTED;
  return is_unsupported ? BP_UNSUPPORTED : BP_INTERNAL;
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
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text = failure_text(call, library.status_name(status));
  if (could_not_execute(status)) throw ExecutionFailed(text);
  throw StatusError(status_of(status), text);
}

void check(const Cudnn& library, cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string text = failure_text(call, library.error_string(status));
  if (could_not_execute(status)) throw ExecutionFailed(text);
  throw StatusError(status_of(status), text);
}

void check(const Nccl& library, ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw StatusError(status_of(result), failure_text(call, library.error_string(result)));
}

}  // namespace bp::cuda
