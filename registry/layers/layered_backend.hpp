// A backend that wraps a backend: the part that one layer puts between the host and the side
// behind.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "registry/layers/layer.hpp"

namespace bp::layers {

class LayeredBackend {
 public:
  LayeredBackend(std::string name, std::unique_ptr<Layer> layer)
      : name_(std::move(name)), layer_(std::move(layer)) {}
  LayeredBackend(const LayeredBackend&) = delete;

  const std::string& name() const { return name_; }
  Layer& layer() { return *layer_; }
  const Layer& layer() const { return *layer_; }

  // Puts the layer in front of `next`, which may be shorter than this build's struct.
  bp_status begin(const bp_backend& next);

  // Valid after begin().
  const bp_backend* backend() const { return &backend_; }

 private:
  // The registrar that the side behind sees during its register_all().
  struct Registration {
    LayeredBackend* self;
    const bp_registrar* host;
  };

  // Returns NULL if the layer hides the table. A table that cannot be read is passed on as it is.
  template <typename Table>
  const Table* wrap(const Table* theirs, uint64_t count, bp_device* const* devices);
  // Returns NULL if the layer hides the kernel.
  const bp_kernel* wrap(const bp_kernel& theirs);
  std::shared_ptr<WrappedKernel> make_kernel(const bp_kernel& theirs);

  // ---- Tables through which kernels travel ----
  template <typename Table>
  struct Adapter;
  template <typename Table>
  const Table& adapt(const Table& theirs);
  const bp_kernel* unwrap(const bp_kernel* kernel);
  const bp_kernel* wrap_lent(bp_executable* executable, const bp_kernel* theirs);
  static bp_status preferred_layout(void* self, bp_device* device, const bp_kernel* kernel,
                                    uint32_t argument, const void* args,
                                    const bp_layout** out_layout) noexcept;
  static bp_status executable_kernel(void* self, bp_executable* executable,
                                     const bp_kernel** out_kernel) noexcept;
  static bp_status release_executable(void* self, bp_executable* executable) noexcept;

  template <typename Table, auto kAdd>
  static bp_status add(void* self, uint64_t count, bp_device* const* devices, const Table* table,
                       bp_add_result* out_result) noexcept;
  static bp_status add_streams(void* self, uint64_t count, bp_device* const* devices,
                               const bp_stream_ops* streams, const bp_event_ops* events,
                               bp_add_result* out_result) noexcept;
  static bp_status add_kernels(void* self, uint64_t count, bp_device* const* devices,
                               uint64_t kernel_count, const bp_kernel* const* kernels,
                               bp_add_result* out_results) noexcept;
  static bp_status add_dtype(void* self, const char* name, uint32_t bits,
                             bp_dtype* out_dtype) noexcept;
  static bp_status add_ops(void* self, uint64_t op_count, const bp_op_desc* ops,
                           uint64_t stride_bytes, uint32_t* out_ops,
                           bp_add_result* out_results) noexcept;
  static void hide_absent(const bp_registrar& front, bp_registrar& between);
  static bp_status register_all(void* self, const bp_registrar* registrar) noexcept;
  static bp_status shutdown(void* self, uint64_t timeout_ns) noexcept;
  static bp_status get_extension(void* self, const char* name, uint32_t version,
                                 const void** out_extension) noexcept;
  static bp_status status_class(void* self, bp_status code, bp_status* out_class) noexcept;

  std::string name_;
  std::unique_ptr<Layer> layer_;
  bp_backend backend_{}, next_{};
  std::vector<std::shared_ptr<void>> wrapped_;  // Tables and kernels of all types.
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<const bp_kernel*, const bp_kernel*> behind_;  // Maps a copy to what it wraps.
  std::map<bp_executable*, std::shared_ptr<WrappedKernel>> lent_;
};

}  // namespace bp::layers
