// Calls every entry of the backend's tables, for tests in which a call of CUDA fails. The tour
// keeps every refusal, and leaves out the calls that need what a refused call did not give.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "backends/shell/test_backend.hpp"

namespace bp::cuda::fake {

// One entry that did not return BP_OK.
struct Refusal {
  std::string entry;
  bp_status status;
  std::string text;
};

class Tour {
 public:
  explicit Tour(TestBackend& backend) : b_(backend) {}
  Tour(const Tour&) = delete;
  ~Tour() { end(); }

  // Calls every entry once. Returns false if all calls succeeded but wrong bytes came out.
  bool run();

  // Ends all handles, and expects BP_OK from each call, whatever happened before.
  void end();

  const std::vector<Refusal>& refusals() const { return refusals_; }
  const std::vector<Refusal>& refused_ends() const { return refused_ends_; }

 private:
  bool took(bp_status status, const char* entry);
  void visit_device();
  void visit_memory();
  void visit_copies();
  void visit_events();
  void visit_held_stream();
  void visit_semaphore();
  void visit_graph();
  void visit_peer();
  bp_buffer* allocate(uint64_t size_bytes, uint64_t heap_mask, bp_memory_usage usage,
                      bp_stream* stream);
  void synchronize(bp_stream* stream);
  std::vector<char>& host_bytes(uint64_t size_bytes, char value);

  TestBackend& b_;
  std::vector<Refusal> refusals_, refused_ends_;
  std::vector<bp_buffer*> buffers_;
  std::vector<bp_event*> events_;
  bp_stream *first_ = nullptr, *second_ = nullptr;
  bp_buffer *here_ = nullptr, *there_ = nullptr, *registered_ = nullptr;
  bp_semaphore* semaphore_ = nullptr;
  bp_graph* graph_ = nullptr;
  bp_graph_instance* instance_ = nullptr;
  // Memory of the host. It lives as long as the tour, because copies may still use it after a
  // failure.
  std::deque<std::vector<char>> host_;
  bool is_right_ = true;
};

}  // namespace bp::cuda::fake
