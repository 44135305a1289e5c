// Streams and events, and which stream a thread's work goes to.
#include <memory>
#include <vector>

#include "backplane/runtime/device.hpp"
#include "binding.hpp"

namespace bp::python {
namespace {

// The streams that this thread has entered with `with`, the innermost last.
thread_local std::vector<std::pair<const Stream*, std::unique_ptr<StreamGuard>>> entered;

void enter(const Stream& stream) {
  check_process();
  entered.emplace_back(&stream, std::make_unique<StreamGuard>(stream));
}

void leave(const Stream& stream) {
  if (entered.empty() || entered.back().first != &stream) {
    throw Error(BP_INVALID_ARGUMENT,
                "stream: `with` blocks of streams end in another order than they began, or on "
                "another thread; leave the innermost one first");
  }
  entered.pop_back();
}

// Ends the failure of this thread's current stream.
void clear_failure(nb::handle device) {
  const bp_target& target = to_device(device, "device").target();
  bp_stream* stream = current_stream(target);
  if (stream == nullptr) stream = target.default_stream;
  check_host(target.streams->clear_failure(target.streams->self, stream));
}

Stream* make_stream(Stream* self, nb::handle device, int32_t priority) {
  const Device of = to_device(device, "device");
  const Released released;
  return new (self) Stream(of, priority);
}

void bind_stream_class(nb::module_& module) {
  nb::class_<Stream>(module, "Stream",
                     "An ordered queue of work on one device. In `with stream:` this thread's work "
                     "for the device goes to the stream.")
      .def(
          "__init__", [](Stream* s, nb::handle d, int32_t p) { make_stream(s, d, p); },
          nb::arg("device"), nb::arg("priority") = 0)
      .def_prop_ro("device", &Stream::device)
      .def(
          "wait_for", [](Stream& s, const Stream& other) { s.wait_for(other); }, nb::arg("other"),
          "Makes later work wait for the work submitted to `other` so far.")
      .def(
          "wait_for", [](Stream& s, const Event& event) { s.wait_for(event); }, nb::arg("event"))
      .def_prop_ro("is_idle", &Stream::is_idle, "Whether all submitted work has ended.")
      .def("synchronize", &Stream::synchronize, nb::call_guard<Released>(),
           "Waits until all submitted work has ended, and raises its failure.")
      .def("__enter__",
           [](nb::handle self) {
             enter(nb::cast<const Stream&>(self));
             return nb::borrow(self);
           })
      .def("__exit__", [](const Stream& s, const nb::args&) { leave(s); });
}

void bind_event_class(nb::module_& module) {
  nb::class_<Event>(module, "Event", "A point in the work of a stream.")
      .def(
          "__init__",
          [](Event* self, nb::handle device, bool timing) {
            new (self) Event(to_device(device, "device"), timing ? BP_EVENT_TIMING : 0);
          },
          nb::arg("device"), nb::arg("timing") = false)
      .def_prop_ro("device", &Event::device)
      .def(
          "record",
          [](Event& e, const Stream* stream) {
            check_process();
            stream == nullptr ? e.record() : e.record(*stream);
          },
          nb::arg("stream").none() = nb::none(),
          "Captures the work submitted so far to `stream`, or to the current one.")
      .def_prop_ro("is_done", &Event::is_done)
      .def("synchronize", &Event::synchronize, nb::call_guard<Released>())
      .def("elapsed_ns", &Event::elapsed_ns, nb::arg("end"),
           "Nanoseconds on the device from this event to `end`; both need timing=True.");
}

}  // namespace

void bind_streams(nb::module_& module) {
  bind_stream_class(module);
  bind_event_class(module);
  module.def("clear_failure", &clear_failure, nb::arg("device"),
             "Ends the failure of this thread's current stream, which every later call on it "
             "returns until then.");
  module.def(
      "synchronize",
      [](nb::handle device) {
        const Device of = to_device(device, "device");
        const Released released;
        synchronize_stream(of);
      },
      nb::arg("device"),
      "Waits for the work of this thread's current stream, and raises its failure.");
}

}  // namespace bp::python
