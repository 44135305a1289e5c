// The body of the entry of a plugin, and the registration of its tables.
//
//   bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
//     return answer_entry("backplane.sim", request, out_reply,
//                         [](const bp_host& host) { return &(new Instance(&host))->backend; });
//   }
#pragma once

#include <span>
#include <string>
#include <utility>

#include "backplane/backend.h"
#include "backplane/kernel.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/test_fault.hpp"

namespace bp {

// Gives the host the bp_backend* that make(host) returns. `name` is the name of the backend.
template <typename Make>
bp_status answer_entry(const char* name, const bp_entry_request* request, bp_entry_reply* out_reply,
                       Make&& make) {
  if (request == nullptr || request->host == nullptr) return BP_INVALID_ARGUMENT;
  const bp_host& host = *request->host;
  return guarded(host, [&]() -> bp_status {
    require(out_reply, "entry: out_reply");
    const bool is_served = bp_abi_is_served(request) != 0;
    // A host that is not served may have a shorter reply, and then gets the text alone.
    if (is_served || out_reply->struct_size >= kFirstSize<bp_entry_reply>) {
      check_offer(out_reply, kFirstSize<bp_entry_reply>, "entry: out_reply");
      out_reply->abi_major_min = out_reply->abi_major_max = BP_ABI_MAJOR;
    }
    if (!is_served) {
      refuse(BP_INCOMPATIBLE, std::string(name) + " serves ABI " + std::to_string(BP_ABI_MAJOR) +
                                  "." + std::to_string(BP_ABI_MINOR) + " only");
    }
    out_reply->backend = std::forward<Make>(make)(host);
    out_reply->abi_major = BP_ABI_MAJOR;
    out_reply->abi_minor = BP_ABI_MINOR;
    return BP_OK;
  });
}

template <typename Instance, typename Whole>
bp_status shut_down(void* self, uint64_t timeout_ns) {
  auto* const instance = static_cast<Instance*>(self);
  if constexpr (requires { instance->wait_for_work(timeout_ns); }) {
    const bp_status status = guarded(*instance->host, [&]() -> bp_status {
      if (timeout_ns == UINT64_MAX || instance->wait_for_work(timeout_ns)) return BP_OK;
      refuse_timeout("shutdown", timeout_ns);
    });
    if (status == BP_TIMEOUT) return status;
  }
  delete static_cast<Whole*>(instance);
  return BP_OK;
}

// Returns a copy of a backend's table whose `self` is the instance.
template <typename Ops>
Ops with_self(Ops ops, void* self) {
  ops.self = self;
  return ops;
}

// One call of register_all(). It adds tables until the host refuses one.
class Registration {
 public:
  // Throws StatusError if the registrar cannot be read.
  explicit Registration(const bp_registrar* registrar) {
    require(registrar, "register_all: registrar");
    // The registrar of an older host is shorter than that of this build.
    if (bp_struct_read(registrar, kFirstSize<bp_registrar>, &registrar_, sizeof(registrar_),
                       nullptr) != BP_OK) {
      refuse(BP_INCOMPATIBLE, "register_all: the registrar cannot be read");
    }
  }

  // Adds the tables that every backend has, which are the members devices, allocator, streams and
  // events of `instance`.
  template <typename Instance>
  void add_tables(const Instance& instance) {
    add(&bp_registrar::add_device, instance.devices);
    add(&bp_registrar::add_allocator, instance.allocator);
    if (status_ != BP_OK) return;
    status_ = registrar_.add_streams(registrar_.self, 0, nullptr, &instance.streams,
                                     &instance.events, nullptr);
  }

  // Adds one table, such as add(&bp_registrar::add_graph, graphs). It does nothing if the host
  // lacks the member.
  template <typename Add, typename Ops>
  void add(Add bp_registrar::*entry, const Ops& ops) {
    if (status_ != BP_OK || registrar_.*entry == nullptr) return;
    status_ = (registrar_.*entry)(registrar_.self, 0, nullptr, &ops, nullptr);
  }

  // Describes ops of the backend's own. It does nothing if the host lacks the member.
  void add_ops(std::span<const bp_op_desc> ops) {
    if (status_ != BP_OK || ops.empty() || registrar_.add_ops == nullptr) return;
    status_ = registrar_.add_ops(registrar_.self, ops.size(), ops.data(), sizeof(bp_op_desc),
                                 nullptr, nullptr);
  }

  // Adds kernels for `devices`, or for all devices of the backend if that is empty.
  void add_kernels(std::span<const bp_kernel> kernels, std::span<bp_device* const> devices = {}) {
    for (const bp_kernel& kernel : kernels) {
      const bp_kernel* const row = &kernel;
      if (status_ != BP_OK) return;
      status_ =
          registrar_.add_kernels(registrar_.self, devices.size(), devices.data(), 1, &row, nullptr);
    }
  }

  // Returns BP_OK, or the status with which the host refused a table.
  bp_status status() const { return status_; }

 private:
  bp_registrar registrar_{};
  bp_status status_ = BP_OK;
};

template <typename Instance>
bp_status register_all(void* self, const bp_registrar* registrar) {
  return entry<Instance>(self, [&](const Instance& i) -> bp_status {
    if constexpr (requires { i.described_ops(); }) {
      Registration to(registrar);
      to.add_ops(i.described_ops());
      if (to.status() != BP_OK) return to.status();
    }
    return i.register_tables(registrar);
  });
}

// Returns the table of a backend whose Instance derives from BackendInstance (instance.hpp).
// register_all() registers its tables, and before that the ops of the optional
//   std::span<const bp_op_desc> described_ops() const   ops of the backend's own
// shutdown() deletes the object of type `Whole` that the instance is, or is a part of. Before that,
// it calls the optional
//   bool wait_for_work(uint64_t timeout_ns)   waits for work that ends without the host; returns
//                                             false if timeout_ns passed first
// An Instance without it runs no work behind a call. Its destructor waits for ever, so it is not
// called for a timeout that never passes.
template <typename Instance, typename Whole = Instance>
bp_backend backend_table(Instance* self, const char* name, const char* version) {
  return {.struct_size = sizeof(bp_backend),
          .struct_type = BP_STRUCT_BACKEND,
          .self = self,
          .name = name,
          .version = version,
          .register_all = register_all<Instance>,
          .shutdown = shut_down<Instance, Whole>,
          .get_extension = get_test_faults<Instance>};
}

}  // namespace bp
