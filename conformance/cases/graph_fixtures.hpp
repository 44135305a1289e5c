// What the cases about graphs share: handles that end with the case, and a capture that does.
#pragma once

#include <memory>
#include <vector>

#include "conformance/cases/fixtures.hpp"

namespace bp::conformance {

// The table of graphs. Ends the case as NotSupported for a device without one.
const bp_graph_ops& graph_table(Context& t);

struct GraphEnd {
  const bp_graph_ops* ops;
  void operator()(bp_graph* graph) const { static_cast<void>(ops->destroy(ops->self, graph)); }
};
struct InstanceEnd {
  const bp_graph_ops* ops;
  void operator()(bp_graph_instance* instance) const {
    static_cast<void>(ops->destroy_instance(ops->self, instance));
  }
};
using OwnedGraph = std::unique_ptr<bp_graph, GraphEnd>;
using OwnedInstance = std::unique_ptr<bp_graph_instance, InstanceEnd>;

// A capture of `stream`; abandoned at the latest when it is destroyed.
class Capturing {
 public:
  Capturing(Context& t, bp_stream* stream, const std::vector<bp_buffer_ref>& slots = {});
  ~Capturing();
  Capturing(const Capturing&) = delete;

  bp_capture_info info() const;
  OwnedGraph end();
  void abandon();

 private:
  Context& context_;
  const bp_graph_ops& ops_;
  bp_stream* stream_;
  bool is_on_ = true;
};

OwnedInstance instantiate(Context& t, const OwnedGraph& graph);
void replay(Context& t, const OwnedInstance& instance, bp_stream* stream);

// Whether what is submitted to `stream` is recorded.
bool is_capturing(Context& t, bp_stream* stream);

// The two kinds of work that every device has, and the edges between streams.
void copy(Context& t, bp_stream* stream, const bp_buffer_ref& to, const bp_buffer_ref& from);
void fill(Context& t, bp_stream* stream, const bp_buffer_ref& to, uint8_t byte);
void record(Context& t, const OwnedEvent& event, bp_stream* stream);
void wait(Context& t, bp_stream* stream, const OwnedEvent& event);

constexpr uint64_t kCopyBytes = 4096;
std::vector<uint8_t> bytes_of(uint8_t byte);  // So many.

// A stream and two buffers, of which `to` holds zeros and `from` bytes of the seed.
struct CopySetting {
  explicit CopySetting(Context& t);

  // A graph that copies `from` to `to`.
  OwnedGraph copying(Context& t, const std::vector<bp_buffer_ref>& slots = {}) const;

  OwnedStream stream;
  OwnedBuffer from_buffer, to_buffer;
  bp_buffer_ref from, to;
  std::vector<uint8_t> bytes;
};

// The cases of graph_replay_cases.cpp.
void add_replay_cases(std::vector<Case>& cases);

}  // namespace bp::conformance
