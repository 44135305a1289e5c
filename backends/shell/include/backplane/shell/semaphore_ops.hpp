// The table of semaphores, for streams that are queues or wait for a Point of queue.hpp. It makes
// every check that needs no device, and writes the error texts. timeline.hpp has the values.
//
//   constinit const bp_semaphore_ops kSemaphores = SemaphoreOps<Traits>::table();
//
// `Traits` describes the streams of a backend, as in stream_ops.hpp. It has these types and static
// members:
//   Instance, Device      as in device_ops.hpp, and device_of(instance, handle, call)
//   Stream                as in stream_ops.hpp, and stream_of(handle, call)
//   Semaphore             derives from SemaphoreOf<Handle>; the device has add(semaphore) and
//                         remove(semaphore), as DeviceHandles of handles.hpp
//
//   wait_for(stream, point)               lets later work wait for a Point
//   run_behind(stream, task)              runs a task, which gets the Outcome of what was submitted
//                                         before, when that has ended, also after a failure; what
//                                         the task throws fails the stream
//   file_kind(instance)                   optional: the name of the files of exported semaphores,
//                                         or NULL if they are not offered
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backplane/semaphore.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/hooks.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/memory_file.hpp"
#include "backplane/shell/timeline.hpp"

namespace bp {

// What is behind the handle of a semaphore. `Handle` is what the handles of the backend begin with.
template <typename Handle>
struct SemaphoreOf : Handle {
  static constexpr uint32_t kMagic = 0x53656d61;

  template <typename Device>
  SemaphoreOf(Device& its_device, bool can_export, std::shared_ptr<Timeline> its_timeline)
      : Handle(kMagic, its_device), is_exportable(can_export), timeline(std::move(its_timeline)) {}

  const bool is_exportable;
  const std::shared_ptr<Timeline> timeline;  // Submitted signals hold it too.
};

template <typename Traits>
class SemaphoreOps {
 public:
  static constexpr bp_semaphore_ops table() {
    bp_semaphore_ops ops{.struct_size = sizeof(bp_semaphore_ops),
                         .struct_type = BP_STRUCT_SEMAPHORE_OPS,
                         .create = create,
                         .destroy = destroy,
                         .query = query,
                         .signal = signal,
                         .synchronize = synchronize,
                         .submit_signal = submit_signal,
                         .submit_wait = submit_wait,
                         .clear_failure = clear_failure};
    if constexpr (requires { Traits::file_kind; }) {
      ops.export_semaphore = export_semaphore;
      ops.import_semaphore = import_semaphore;
    }
    return ops;
  }

 private:
  using Instance = typename Traits::Instance;
  using Device = typename Traits::Device;
  using Semaphore = typename Traits::Semaphore;

  static Semaphore& semaphore_of(bp_semaphore* handle, const char* call) {
    return live_object_of<Semaphore>(handle, call, "semaphore");
  }

  static const char* file_kind(const Instance& i) {
    if constexpr (requires { Traits::file_kind; }) return Traits::file_kind(i);
    return nullptr;
  }

  static bp_semaphore* add(Device& d, bool is_exportable, std::shared_ptr<Timeline> timeline) {
    auto s = std::make_unique<Semaphore>(d, is_exportable, std::move(timeline));
    d.add(s.get());
    return reinterpret_cast<bp_semaphore*>(s.release());
  }

  [[noreturn]] static void refuse_value(const char* call, uint64_t value, uint64_t present) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": value is " + std::to_string(value) +
                                    ", and the semaphore has reached " + std::to_string(present) +
                                    "; values only rise");
  }

  // Semaphores are no part of a graph.
  static void refuse_capture(const Instance& i, bp_stream* handle, const char* call) {
    if constexpr (requires { i.captures; }) {
      if (!i.hooks.is_capture_open() || !is_capturing(*i.captures, handle)) return;
      refuse(BP_INVALID_ARGUMENT,
             std::string(call) + ": the stream captures, and a graph has no semaphores");
    }
  }

  static bp_status create(void* self, bp_device* handle, const bp_semaphore_desc* desc,
                          bp_semaphore** out_semaphore) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, handle, "semaphore.create");
      require(out_semaphore, "semaphore.create: out_semaphore");
      const auto request = read_desc(desc, kFirstSize<bp_semaphore_desc>, BP_STRUCT_SEMAPHORE_DESC,
                                     "semaphore.create");
      constexpr bp_semaphore_flags kFlags = BP_SEMAPHORE_EXPORTABLE;
      if ((request.flags & ~kFlags) != 0 || request.reserved != 0) {
        refuse(BP_INVALID_ARGUMENT, "semaphore.create: flags is " + std::to_string(request.flags) +
                                        " and reserved is " + std::to_string(request.reserved) +
                                        "; allowed are bits " + std::to_string(kFlags) + ", and 0");
      }
      *out_semaphore = (request.flags & BP_SEMAPHORE_EXPORTABLE) == 0
                           ? add(d, false, std::make_shared<Timeline>(request.initial_value))
                           : add(d, true, make_shared_timeline(i, request.initial_value));
      return BP_OK;
    });
  }

  static std::shared_ptr<Timeline> make_shared_timeline(const Instance& i, uint64_t value) {
    const char* const kind = file_kind(i);
    if (kind == nullptr) {
      refuse(BP_UNSUPPORTED,
             "semaphore.create: flags has BP_SEMAPHORE_EXPORTABLE, and semaphores of this device "
             "are not shared between processes");
    }
    return std::make_shared<Timeline>(
        std::make_unique<SharedValue>("semaphore.create", kind, value));
  }

  static bp_status destroy(void* self, bp_semaphore* handle) {
    if (handle == nullptr) return BP_OK;
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      Semaphore& s = checked_object_of<Semaphore>(handle, "semaphore.destroy", "semaphore");
      s.device->remove(&s);
      s.magic = 0;
      delete &s;
      return BP_OK;
    });
  }

  static bp_status query(void* self, bp_semaphore* handle, uint64_t* out_value) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      const Semaphore& s = semaphore_of(handle, "semaphore.query");
      require(out_value, "semaphore.query: out_value");
      *out_value = s.timeline->value();
      return BP_OK;
    });
  }

  static bp_status signal(void* self, bp_semaphore* handle, uint64_t value) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      const std::shared_ptr<Timeline> timeline = semaphore_of(handle, "semaphore.signal").timeline;
      if (!timeline->raise(value, {})) refuse_value("semaphore.signal", value, timeline->value());
      return BP_OK;
    });
  }

  static bp_status synchronize(void* self, bp_semaphore* handle, uint64_t value,
                               uint64_t timeout_ns) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      // This is a copy, because another thread may destroy the handle meanwhile.
      const std::shared_ptr<Timeline> timeline =
          semaphore_of(handle, "semaphore.synchronize").timeline;
      Outcome outcome;
      if (!timeline->wait(value, timeout_ns, outcome)) {
        refuse(BP_TIMEOUT, "semaphore.synchronize: value " + std::to_string(value) +
                               " was not reached within " + std::to_string(timeout_ns) + " ns");
      }
      return outcome.status == BP_OK ? bp_status{BP_OK} : i.fail(outcome.status, outcome.text);
    });
  }

  static bp_status submit_signal(void* self, bp_stream* stream_handle, bp_semaphore* handle,
                                 uint64_t value) {
    static constexpr const char* kCall = "semaphore.submit_signal";
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      auto& s = Traits::stream_of(stream_handle, kCall);
      const std::shared_ptr<Timeline> timeline = semaphore_of(handle, kCall).timeline;
      refuse_capture(i, stream_handle, kCall);
      const uint64_t present = timeline->value();
      if (value <= present) refuse_value(kCall, value, present);
      return Traits::run_behind(s, [timeline, value](const Outcome& before) {
        if (!timeline->raise(value, before)) refuse_value(kCall, value, timeline->value());
      });
    });
  }

  static bp_status submit_wait(void* self, bp_stream* stream_handle, bp_semaphore* handle,
                               uint64_t value) {
    static constexpr const char* kCall = "semaphore.submit_wait";
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      auto& s = Traits::stream_of(stream_handle, kCall);
      const std::shared_ptr<Timeline> timeline = semaphore_of(handle, kCall).timeline;
      refuse_capture(i, stream_handle, kCall);
      return Traits::wait_for(s, timeline->when(value));
    });
  }

  static bp_status clear_failure(void* self, bp_semaphore* handle) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      semaphore_of(handle, "semaphore.clear_failure").timeline->clear_failure();
      return BP_OK;
    });
  }

  static bp_status export_semaphore(void* self, bp_semaphore* handle, bp_external_type type,
                                    bp_external_handle* out_handle) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      const Semaphore& s = semaphore_of(handle, "export_semaphore");
      if (!s.is_exportable) {
        refuse(BP_INVALID_ARGUMENT,
               "export_semaphore: semaphore is not one made with BP_SEMAPHORE_EXPORTABLE");
      }
      check_export(type, out_handle, "export_semaphore");
      give_descriptor(s.timeline->shared()->duplicate("export_semaphore"), 0, out_handle);
      return BP_OK;
    });
  }

  static bp_status import_semaphore(void* self, bp_device* device,
                                    const bp_external_handle* external,
                                    bp_semaphore** out_semaphore) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Device& d = Traits::device_of(i, device, "import_semaphore");
      require(out_semaphore, "import_semaphore: out_semaphore");
      const bp_external_handle given =
          read_external_object(external, "import_semaphore", "a semaphore");
      *out_semaphore = add(d, false,
                           std::make_shared<Timeline>(std::make_unique<SharedValue>(
                               "import_semaphore", file_kind(i), given.fd)));
      return BP_OK;
    });
  }
};

}  // namespace bp
