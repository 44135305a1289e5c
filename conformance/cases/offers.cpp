#include "conformance/cases/offers.hpp"

#include <cstddef>

namespace bp::conformance {
namespace {

void keep(void* self, const void* table) {
  static_cast<Offers*>(self)->tables.push_back(static_cast<const bp_struct_header*>(table));
}

bp_status accept(bp_add_result* out_result) {
  if (out_result != nullptr) *out_result = {BP_ADD_ACCEPTED, 0, nullptr};
  return BP_OK;
}

template <typename Table>
bp_status add_table(void* self, uint64_t, bp_device* const*, const Table* table,
                    bp_add_result* out_result) {
  keep(self, table);
  return accept(out_result);
}

bp_status add_streams(void* self, uint64_t, bp_device* const*, const bp_stream_ops* streams,
                      const bp_event_ops* events, bp_add_result* out_result) {
  keep(self, streams);
  keep(self, events);
  return accept(out_result);
}

bp_status add_kernels(void* self, uint64_t, bp_device* const*, uint64_t kernel_count,
                      const bp_kernel* const* kernels, bp_add_result* out_results) {
  for (uint64_t i = 0; i < kernel_count; ++i) {
    keep(self, kernels[i]);
    accept(out_results == nullptr ? nullptr : out_results + i);
  }
  return BP_OK;
}

}  // namespace

bp_registrar recording_registrar(Offers& offers) {
  static_assert(sizeof(bp_registrar) == offsetof(bp_registrar, add_profiler) + sizeof(void*),
                "the registrar has a slot more: keep what comes through it");
  return {.struct_size = sizeof(bp_registrar),
          .struct_type = BP_STRUCT_REGISTRAR,
          .next = nullptr,
          .self = &offers,
          .add_device = add_table<bp_device_ops>,
          .add_allocator = add_table<bp_allocator_ops>,
          .add_streams = add_streams,
          .add_kernels = add_kernels,
          .add_device_guard = add_table<bp_device_guard_ops>,
          .add_virtual_memory = add_table<bp_virtual_memory_ops>,
          .add_layout = add_table<bp_layout_ops>,
          .add_graph = add_table<bp_graph_ops>,
          .add_compiler = add_table<bp_compiler_ops>,
          .add_process_group = add_table<bp_process_group_ops>,
          .add_profiler = add_table<bp_profiler_ops>};
}

}  // namespace bp::conformance
