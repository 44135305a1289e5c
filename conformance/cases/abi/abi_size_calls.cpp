// Calls of the entry, and of functions in the tables that every device has.
#include "conformance/cases/abi/abi_size_calls.hpp"

#include <memory>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/fixtures/external_handle.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/offers.hpp"
#include "conformance/cases/fixtures/test_host.hpp"
#include "conformance/cases/layouts/block_fixtures.hpp"
#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {
namespace {

// Calls `create` and ends what it made. Checks the out parameter if it fails.
template <typename Handle, typename Create, typename End>
bp_status create_and_end(Context& t, Create create, End end) {
  Handle* handle = t.sentinel<Handle>();
  const bp_status status = create(&handle);
  if (status == BP_OK) {
    t.expect_eq(end(handle), BP_OK, "the end of the handle that the call made");
  } else {
    t.expect_eq(handle, t.sentinel<Handle>(), "the out parameter after a failure");
  }
  return status;
}

bp_allocate_desc allocate_desc(bp_memory_usage usage) {
  bp_allocate_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_ALLOCATE_DESC;
  desc.size_bytes = 1 << 16;
  desc.usage = usage;
  return desc;
}

// Returns a buffer that can be exported. Types are tried in the order of the header.
std::shared_ptr<bp_buffer> exportable_buffer(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_allocate_desc desc = allocate_desc(BP_MEMORY_EXPORT);
  bp_buffer* buffer = nullptr;
  require_offered(t, memory.allocate(memory.self, t.target().device, &desc, &buffer),
                  "allocate with BP_MEMORY_EXPORT");
  return {buffer, [&memory](bp_buffer* b) { memory.deallocate(memory.self, b, nullptr); }};
}

std::shared_ptr<bp_event> exportable_event(Context& t) {
  const bp_event_ops& events = *t.target().events;
  bp_event_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_EVENT_DESC;
  desc.flags = BP_EVENT_EXPORTABLE;
  bp_event* event = nullptr;
  require_offered(t, events.create(events.self, t.target().device, &desc, &event),
                  "event.create with BP_EVENT_EXPORTABLE");
  return {event, [&events](bp_event* e) { events.destroy(events.self, e); }};
}

// Returns the first type that `exported` accepts.
template <typename Export>
bp_external_type offered_type(Context& t, Export exported) {
  for (const bp_external_type type : kExternalTypes) {
    Exported owned;
    const bp_status status = exported(type, &owned.handle);
    if (status == BP_OK) return type;
    if (status != BP_UNSUPPORTED) t.require_ok(status, "export");
  }
  t.not_supported(bp_error_text());
}

// The struct that an export fills belongs to the caller.
template <typename Export>
SizedCall export_call(bp_external_type type, Export exported) {
  return sized_call<bp_external_handle>(blank_handle(), [=](bp_external_handle* at) {
    const bp_status status = exported(type, at);
    if (status == BP_OK) close_descriptor(*at);
    return status;
  });
}

}  // namespace

SizedCall make_bp_allocator_ops_allocate(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  return sized_call<bp_allocate_desc>(allocate_desc(0), [&](bp_allocate_desc* at) {
    return create_and_end<bp_buffer>(
        t,
        [&](bp_buffer** out) { return memory.allocate(memory.self, t.target().device, at, out); },
        [&](bp_buffer* buffer) { return memory.deallocate(memory.self, buffer, nullptr); });
  });
}

SizedCall make_bp_allocator_ops_buffer_info(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const auto buffer = std::make_shared<OwnedBuffer>(make_buffer(t, 4096));
  bp_buffer_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_BUFFER_INFO;
  return sized_call<bp_buffer_info>(info, [&memory, buffer](bp_buffer_info* at) {
    return memory.buffer_info(memory.self, buffer->get(), at);
  });
}

SizedCall make_bp_allocator_ops_peer_info(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  bp_peer_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_PEER_INFO;
  return sized_call<bp_peer_info>(info, [&](bp_peer_info* at) {
    return memory.peer_info(memory.self, t.target().device, t.target().device, at);
  });
}

SizedCall make_bp_allocator_ops_address_info(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const auto buffer = std::make_shared<OwnedBuffer>(make_buffer(t, 4096));
  uint64_t address = 0;
  require_offered(t, memory.address(memory.self, buffer->get(), &address), "memory.address");
  bp_address_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_ADDRESS_INFO;
  return sized_call<bp_address_info>(info, [&memory, buffer, address](bp_address_info* at) {
    return memory.address_info(memory.self, address, at);
  });
}

SizedCall make_bp_allocator_ops_export_buffer(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const auto buffer = exportable_buffer(t);
  const auto exported = [&memory, buffer](bp_external_type type, bp_external_handle* out) {
    return memory.export_buffer(memory.self, buffer.get(), type, out);
  };
  return export_call(offered_type(t, exported), exported);
}

SizedCall make_bp_allocator_ops_import_buffer(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const auto buffer = exportable_buffer(t);
  const auto owned = std::make_shared<Exported>();
  const auto exported = [&](bp_external_type type, bp_external_handle* out) {
    return memory.export_buffer(memory.self, buffer.get(), type, out);
  };
  t.require_ok(exported(offered_type(t, exported), &owned->handle), "export_buffer");
  return sized_call<bp_external_handle>(owned->handle, [&, buffer, owned](bp_external_handle* at) {
    return create_and_end<bp_buffer>(
        t,
        [&](bp_buffer** out) {
          return memory.import_buffer(memory.self, t.target().device, at, out);
        },
        [&](bp_buffer* made) { return memory.deallocate(memory.self, made, nullptr); });
  });
}

SizedCall make_bp_stream_ops_create(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  bp_stream_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_STREAM_DESC;
  desc.priority = 1;
  return sized_call<bp_stream_desc>(desc, [&](bp_stream_desc* at) {
    return create_and_end<bp_stream>(
        t,
        [&](bp_stream** out) { return streams.create(streams.self, t.target().device, at, out); },
        [&](bp_stream* stream) { return streams.destroy(streams.self, stream); });
  });
}

SizedCall make_bp_event_ops_create(Context& t) {
  const bp_event_ops& events = *t.target().events;
  bp_event_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.struct_type = BP_STRUCT_EVENT_DESC;
  return sized_call<bp_event_desc>(desc, [&](bp_event_desc* at) {
    return create_and_end<bp_event>(
        t, [&](bp_event** out) { return events.create(events.self, t.target().device, at, out); },
        [&](bp_event* event) { return events.destroy(events.self, event); });
  });
}

SizedCall make_bp_event_ops_export_event(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const auto event = exportable_event(t);
  const auto exported = [&events, event](bp_external_type type, bp_external_handle* out) {
    return events.export_event(events.self, event.get(), type, out);
  };
  return export_call(offered_type(t, exported), exported);
}

SizedCall make_bp_event_ops_import_event(Context& t) {
  const bp_event_ops& events = *t.target().events;
  const auto event = exportable_event(t);
  const auto owned = std::make_shared<Exported>();
  const auto exported = [&](bp_external_type type, bp_external_handle* out) {
    return events.export_event(events.self, event.get(), type, out);
  };
  t.require_ok(exported(offered_type(t, exported), &owned->handle), "export_event");
  return sized_call<bp_external_handle>(owned->handle, [&, event, owned](bp_external_handle* at) {
    return create_and_end<bp_event>(
        t,
        [&](bp_event** out) {
          return events.import_event(events.self, t.target().device, at, out);
        },
        [&](bp_event* made) { return events.destroy(events.self, made); });
  });
}

namespace {

// A kernel of the backend that makes plans, and a frame for which it makes one.
struct Plannable {
  OpCase op_case;
  std::unique_ptr<HostCall> call;
  const bp_kernel* kernel;
  bp_prepare_desc desc{};
};

bool makes_plan(const bp_target& target, Plannable& p) {
  bp_kernel_choice choice{};
  for (size_t i = 0; i < p.op_case.tensors.size(); ++i) p.call->tensor(i).buffer = nullptr;
  const void* frame = p.call->frame().data();
  if (bp_kernel_find(&target, 0, BP_KERNEL_NATIVE, p.op_case.op, frame, &choice) != BP_OK) {
    return false;
  }
  p.kernel = choice.kernel;
  if (p.kernel->struct_size < offsetof(bp_kernel, plan_release) + sizeof(void*)) return false;
  if (p.kernel->prepare == nullptr) return false;
  p.desc.struct_size = sizeof(p.desc);
  p.desc.struct_type = BP_STRUCT_PREPARE_DESC;
  // A kernel may plan only if an argument is constant, so each tensor alone is tried.
  static constexpr uint32_t kNumbers[] = {0, 1, 2, 3};
  const size_t count = std::min(p.op_case.tensors.size(), std::size(kNumbers));
  for (size_t i = 0; i <= count; ++i) {
    p.desc.constant_args = i == 0 ? nullptr : &kNumbers[i - 1];
    p.desc.constant_arg_count = i == 0 ? 0 : 1;
    bp_plan* plan = nullptr;
    if (p.kernel->prepare(p.kernel, target.device, &p.desc, frame, &plan) != BP_OK) continue;
    return p.kernel->plan_release(p.kernel, plan) == BP_OK;
  }
  return false;
}

std::shared_ptr<Plannable> find_plannable(Context& t) {
  OpCases rows;
  for (const auto add : {add_matrix, add_convolution}) add(rows);
  for (OpCase& row : rows) {
    auto p = std::make_shared<Plannable>();
    p->op_case = std::move(row);
    p->call = std::make_unique<HostCall>(p->op_case);
    if (p->call->is_legal() && makes_plan(t.target(), *p)) return p;
  }
  bp_error_clear();
  t.not_supported("no kernel of the backend makes a plan of a product or a convolution");
}

}  // namespace

SizedCall make_bp_kernel_prepare(Context& t) {
  const auto p = find_plannable(t);
  return sized_call<bp_prepare_desc>(p->desc, [&t, p](bp_prepare_desc* at) {
    return create_and_end<bp_plan>(
        t,
        [&](bp_plan** out) {
          return p->kernel->prepare(p->kernel, t.target().device, at, p->call->frame().data(), out);
        },
        [&](bp_plan* plan) { return p->kernel->plan_release(p->kernel, plan); });
  });
}

SizedCall make_bp_kernel_plan_info(Context& t) {
  const auto p = find_plannable(t);
  const bp_kernel* kernel = p->kernel;
  bp_plan* made = nullptr;
  t.require_ok(kernel->prepare(kernel, t.target().device, &p->desc, p->call->frame().data(), &made),
               "prepare");
  const std::shared_ptr<bp_plan> plan(
      made, [kernel](bp_plan* ended) { kernel->plan_release(kernel, ended); });
  bp_plan_info info{};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_PLAN_INFO;
  return sized_call<bp_plan_info>(info, [p, plan](bp_plan_info* at) {
    return p->kernel->plan_info(p->kernel, plan.get(), at);
  });
}

namespace {

// Calls the entry with a host of the case's own, whose structs can be replaced one by one.
struct Meeting {
  explicit Meeting(Context& t) : entry(open_entry(t)), host(t.subject().options) {}

  // Calls the entry, and ends the instance that it made.
  bp_status meet(Context& t, const bp_entry_request* request, bp_entry_reply* reply) {
    const bp_status status = entry.get()(request, reply);
    if (status == BP_ALREADY_EXISTS) t.not_supported(host.take_text());
    if (status != BP_OK) return status;
    t.expect_eq(reply->backend->shutdown(reply->backend->self, UINT64_MAX), BP_OK, "shutdown");
    return status;
  }

  PluginEntry entry;
  TestHost host;
};

}  // namespace

SizedCall make_bp_host(Context& t) {
  const auto meeting = std::make_shared<Meeting>(t);
  return sized_call<bp_host>(meeting->host.table(), [&t, meeting](bp_host* at) {
    bp_entry_request request = entry_request(meeting->host);
    request.host = at;
    bp_entry_reply reply = blank_reply();
    return meeting->meet(t, &request, &reply);
  });
}

SizedCall make_bp_entry_request(Context& t) {
  const auto meeting = std::make_shared<Meeting>(t);
  return sized_call<bp_entry_request>(entry_request(meeting->host),
                                      [&t, meeting](bp_entry_request* at) {
                                        bp_entry_reply reply = blank_reply();
                                        return meeting->meet(t, at, &reply);
                                      });
}

SizedCall make_bp_entry_reply(Context& t) {
  const auto meeting = std::make_shared<Meeting>(t);
  return sized_call<bp_entry_reply>(blank_reply(), [&t, meeting](bp_entry_reply* at) {
    const bp_entry_request request = entry_request(meeting->host);
    return meeting->meet(t, &request, at);
  });
}

SizedCall make_bp_registrar(Context& t) {
  const auto meeting = std::make_shared<Meeting>(t);
  const auto offers = std::make_shared<Offers>();
  return sized_call<bp_registrar>(
      recording_registrar(*offers), [&t, meeting, offers](bp_registrar* at) {
        const bp_entry_request request = entry_request(meeting->host);
        bp_entry_reply reply = blank_reply();
        const bp_status met = meeting->entry.get()(&request, &reply);
        if (met == BP_ALREADY_EXISTS) t.not_supported(meeting->host.take_text());
        t.require(met == BP_OK, "the entry: " + meeting->host.take_text());
        const bp_backend& backend = *reply.backend;
        const bp_status status = backend.register_all(backend.self, at);
        offers->tables.clear();
        t.expect_eq(backend.shutdown(backend.self, UINT64_MAX), BP_OK, "shutdown");
        return status;
      });
}

SizedCall make_bp_layout_ops_from_desc(Context& t) {
  const auto description =
      std::make_shared<Description>(*formats_of(t).front(), Shape{formats_of(t).front()->elements});
  return sized_call<bp_layout_desc>(description->desc, [&t, description](bp_layout_desc* at) {
    const bp_layout* made = t.sentinel<bp_layout>();
    const bp_status status = describe(t, *at, &made);
    if (status == BP_OK) {
      const OwnedLayout end(made, {&layout_table(t)});
    } else {
      t.expect(made == t.sentinel<bp_layout>(), "out_layout after a failure");
    }
    return status;
  });
}

}  // namespace bp::conformance
