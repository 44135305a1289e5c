// Tests a host fallback whose work fails on the host. The device of these tests has events that can
// give its streams a failure.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backplane/ops.h"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

// The failures of the device's streams and events.
std::map<bp_stream*, bp_status> stream_failures;
std::map<bp_event*, bp_status> event_failures;
// What another thread does while the host passes a failure on.
std::function<void(bp_stream*)> before_wait, after_wait;

bp_status surface(void* self, bp_stream* stream) {
  const auto found = stream_failures.find(stream);
  if (found == stream_failures.end()) return BP_OK;
  const bp_host& host = *FakeBackend::from(self).host;
  return host.set_error(host.self, found->second, "the host signalled a failure");
}

// Refuses a submission to a stream that has failed.
bp_status admit(void* self, bp_stream* stream) {
  return surface(self, stream) == BP_OK ? bp_status{BP_OK} : bp_status{BP_STREAM_FAILED};
}

class FallbackFailure : public testing::Test {
 protected:
  FallbackFailure() {
    stream_failures.clear();
    event_failures.clear();
    before_wait = after_wait = [](bp_stream*) {};
    fill_streams();
    fill_events();
    EXPECT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    EXPECT_EQ(bp_registry_load(r.registry, BACKPLANE_TEST_PLUGIN, 0, nullptr, nullptr), BP_OK)
        << bp_error_text();
    device = r.target(0);
    host = r.target(1);
    stream = device->default_stream;
  }

  void fill_streams() {
    bp_stream_ops& streams = fake.streams;
    streams.status = surface;
    streams.synchronize = [](void* self, bp_stream* on, uint64_t) { return surface(self, on); };
    streams.query = [](void*, bp_stream*, uint32_t* out_done) -> bp_status {
      *out_done = 1;
      return BP_OK;
    };
    streams.clear_failure = [](void*, bp_stream* on) -> bp_status {
      stream_failures.erase(on);
      return BP_OK;
    };
    streams.wait_event = [](void* self, bp_stream* on, bp_event* event) -> bp_status {
      before_wait(on);
      if (const bp_status status = admit(self, on); status != BP_OK) return status;
      if (event_failures.contains(event)) stream_failures.emplace(on, event_failures.at(event));
      after_wait(on);
      return BP_OK;
    };
    fake.allocator.copy_to_host = [](void* self, bp_stream* on, void* dst, const bp_buffer_ref* src,
                                     bp_borrow, uint64_t) -> bp_status {
      if (const bp_status status = admit(self, on); status != BP_OK) return status;
      std::memcpy(dst, fake_bytes(*src), src->size_bytes);
      return BP_OK;
    };
  }

  void fill_events() {
    fake.events.create = [](void*, bp_device*, const bp_event_desc* desc,
                            bp_event** out) -> bp_status {
      EXPECT_EQ(desc->flags, uint32_t{BP_EVENT_HOST_SIGNAL});
      *out = reinterpret_cast<bp_event*>(new char);
      return BP_OK;
    };
    fake.events.signal = [](void*, bp_event* event, bp_status status) -> bp_status {
      event_failures[event] = status;
      return BP_OK;
    };
    fake.events.destroy = [](void*, bp_event* event) -> bp_status {
      event_failures.erase(event);
      delete reinterpret_cast<char*>(event);
      return BP_OK;
    };
  }

  template <typename T>
  bp_tensor tensor(std::vector<T>& elements, const std::vector<int64_t>& shape, bp_dtype dtype) {
    static constexpr int64_t kRows[] = {2, 1};
    return {.buffer = reinterpret_cast<bp_buffer*>(elements.data()),
            .shape = shape.data(),
            .strides = shape.size() == 2 ? kRows : kRows + 1,
            .ndim = static_cast<uint32_t>(shape.size()),
            .dtype = dtype};
  }

  bp_status look_up() {
    const bp_embedding_args args{
        .struct_size = sizeof(args), .weight = &table, .indices = &index, .y = &rows};
    EXPECT_EQ(bp_op_check(BP_OP_EMBEDDING, &args), BP_OK) << bp_error_text();
    return bp_op_launch(device, stream, 0, BP_OP_EMBEDDING, &args);
  }
  bp_status relu(const bp_tensor& x, const bp_tensor& y) {
    const bp_relu_args args{.struct_size = sizeof(args), .x = &x, .y = &y};
    return bp_op_launch(device, stream, 0, BP_OP_RELU, &args);
  }
  bp_status status(const bp_target& of, bp_stream* on) {
    return of.streams->status(of.streams->self, on);
  }

  FakeBackend fake;  // It outlives the registry.
  TestRegistry r;
  const bp_target *device = nullptr, *host = nullptr;
  bp_stream* stream = nullptr;
  std::vector<float> weights{1, 2, 3, 4, 5, 6}, picked = std::vector<float>(4, 77);
  std::vector<int64_t> indices{0, 7};
  std::vector<int64_t> table_shape{3, 2}, rows_shape{2, 2}, index_shape{2};
  bp_tensor table = tensor(weights, table_shape, BP_F32);
  bp_tensor rows = tensor(picked, rows_shape, BP_F32);
  bp_tensor index = tensor(indices, index_shape, BP_I64);
};

TEST_F(FallbackFailure, IsThatOfTheCallersStreamInTheWordsOfTheHost) {
  EXPECT_EQ(look_up(), BP_OK) << bp_error_text();
  EXPECT_EQ(picked, std::vector<float>(4, 77));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(status(*device, stream), BP_DATA_FAILURE);
    const std::string text = bp_error_text();
    EXPECT_NE(text.find(std::string("embedding on ") + host->name), text.npos) << text;
    EXPECT_NE(text.find("7"), text.npos) << text;
    bp_error_clear();
  }
  EXPECT_EQ(device->streams->synchronize(device->streams->self, stream, UINT64_MAX),
            BP_DATA_FAILURE);
  EXPECT_NE(std::string(bp_error_text()).find("embedding on "), std::string::npos);
  EXPECT_EQ(relu(rows, rows), BP_STREAM_FAILED) << "nothing runs on what was never written";
  EXPECT_EQ(status(*host, host->default_stream), BP_OK) << bp_error_text();
}

TEST_F(FallbackFailure, EndsWithTheFailureOfTheStream) {
  ASSERT_EQ(look_up(), BP_OK) << bp_error_text();
  ASSERT_EQ(device->streams->clear_failure(device->streams->self, stream), BP_OK);
  EXPECT_EQ(status(*device, stream), BP_OK);
  picked = {-1, 2, -3, 4};
  ASSERT_EQ(relu(rows, rows), BP_OK) << bp_error_text();
  EXPECT_EQ(picked, (std::vector<float>{0, 2, 0, 4}));
  EXPECT_EQ(relu(index, index), BP_UNSUPPORTED) << "an invalid call is refused as before";
  EXPECT_EQ(status(*device, stream), BP_OK) << bp_error_text();
  indices = {2, 0};
  ASSERT_EQ(look_up(), BP_OK) << bp_error_text();
  EXPECT_EQ(picked, (std::vector<float>{5, 6, 1, 2}));
  // A failure of the backend does not get the text of the host's failure.
  stream_failures[stream] = BP_DATA_FAILURE;
  EXPECT_EQ(status(*device, stream), BP_DATA_FAILURE);
  EXPECT_STREQ(bp_error_text(), "the host signalled a failure");
}

TEST_F(FallbackFailure, LeavesNoTextIfItIsClearedAtOnce) {
  after_wait = [this](bp_stream* on) {
    EXPECT_EQ(device->streams->clear_failure(device->streams->self, on), BP_OK);
  };
  ASSERT_EQ(look_up(), BP_OK) << bp_error_text();
  EXPECT_EQ(status(*device, stream), BP_OK);
  stream_failures[stream] = BP_DATA_FAILURE;
  EXPECT_EQ(status(*device, stream), BP_DATA_FAILURE);
  EXPECT_STREQ(bp_error_text(), "the host signalled a failure");
}

TEST_F(FallbackFailure, IsARefusalIfTheStreamHasFailedMeanwhile) {
  before_wait = [](bp_stream* on) { stream_failures[on] = BP_DATA_FAILURE; };
  EXPECT_EQ(look_up(), BP_STREAM_FAILED);
  EXPECT_STREQ(bp_error_text(), "the host signalled a failure");
  bp_error_clear();
  EXPECT_EQ(status(*device, stream), BP_DATA_FAILURE);
  EXPECT_STREQ(bp_error_text(), "the host signalled a failure") << "the first failure counts";
}

TEST_F(FallbackFailure, LeavesOtherStreamsAlone) {
  bp_stream* other = nullptr;
  const bp_stream_ops& streams = *device->streams;
  ASSERT_EQ(streams.create(streams.self, device->device, nullptr, &other), BP_OK);
  std::swap(stream, other);
  ASSERT_EQ(look_up(), BP_OK) << bp_error_text();
  std::swap(stream, other);
  picked = {-1, 2, -3, 4};
  EXPECT_EQ(relu(rows, rows), BP_OK) << bp_error_text();
  EXPECT_EQ(status(*device, stream), BP_OK);
  EXPECT_EQ(status(*device, other), BP_DATA_FAILURE);
  ASSERT_EQ(streams.destroy(streams.self, other), BP_OK);
}

}  // namespace
}  // namespace bp::core
