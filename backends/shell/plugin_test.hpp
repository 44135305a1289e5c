// A host for tests of the registration of backends.
#pragma once

#include <string>

#include "backplane/backend.h"
#include "backplane/kernel.h"

namespace bp {

// A host that notes what it is given, and refuses every item from number `left` on.
class NotingHost {
 public:
  NotingHost() {
    host.struct_size = sizeof(host);
    host.struct_type = BP_STRUCT_HOST;
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<NotingHost*>(self)->text = reason;
      return status;
    };
    registrar.struct_size = sizeof(registrar);
    registrar.struct_type = BP_STRUCT_REGISTRAR;
    registrar.self = this;
    registrar.add_device = note_table<bp_device_ops>;
    registrar.add_allocator = note_table<bp_allocator_ops>;
    registrar.add_streams = [](void* self, uint64_t, bp_device* const*, const bp_stream_ops*,
                               const bp_event_ops*,
                               bp_add_result*) { return note(self, "streams"); };
    registrar.add_kernels = [](void* self, uint64_t, bp_device* const*, uint64_t,
                               const bp_kernel* const* rows,
                               bp_add_result*) { return note(self, rows[0]->name); };
    registrar.add_device_guard = note_table<bp_device_guard_ops>;
    registrar.add_virtual_memory = note_table<bp_virtual_memory_ops>;
    registrar.add_layout = note_table<bp_layout_ops>;
    registrar.add_graph = note_table<bp_graph_ops>;
    registrar.add_compiler = note_table<bp_compiler_ops>;
    registrar.add_process_group = note_table<bp_process_group_ops>;
    registrar.add_profiler = note_table<bp_profiler_ops>;
    registrar.add_semaphore = note_table<bp_semaphore_ops>;
  }

  bp_host host{};
  bp_registrar registrar{};
  std::string text, given;
  int left = 100;

 private:
  static const char* name_of(const bp_device_ops*) { return "device"; }
  static const char* name_of(const bp_allocator_ops*) { return "allocator"; }
  static const char* name_of(const bp_device_guard_ops*) { return "guard"; }
  static const char* name_of(const bp_virtual_memory_ops*) { return "virtual_memory"; }
  static const char* name_of(const bp_layout_ops*) { return "layout"; }
  static const char* name_of(const bp_graph_ops*) { return "graph"; }
  static const char* name_of(const bp_compiler_ops*) { return "compiler"; }
  static const char* name_of(const bp_process_group_ops*) { return "process_group"; }
  static const char* name_of(const bp_profiler_ops*) { return "profiler"; }
  static const char* name_of(const bp_semaphore_ops*) { return "semaphore"; }

  template <typename Ops>
  static bp_status note_table(void* self, uint64_t, bp_device* const*, const Ops* ops,
                              bp_add_result*) {
    return note(self, name_of(ops));
  }
  static bp_status note(void* self, const char* what) {
    auto& host = *static_cast<NotingHost*>(self);
    if (host.left-- == 0) return BP_ABORTED;
    host.given += std::string(what) + " ";
    return BP_OK;
  }
};

}  // namespace bp
