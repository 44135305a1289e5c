// What the tests of timed launches share: a kernel that adds late, and the tensors of its calls.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "backplane/ops.h"
#include "conformance/perf/call_sets.hpp"
#include "conformance/tests/lazy_device.hpp"

namespace bp::conformance {

inline std::vector<uint8_t>& bytes_of(const bp_tensor* tensor) {
  return LazyDevice::buffer(tensor->buffer).bytes;
}

// y = a + b, when somebody waits for it.
struct AddKernel : bp_kernel {
  uint64_t required_bytes = 0, preferred_bytes = 0;
  int refuses_at = -1;                       // The launch with this number, from 0 on.
  bp_status failure = BP_OK;                 // Of the stream, from the second launch on.
  std::chrono::microseconds work_on_new{0};  // For an input that the launch before did not have.
  mutable int count = 0;
  mutable std::vector<bp_buffer_ref> workspaces;
  mutable std::vector<std::pair<bp_buffer*, std::vector<uint8_t>>> seen;  // `a`, of each launch.

  AddKernel() : bp_kernel{} {
    struct_size = sizeof(bp_kernel);
    struct_type = BP_STRUCT_KERNEL;
    name = "add.test";
    op = BP_OP_ADD;
    args_size_bytes = sizeof(bp_add_args);
    workspace_size = [](const bp_kernel* self, bp_device*, bp_launch_flags, const void*,
                        uint64_t* required, uint64_t* preferred) -> bp_status {
      *required = static_cast<const AddKernel*>(self)->required_bytes;
      *preferred = static_cast<const AddKernel*>(self)->preferred_bytes;
      return BP_OK;
    };
    bp_kernel::launch = [](const bp_kernel* self, const bp_launch* at,
                           const void* args) -> bp_status {
      return static_cast<const AddKernel*>(self)->submit(*at,
                                                         *static_cast<const bp_add_args*>(args));
    };
  }

  bp_status submit(const bp_launch& at, const bp_add_args& args) const {
    const int number = count++;
    workspaces.push_back(at.workspace);
    if (number == refuses_at) return BP_INTERNAL;
    if (number > 0 && failure != BP_OK) LazyDevice::fail(at.stream, failure);
    const bp_tensor a = *args.a, b = *args.b, y = *args.y;
    LazyDevice::submit(at.stream, [this, a, b, y] { add(a, b, y); });
    return BP_OK;
  }

  void add(const bp_tensor& a, const bp_tensor& b, const bp_tensor& y) const {
    const bool is_new = seen.empty() || seen.back().second != bytes_of(&a);
    seen.emplace_back(a.buffer, bytes_of(&a));
    if (is_new) std::this_thread::sleep_for(work_on_new);
    for (size_t i = 0; i < bytes_of(&y).size(); i += sizeof(float)) {
      float left, right;
      std::memcpy(&left, &bytes_of(&a)[i], sizeof(float));
      std::memcpy(&right, &bytes_of(&b)[i], sizeof(float));
      left += right;
      std::memcpy(&bytes_of(&y)[i], &left, sizeof(float));
    }
  }
};

class Timing : public testing::Test {
 protected:
  Timing() : op_case_(make_case(BP_OP_ADD, BP_F32, "", "", "")) {
    op_case_.input("a", BP_F32, {4, 6}, kRandom).input("b", BP_F32, {4, 6}, kRandom);
    op_case_.output("y", BP_F32, {4, 6});
  }

  // Runs `body` as that of a case.
  Result in_case(const std::function<void(Context&)>& body) {
    const Subject subject{.target = &device_.target};
    const Case which{.id = "test.case", .run = body};
    Context context(subject, which, 1);
    return run_case(which, context);
  }
  void expect_pass(const std::function<void(Context&)>& body) {
    const Result result = in_case(body);
    EXPECT_EQ(result.outcome, Outcome::kPass) << result.message;
  }

  // The sets of op_case_, with the data of their groups.
  void with_sets(size_t count, const std::function<void(Context&, CallSets&, bp_stream*)>& body) {
    expect_pass([&](Context& t) {
      const DataGroups groups = {CallData(op_case_, 1), CallData(op_case_, 2)};
      const OwnedStream stream = make_stream(t);
      CallSets sets(t, op_case_, groups, stream.get(), count);
      for (size_t set = 0; set < count; ++set) sets.restore(set, set % 2);
      finish(t, stream.get());
      body(t, sets, stream.get());
    });
  }

  static const bp_add_args& args_of(const CallSets& sets, size_t set) {
    return *static_cast<const bp_add_args*>(sets.frame(set).data());
  }
  static std::vector<size_t> changed_bytes(const std::vector<uint8_t>& before,
                                           const std::vector<uint8_t>& after) {
    std::vector<size_t> changed;
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] != after[i]) changed.push_back(i);
    }
    return changed;
  }

  LazyDevice device_;
  AddKernel kernel_;
  OpCase op_case_;
};

}  // namespace bp::conformance
