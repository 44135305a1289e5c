// One descriptor of cuDNN's backend API: a tensor, an operation, a graph, a plan and so on.
#pragma once

#include <cstdint>
#include <utility>

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda {

// Owns one descriptor of the library. Its functions throw StatusError if the library fails.
class DnnDescriptor {
 public:
  DnnDescriptor(const Cudnn& library, cudnnBackendDescriptorType_t type) : library_(&library) {
    check(library, library.create_descriptor(type, &handle_), "cudnnBackendCreateDescriptor");
  }
  DnnDescriptor(DnnDescriptor&& other) noexcept
      : library_(other.library_), handle_(std::exchange(other.handle_, nullptr)) {}
  DnnDescriptor& operator=(DnnDescriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(library_, other.library_);
    return *this;
  }
  ~DnnDescriptor() {
    if (handle_ != nullptr) library_->destroy_descriptor(handle_);
  }

  cudnnBackendDescriptor_t get() const { return handle_; }

  DnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     int64_t count, const void* values) {
    check(*library_, library_->set_attribute(handle_, name, type, count, values),
          "cudnnBackendSetAttribute");
    return *this;
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, int64_t value) {
    return set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, bool value) {
    return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, const DnnDescriptor& other) {
    return set(name, other.get());
  }
  DnnDescriptor& set(cudnnBackendAttributeName_t name, const int64_t* values, int count) {
    return set(name, CUDNN_TYPE_INT64, count, values);
  }

  void finalize() { check(*library_, library_->finalize(handle_), "cudnnBackendFinalize"); }
  // Finalizes the descriptor, and returns whether the library takes it.
  bool is_taken() {
    const cudnnStatus_t status = library_->finalize(handle_);
    if (status_of(status) == BP_UNSUPPORTED ||
        CUDNN_STATUS_CATEGORY(static_cast<int>(status)) == CUDNN_STATUS_BAD_PARAM) {
      return false;
    }
    check(*library_, status, "cudnnBackendFinalize");
    return true;
  }

 private:
  const Cudnn* library_;
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace bp::cuda
