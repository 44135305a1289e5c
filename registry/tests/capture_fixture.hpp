// A device of a real backend with captures, for the tests of backplane/capture.h.
#pragma once

#include "backplane/capture.h"
#include "backplane/ops.h"
#include "registry/state/state.hpp"
#include "registry/tests/service_tensors.hpp"

namespace bp {

class CaptureFixture : public testing::Test {
 protected:
  using Floats = Tensor<float>;

  void load(const char* path, const std::vector<bp_option>& options = {}) {
    const Status status = registry.load(path, options, &plugin);
    ASSERT_TRUE(status.ok()) << status.message;
    target = bp_registry_target(registry.get(),
                                bp_registry_target_count(registry.get()) - plugin->target_count);
  }

  bp_capture* begin(bp_stream* on = nullptr, const bp_capture_desc* desc = nullptr) {
    bp_capture* capture = nullptr;
    EXPECT_EQ(bp_capture_begin(target, on, desc, &capture), BP_OK) << bp_error_text();
    return capture;
  }
  bp_captured_graph* end(bp_capture* capture) {
    bp_captured_graph* graph = nullptr;
    EXPECT_EQ(bp_capture_end(capture, &graph), BP_OK) << bp_error_text();
    return graph;
  }
  void replay(bp_captured_graph* graph, bp_stream* on = nullptr) {
    EXPECT_EQ(bp_captured_graph_launch(graph, on), BP_OK) << bp_error_text();
  }
  void destroy(bp_captured_graph* graph) {
    EXPECT_EQ(bp_captured_graph_destroy(graph), BP_OK) << bp_error_text();
  }
  bp_captured_graph_info info(const bp_captured_graph* graph) {
    bp_captured_graph_info i{};
    i.struct_size = sizeof(i);
    EXPECT_EQ(bp_captured_graph_get_info(graph, &i), BP_OK) << bp_error_text();
    return i;
  }

  bp_block* take(uint64_t size_bytes, bp_stream* on = nullptr) {
    bp_block* block = nullptr;
    EXPECT_EQ(bp_block_allocate(target, on, size_bytes, &block), BP_OK) << bp_error_text();
    return block;
  }
  void fill(const bp_block* block, unsigned char value, bp_stream* on = nullptr) {
    if (on == nullptr) on = target->default_stream;
    EXPECT_EQ(target->allocator->fill(target->allocator->self, on, &block->ref, &value, 1), BP_OK)
        << bp_error_text();
  }
  unsigned char first_byte(const bp_block* block) {
    unsigned char byte = 0;
    const bp_buffer_ref ref{block->ref.buffer, block->ref.byte_offset, 1};
    EXPECT_EQ(target->allocator->copy_to_host(target->allocator->self, target->default_stream,
                                              &byte, &ref, BP_BORROW_DURING_CALL, UINT64_MAX),
              BP_OK)
        << bp_error_text();
    return byte;
  }

  // softmax into rows that are columns of y needs workspace.
  bp_status softmax(const Floats& x, const Floats& y, bp_stream* on = nullptr) {
    const bp_softmax_args args{.struct_size = sizeof(args), .x = x.get(), .y = y.get(), .axis = 1};
    return bp_op_launch(target, on, 0, BP_OP_SOFTMAX, &args);
  }

  StreamHandle make_stream() {
    StreamHandle stream;
    const Status status = create_stream(*target, nullptr, &stream);
    EXPECT_TRUE(status.ok()) << status.message;
    return stream;
  }
  // Lets `later` wait for the work of `earlier` so far.
  void order(bp_stream* earlier, bp_stream* later) {
    EventHandle event;
    ASSERT_TRUE(create_event(*target, nullptr, &event).ok());
    ASSERT_EQ(target->events->record(target->events->self, event.get(), earlier), BP_OK)
        << bp_error_text();
    ASSERT_EQ(target->streams->wait_event(target->streams->self, later, event.get()), BP_OK)
        << bp_error_text();
    events.push_back(std::move(event));
  }
  void synchronize() {
    ASSERT_EQ(target->devices->synchronize(target->devices->self, target->device, UINT64_MAX),
              BP_OK)
        << bp_error_text();
  }

  // The bytes of the first heap that nobody has.
  uint64_t room() {
    uint64_t free_bytes = 0, total_bytes = 0;
    EXPECT_EQ(target->devices->memory_info(target->devices->self, target->device, 0, &free_bytes,
                                           &total_bytes),
              BP_OK);
    return free_bytes;
  }
  uint64_t cached_allocations() {
    bp_cache_statistics s{.struct_size = sizeof(s)};
    EXPECT_EQ(bp_cache_get_statistics(target, &s), BP_OK);
    return s.allocation_count;
  }

  Registry registry;
  const bp_plugin* plugin = nullptr;
  const bp_target* target = nullptr;
  std::vector<EventHandle> events;
};

#ifdef BACKPLANE_TEST_ASYNC_PLUGIN
class CaptureTest : public CaptureFixture {
 protected:
  void open(const std::vector<bp_option>& options = {}) {
    load(BACKPLANE_TEST_ASYNC_PLUGIN, options);
  }
  void SetUp() override { open(); }
};
#endif

}  // namespace bp
