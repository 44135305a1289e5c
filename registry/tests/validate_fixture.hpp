// The parts that the tests of the layer validate share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {

// A backend of two devices with events, behind the layer.
class ValidateTest : public testing::Test {
 protected:
  ValidateTest() : r_(0, "validate"), fake_("acme.npu", 2) {
    fill_events();
    kernel_.dtype_rows = nullptr;
    fake_.kernels = {&kernel_};
  }

  void SetUp() override { EXPECT_EQ(fake_.load(r_.registry, &plugin_), BP_OK) << bp_error_text(); }

  void fill_events() {
    bp_event_ops& e = fake_.events;
    e.create = [](void*, bp_device*, const bp_event_desc*, bp_event** out) -> bp_status {
      *out = reinterpret_cast<bp_event*>(new char);
      return BP_OK;
    };
    e.destroy = [](void*, bp_event* event) -> bp_status {
      delete reinterpret_cast<char*>(event);
      return BP_OK;
    };
    e.record = [](void*, bp_event*, bp_stream*) -> bp_status { return BP_OK; };
    e.synchronize = [](void*, bp_event*, uint64_t) -> bp_status { return BP_OK; };
    e.signal = [](void*, bp_event*, bp_status) -> bp_status { return BP_OK; };
    e.elapsed_ns = [](void*, bp_event*, bp_event*, int64_t*) -> bp_status { return BP_OK; };
    fake_.streams.default_stream = [](void*, bp_device* device, bp_stream** out) -> bp_status {
      *out = reinterpret_cast<bp_stream*>(device);
      return BP_OK;
    };
    fake_.streams.wait_event = [](void*, bp_stream*, bp_event*) -> bp_status { return BP_OK; };
    fake_.allocator.map = [](void*, const bp_buffer_ref* range, void** out) -> bp_status {
      *out = fake_bytes(*range);
      return BP_OK;
    };
    fake_.allocator.unmap = [](void*, bp_buffer*, void*) -> bp_status { return BP_OK; };
  }

  const bp_allocator_ops& memory() const { return *r_.target()->allocator; }
  const bp_stream_ops& streams() const { return *r_.target()->streams; }
  const bp_event_ops& events() const { return *r_.target()->events; }

  bp_buffer* allocate(uint64_t size_bytes = 64, uint64_t device = 0) {
    const bp_allocate_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = size_bytes};
    bp_buffer* buffer = nullptr;
    EXPECT_EQ(memory().allocate(memory().self, r_.target(device)->device, &desc, &buffer), BP_OK);
    return buffer;
  }
  bp_status free(bp_buffer* buffer) { return memory().deallocate(memory().self, buffer, nullptr); }
  bp_stream* stream() {
    bp_stream* made = nullptr;
    EXPECT_EQ(streams().create(streams().self, r_.target()->device, nullptr, &made), BP_OK);
    return made;
  }
  bp_event* event(uint32_t flags = 0) {
    const bp_event_desc desc{
        .struct_size = sizeof(desc), .struct_type = BP_STRUCT_EVENT_DESC, .flags = flags};
    bp_event* made = nullptr;
    EXPECT_EQ(events().create(events().self, r_.target()->device, &desc, &made), BP_OK);
    return made;
  }
  bp_status fill(bp_stream* on, bp_buffer* buffer, uint64_t begin = 0, uint64_t size = 8) {
    const bp_buffer_ref range{buffer, begin, size};
    const unsigned char zero = 0;
    return memory().fill(memory().self, on, &range, &zero, 1);
  }
  bp_status launch(bp_stream* on, bp_buffer* in, bp_buffer* out, int64_t extent = 4) {
    const int64_t shape[] = {extent}, strides[] = {1};
    const bp_tensor a{.buffer = in, .shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
    bp_tensor y = a;
    y.buffer = out;
    const bp_add_args args{.struct_size = sizeof(args), .a = &a, .b = &a, .y = &y};
    const bp_launch launch{.device = r_.target()->device, .stream = on};
    const bp_kernel* kernel = bp_target_kernel(r_.target(), 0);
    return kernel->launch(kernel, &launch, &args);
  }

  // Checks the text of a refusal, without the parts that differ from run to run.
  static void expect_words(const char* words) {
    EXPECT_NE(std::string(bp_error_text()).find(words), std::string::npos) << bp_error_text();
  }
  uint64_t reports() const {
    uint64_t count = 0;
    EXPECT_EQ(bp_plugin_layer_reports(plugin_, "validate", &count), BP_OK);
    return count;
  }

  TestRegistry r_;
  FakeBackend fake_;
  bp_kernel kernel_ = make_kernel("add.fast");
  const bp_plugin* plugin_ = nullptr;
};

}  // namespace bp::core
