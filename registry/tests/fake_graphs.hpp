// A table of graphs for the backend in the test's own process (fake_backend.hpp). It records
// nothing but which stream captures, and counts what lives.
#pragma once

#include <map>

#include "backplane/graph.h"

namespace bp::core {

struct FakeGraphs {
  std::map<bp_stream*, uint64_t> capturing;  // The id of the capture of each stream.
  uint64_t last_id = 0;
  int live_graphs = 0, live_instances = 0, launches = 0;
  bp_status end_status = BP_OK, instantiate_status = BP_OK;
  bp_graph_ops table{};

  FakeGraphs() {
    table = {.struct_size = sizeof(table), .struct_type = BP_STRUCT_GRAPH_OPS, .self = this};
    table.begin_capture = [](void* self, bp_stream* stream, const bp_capture_desc*) -> bp_status {
      FakeGraphs& f = from(self);
      if (f.capturing.contains(stream)) return BP_INVALID_ARGUMENT;
      f.capturing[stream] = ++f.last_id;
      return BP_OK;
    };
    table.capture_info = [](void* self, bp_stream* stream, bp_capture_info* out) -> bp_status {
      const auto found = from(self).capturing.find(stream);
      out->capture_id = found == from(self).capturing.end() ? 0 : found->second;
      return BP_OK;
    };
    table.end_capture = [](void* self, bp_stream* stream, bp_graph** out) -> bp_status {
      FakeGraphs& f = from(self);
      f.capturing.erase(stream);
      if (f.end_status != BP_OK || out == nullptr) return f.end_status;
      ++f.live_graphs;
      *out = reinterpret_cast<bp_graph*>(&f.live_graphs);
      return BP_OK;
    };
    table.instantiate = [](void* self, bp_graph*, bp_graph_instance** out) -> bp_status {
      FakeGraphs& f = from(self);
      if (f.instantiate_status != BP_OK) return f.instantiate_status;
      ++f.live_instances;
      *out = reinterpret_cast<bp_graph_instance*>(&f.live_instances);
      return BP_OK;
    };
    fill_uses();
  }
  FakeGraphs(const FakeGraphs&) = delete;

 private:
  static FakeGraphs& from(void* self) { return *static_cast<FakeGraphs*>(self); }

  void fill_uses() {
    table.bind = [](void*, bp_graph_instance*, uint64_t, const bp_buffer_ref*) -> bp_status {
      return BP_OK;
    };
    table.launch = [](void* self, bp_graph_instance*, bp_stream*) -> bp_status {
      ++from(self).launches;
      return BP_OK;
    };
    table.destroy = [](void* self, bp_graph* graph) -> bp_status {
      if (graph != nullptr) --from(self).live_graphs;
      return BP_OK;
    };
    table.destroy_instance = [](void* self, bp_graph_instance* instance) -> bp_status {
      if (instance != nullptr) --from(self).live_instances;
      return BP_OK;
    };
  }
};

}  // namespace bp::core
