#include "registry/captures/captures.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backplane/capture.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/out_struct.hpp"
#include "registry/boundary/read_desc.hpp"
#include "registry/captures/captured_program.hpp"

namespace bp::core {

using services::CaptureParts;

// What a bp_capture* stands for. A capture that is destroyed while it is open is abandoned.
struct Capture {
  Target* target = nullptr;  // NULL after the unload, and after a reset of the device.
  bp_stream* stream = nullptr;
  std::vector<bp_buffer_ref> slots;
  std::shared_ptr<CaptureParts> parts;
  std::shared_ptr<ProgramRecorder> recorder;  // NULL for a graph.
  bool is_open = false;                       // If true, the capture has begun and not ended.

  Capture() = default;
  Capture(const Capture&) = delete;
  ~Capture() {
    if (!is_open) return;
    const std::string words = take_error();  // The text of the failure before is kept.
    static_cast<void>(end(nullptr));
    set_error(nullptr, BP_OK, words.c_str());
  }

  // Ends the backend's capture, if there is one. From then on the streams allocate as before.
  bp_status end(bp_graph** out_graph) {
    if (recorder != nullptr) {
      close();
      return BP_OK;
    }
    const bp_graph_ops& graphs = target->own_tables.graphs;
    const bp_status status = graphs.end_capture(graphs.self, stream, out_graph);
    close();
    return status;
  }

  // Takes the capture out of the lists of its target.
  void close() {
    is_open = false;
    {
      const std::lock_guard lock(target->captures_mutex);
      std::erase(target->captures, this);
    }
    target->caches->captures().remove(*parts);
  }

  // Ends a capture whose backend or device has ended it.
  void lose() {
    close();
    parts = nullptr;
    target = nullptr;
  }
};

// What a bp_captured_graph* points to.
struct CapturedGraph {
  Target* target = nullptr;  // NULL after the unload.
  bool is_lost = false;      // If true, a reset of the device has ended it.
  bp_graph* graph = nullptr;
  bp_graph_instance* instance = nullptr;
  std::unique_ptr<CapturedProgram> program;  // In place of the graph and its instance.
  uint64_t node_count = 0, slot_count = 0;
  std::shared_ptr<CaptureParts> parts;

  CapturedGraph() = default;
  CapturedGraph(const CapturedGraph&) = delete;
  ~CapturedGraph() { static_cast<void>(end()); }

  // Ends everything but the handle. Returns the first failure of the backend.
  bp_status end() {
    if (target == nullptr) return BP_OK;
    const bp_graph_ops& graphs = target->own_tables.graphs;
    bp_status of_instance = BP_OK, of_graph = BP_OK;
    if (program != nullptr) of_graph = program->end();
    program = nullptr;
    if (graph != nullptr) {
      of_instance = graphs.destroy_instance(graphs.self, std::exchange(instance, nullptr));
      of_graph = graphs.destroy(graphs.self, std::exchange(graph, nullptr));
    }
    // A thread that still submits to a stream of the capture may hold the parts, and then ends
    // them.
    const bp_status of_parts = parts.use_count() == 1 ? parts->end() : bp_status{BP_OK};
    parts = nullptr;
    target = nullptr;
    if (of_instance != BP_OK) return of_instance;
    return of_graph != BP_OK ? of_graph : of_parts;
  }
};

namespace {

// What has not ended, by its handle. A handle is a number that is never given again, so that each
// use of an old handle is noticed.
template <typename Face, typename Own>
class Handles {
 public:
  Face* add(std::unique_ptr<Own> own) {
    const std::lock_guard lock(mutex_);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody reads through a handle.
    auto* const handle = reinterpret_cast<Face*>(++last_);
    owned_.emplace(handle, std::move(own));
    return handle;
  }

  // Returns NULL if there is no such handle.
  Own* find(const Face* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = owned_.find(handle);
    return found == owned_.end() ? nullptr : found->second.get();
  }

  // Removes what a handle stands for from the list. Returns NULL if there is no such handle.
  std::unique_ptr<Own> take(const Face* handle) {
    const std::lock_guard lock(mutex_);
    const auto found = owned_.find(handle);
    if (found == owned_.end()) return nullptr;
    std::unique_ptr<Own> own = std::move(found->second);
    owned_.erase(found);
    return own;
  }

 private:
  std::mutex mutex_;  // It guards the members below.
  uintptr_t last_ = 0;
  std::map<const Face*, std::unique_ptr<Own>> owned_;
};

// The lists are never freed: a capture or a graph that nobody ends must not call its backend when
// the process exits.
Handles<bp_capture, Capture>& open_captures() {
  static auto& captures = *new Handles<bp_capture, Capture>;
  return captures;
}

Handles<bp_captured_graph, CapturedGraph>& captured_graphs() {
  static auto& graphs = *new Handles<bp_captured_graph, CapturedGraph>;
  return graphs;
}

constexpr uint32_t kFirstDesc = offsetof(bp_capture_desc, slot_count) + sizeof(uint64_t);
// The size of the struct in the first release. It stays the same when members are added.
constexpr uint32_t kFirstInfo = offsetof(bp_captured_graph_info, graph) + sizeof(void*);

bp_status was_lost(const char* call) {
  return fail(BP_DEVICE_LOST, std::string(call) +
                                  ": a reset of the device or the unload of its plugin has ended "
                                  "what was captured; capture it anew");
}

bp_status is_no_graph(const char* call) {
  return fail(BP_INVALID_ARGUMENT,
              std::string(call) + ": graph is no captured graph, or was destroyed before");
}

// Gives the graph, or says why it cannot be used any more.
bp_status find_graph(const bp_captured_graph* graph, const char* call, CapturedGraph*& out_graph) {
  if (graph == nullptr) return is_null("graph");
  CapturedGraph* const found = captured_graphs().find(graph);
  if (found == nullptr) return is_no_graph(call);
  if (found->target == nullptr || found->is_lost) return was_lost(call);
  out_graph = found;
  return BP_OK;
}

bp_status read_state(const Target& target, bp_stream* stream, bp_capture_info& info) {
  info = {};
  info.struct_size = sizeof(info);
  info.struct_type = BP_STRUCT_CAPTURE_INFO;
  const bp_graph_ops& graphs = target.own_tables.graphs;
  return graphs.capture_info(graphs.self, stream, &info);
}

std::unique_ptr<Capture> make_capture(Target& target, bp_stream* stream,
                                      const bp_capture_desc& desc,
                                      std::shared_ptr<ProgramRecorder> recorder) {
  auto capture = std::make_unique<Capture>();
  capture->target = &target;
  capture->stream = stream;
  capture->slots.assign(desc.slots, desc.slots + desc.slot_count);
  capture->recorder = std::move(recorder);
  capture->parts = std::make_shared<CaptureParts>(*target.caches, capture->recorder);
  return capture;
}

bp_capture* open(std::unique_ptr<Capture> capture) {
  {
    const std::lock_guard lock(capture->target->captures_mutex);
    capture->target->captures.push_back(capture.get());
  }
  return open_captures().add(std::move(capture));
}

bp_status begin_program(Target& target, bp_stream* stream, const bp_capture_desc& desc,
                        bp_capture** out_capture) {
  auto capture = make_capture(target, stream, desc, std::make_shared<ProgramRecorder>(target));
  bool is_free = !target.has_table(BP_STRUCT_GRAPH_OPS);
  if (!is_free) {
    bp_capture_info info;
    const bp_status status = read_state(target, stream, info);
    if (status != BP_OK) return status;
    is_free = info.capture_id == 0;
  }
  if (!is_free || !target.caches->captures().add_program(stream, capture->parts)) {
    return fail(BP_INVALID_ARGUMENT, "capture.begin_program: the stream captures already");
  }
  capture->is_open = true;
  *out_capture = open(std::move(capture));
  return BP_OK;
}

bp_status begin(Target& target, bp_stream* stream, const bp_capture_desc& desc,
                bp_capture** out_capture) {
  auto capture = make_capture(target, stream, desc, nullptr);
  const bp_graph_ops& graphs = target.own_tables.graphs;
  bp_status status = graphs.begin_capture(graphs.self, stream, &desc);
  if (status != BP_OK) return status;
  capture->is_open = true;
  bp_capture_info info;
  status = read_state(target, stream, info);
  if (status == BP_OK && info.capture_id == 0) {
    status = fail(BP_INTERNAL, std::string(target.name) +
                                   ": capture.begin: capture_info() gives no capture_id for a "
                                   "stream that captures");
  }
  if (status != BP_OK) return status;
  target.caches->captures().add(info.capture_id, capture->parts);
  *out_capture = open(std::move(capture));
  return BP_OK;
}

// Ends the recording and makes it ready to run.
bp_status record(Capture& capture, CapturedGraph& made) {
  Target& target = *capture.target;
  made.slot_count = capture.slots.size();
  if (capture.recorder != nullptr) {
    const std::vector<bp_buffer_ref> held = target.caches->held(*capture.parts->pool());
    capture.close();
    const bp_status status =
        CapturedProgram::make(target, *capture.recorder, capture.slots, held, made.program);
    if (status != BP_OK) return status;
    made.node_count = made.program->node_count();
    return target.caches->give_back_unused(*capture.parts->pool());
  }
  bp_capture_info info;
  // The count is for people. A stream without a state fails in end_capture(), with its reason.
  if (read_state(target, capture.stream, info) == BP_OK) made.node_count = info.node_count;
  const bp_status status = capture.end(&made.graph);
  if (status != BP_OK) return status;
  const bp_graph_ops& graphs = target.own_tables.graphs;
  return graphs.instantiate(graphs.self, made.graph, &made.instance);
}

bp_status end(Capture& capture, bp_captured_graph** out_graph) {
  Target& target = *capture.target;
  auto made = std::make_unique<CapturedGraph>();
  made->target = &target;
  made->parts = capture.parts;
  const bp_status status = out_graph == nullptr ? capture.end(nullptr) : record(capture, *made);
  capture.parts = nullptr;
  target.caches->free_deferred();
  if (out_graph == nullptr || status != BP_OK) {
    const std::string words = status == BP_OK ? "" : take_error();
    const bp_status ended = made->end();
    return status == BP_OK ? ended : fail(status, words);
  }
  const std::lock_guard lock(target.captures_mutex);
  target.captured_graphs.push_back(made.get());
  *out_graph = captured_graphs().add(std::move(made));
  return BP_OK;
}

bp_status launch(CapturedGraph& graph, bp_stream* stream) {
  Target& target = *graph.target;
  if (stream == nullptr) stream = target.default_stream;
  const bp_status used = graph.parts->use(stream);
  if (used != BP_OK) return used;
  if (graph.program != nullptr) {
    std::shared_ptr<CaptureParts> capture;
    const bp_status status = target.caches->captures().find(stream, capture);
    if (status != BP_OK || capture == nullptr) {
      return status != BP_OK ? status : graph.program->launch(stream);
    }
    return fail(BP_INVALID_ARGUMENT,
                "captured_graph.launch: the stream captures, and a graph that is a program is not "
                "part of another capture");
  }
  const bp_graph_ops& graphs = target.own_tables.graphs;
  return graphs.launch(graphs.self, graph.instance, stream);
}

bp_captured_graph_info info_of(const CapturedGraph& graph) {
  bp_captured_graph_info info{};
  const bp_cache_statistics pool = graph.target->caches->statistics(graph.parts->pool());
  info.node_count = graph.node_count;
  info.slot_count = graph.slot_count;
  info.pool_bytes = pool.reserved_bytes;
  info.block_count = graph.target->caches->held(*graph.parts->pool()).size();
  info.kept_count = graph.parts->kept_count();
  info.graph = graph.graph;
  return info;
}

// Reads the desc of `call`, and begins a capture as a graph of the device or as a program.
bp_status begin_with(const char* call, bool wants_program, const bp_target* target,
                     bp_stream* stream, const bp_capture_desc* desc, bp_capture** out_capture) {
  if (target == nullptr) return is_null("target");
  if (out_capture == nullptr) return is_null("out_capture");
  Target& t = impl(target);
  if (t.caches == nullptr) return backend_unloaded(target->name);
  bp_capture_desc ours{};
  ours.struct_size = sizeof(ours);
  ours.struct_type = BP_STRUCT_CAPTURE_DESC;
  if (desc != nullptr) {
    const bp_status status = read_desc(desc, BP_STRUCT_CAPTURE_DESC, kFirstDesc, call, ours);
    if (status != BP_OK) return status;
  }
  if (ours.slots == nullptr && ours.slot_count != 0) return is_null("desc: slots");
  const bool has_graphs = t.has_table(BP_STRUCT_GRAPH_OPS);
  const bool has_compiler = t.has_table(BP_STRUCT_COMPILER_OPS);
  if (!has_compiler && (wants_program || !has_graphs)) {
    return fail(BP_UNSUPPORTED, std::string(call) + ": " + target->name +
                                    (wants_program ? " has no compiler"
                                                   : " records no graphs and has no compiler") +
                                    "; submit the work each time");
  }
  if (stream == nullptr) stream = t.default_stream;
  const bool is_program = wants_program || !has_graphs || (has_compiler && t.is_compile_only);
  return (is_program ? begin_program : begin)(t, stream, ours, out_capture);
}

}  // namespace

void abandon_captures(Target& target) {
  std::vector<Capture*> ending;
  {
    const std::lock_guard lock(target.captures_mutex);
    ending = target.captures;
  }
  const bp_graph_ops& graphs = target.own_tables.graphs;
  for (Capture* capture : ending) {
    if (capture->recorder == nullptr &&
        graphs.end_capture(graphs.self, capture->stream, nullptr) != BP_OK) {
      static_cast<void>(take_error());  // The instance ends with its captures.
    }
    capture->lose();
  }
}

void end_captured_graphs(Target& target) {
  std::vector<CapturedGraph*> ending;
  {
    const std::lock_guard lock(target.captures_mutex);
    ending.swap(target.captured_graphs);
  }
  for (CapturedGraph* graph : ending) {
    if (graph->end() != BP_OK) static_cast<void>(take_error());  // shutdown() ends the rest.
  }
}

void lose_captures(Target& target) {
  std::vector<Capture*> lost;
  {
    const std::lock_guard lock(target.captures_mutex);
    lost = target.captures;
    for (CapturedGraph* graph : target.captured_graphs) graph->is_lost = true;
  }
  for (Capture* capture : lost) capture->lose();
}

void leave_captures(Target& target) {
  // The last owner of the parts would end them by calls of the backend, so nobody owns them.
  const auto leave = [](std::shared_ptr<CaptureParts>& parts) {
    static_cast<void>(new std::shared_ptr<CaptureParts>(std::move(parts)));
  };
  for (Capture* capture : std::exchange(target.captures, {})) {
    capture->is_open = false;
    capture->target = nullptr;
    leave(capture->parts);
  }
  for (CapturedGraph* graph : std::exchange(target.captured_graphs, {})) {
    graph->target = nullptr;
    static_cast<void>(graph->program.release());  // Its end would call the backend.
    leave(graph->parts);
  }
}

}  // namespace bp::core

// NOLINTNEXTLINE(google-build-using-namespace): the functions below are the namespace's C API.
using namespace bp::core;
using bp::is_null;

bp_status bp_capture_begin(const bp_target* target, bp_stream* stream, const bp_capture_desc* desc,
                           bp_capture** out_capture) {
  return guarded(
      [&] { return begin_with("capture.begin", false, target, stream, desc, out_capture); });
}

bp_status bp_capture_begin_program(const bp_target* target, bp_stream* stream,
                                   const bp_capture_desc* desc, bp_capture** out_capture) {
  return guarded(
      [&] { return begin_with("capture.begin_program", true, target, stream, desc, out_capture); });
}

bp_status bp_capture_end(bp_capture* capture, bp_captured_graph** out_graph) {
  return guarded([&]() -> bp_status {
    if (capture == nullptr) return is_null("capture");
    const std::unique_ptr<Capture> owned = open_captures().take(capture);
    if (owned == nullptr) {
      return bp::fail(BP_INVALID_ARGUMENT,
                      "capture.end: capture is no open capture; bp_capture_end() ends a handle, "
                      "whatever it returns, and takes each handle once");
    }
    return owned->target == nullptr ? was_lost("capture.end") : end(*owned, out_graph);
  });
}

bp_status bp_captured_graph_launch(bp_captured_graph* graph, bp_stream* stream) {
  return guarded([&]() -> bp_status {
    CapturedGraph* found = nullptr;
    const bp_status status = find_graph(graph, "captured_graph.launch", found);
    return status == BP_OK ? launch(*found, stream) : status;
  });
}

bp_status bp_captured_graph_bind(bp_captured_graph* graph, uint64_t slot,
                                 const bp_buffer_ref* range) {
  return guarded([&]() -> bp_status {
    if (range == nullptr) return is_null("range");
    CapturedGraph* found = nullptr;
    const bp_status status = find_graph(graph, "captured_graph.bind", found);
    if (status != BP_OK) return status;
    if (found->program != nullptr) return found->program->bind(slot, *range);
    const bp_graph_ops& graphs = found->target->own_tables.graphs;
    return graphs.bind(graphs.self, found->instance, slot, range);
  });
}

bp_status bp_captured_graph_get_info(const bp_captured_graph* graph,
                                     bp_captured_graph_info* out_info) {
  return guarded([&]() -> bp_status {
    CapturedGraph* found = nullptr;
    const bp_status status = find_graph(graph, "captured_graph.get_info", found);
    return status == BP_OK ? write_out(info_of(*found), out_info, kFirstInfo, "out_info") : status;
  });
}

bp_status bp_captured_graph_destroy(bp_captured_graph* graph) {
  if (graph == nullptr) return BP_OK;
  return guarded([&]() -> bp_status {
    const std::unique_ptr<CapturedGraph> owned = captured_graphs().take(graph);
    if (owned == nullptr) return is_no_graph("captured_graph.destroy");
    if (Target* const target = owned->target; target != nullptr) {
      const std::lock_guard lock(target->captures_mutex);
      std::erase(target->captured_graphs, owned.get());
    }
    return owned->end();
  });
}
