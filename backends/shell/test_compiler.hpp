// A compiler for a fake device, for tests of programs. The device has the host's memory, runs
// kernels at once, and writes down what was submitted.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/shell/test_program.hpp"
#include "backplane/shell/args_size.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {

// The device. A call that fails returns BP_OUT_OF_MEMORY. Each handle has a name, such as "stream
// 1".
class FakeDevice {
 public:
  FakeDevice() {
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<FakeDevice*>(self)->text = reason;
      return status;
    };
  }
  FakeDevice(const FakeDevice&) = delete;
  ~FakeDevice() {
    for (const auto& [handle, object] : objects_) ADD_FAILURE() << object.name << " was left over";
  }

  bp_device_ops devices() {
    bp_device_ops ops{};
    ops.self = this;
    ops.generation = [](void* self, bp_device*, uint64_t* out) -> bp_status {
      *out = of(self).generation;
      return BP_OK;
    };
    ops.properties = [](void* self, bp_device*, const bp_device_properties** out) -> bp_status {
      of(self).properties_.name = of(self).name;
      *out = &of(self).properties_;
      return BP_OK;
    };
    return ops;
  }

  bp_device* handle() { return reinterpret_cast<bp_device*>(this); }
  size_t live_count() const { return objects_.size(); }
  CompilerBackend backend(std::vector<const bp_kernel*> kernels, const char* identity);

  // Returns whether `call` fails now, and counts it if it does not.
  bool fails(const std::string& call) { return call == failing_call && failing_after-- == 0; }

  bp_buffer* make_buffer(uint64_t size_bytes) {
    bp_buffer* const buffer = make<bp_buffer>("buffer");
    objects_.at(buffer).bytes.resize(size_bytes);
    return buffer;
  }
  bp_stream* make_stream() { return make<bp_stream>("stream"); }
  bp_plan* make_plan() { return make<bp_plan>("plan"); }
  void end(const void* handle) { objects_.erase(handle); }

  // Returns the bytes of a range. Throws std::out_of_range if they are not in the buffer.
  std::byte* bytes(const bp_buffer* buffer, uint64_t byte_offset, uint64_t size_bytes) {
    std::vector<std::byte>& all = objects_.at(buffer).bytes;
    if (size_bytes != 0) static_cast<void>(all.at(byte_offset + size_bytes - 1));
    return all.data() + byte_offset;
  }
  float& element(const bp_tensor& tensor, int64_t index) {
    int64_t place = 0;
    // The only layout of the device has the elements in the reverse order.
    if (tensor.layout != nullptr) {
      const int64_t last = element_count(tensor) - 1;
      return *reinterpret_cast<float*>(
          bytes(tensor.buffer, tensor.byte_offset + static_cast<uint64_t>(last - index) * 4, 4));
    }
    for (uint32_t axis = tensor.ndim; axis-- > 0; index /= tensor.shape[axis]) {
      place += index % tensor.shape[axis] * tensor.strides[axis];
    }
    const uint64_t offset = tensor.byte_offset + static_cast<uint64_t>(place) * sizeof(float);
    return *reinterpret_cast<float*>(bytes(tensor.buffer, offset, sizeof(float)));
  }

  bp_host host{};
  std::string text;
  std::vector<std::string> log;
  std::string failing_call;
  int failing_after = 0;
  uint64_t generation = 0;
  const char* name = "Acme X1";
  Layouts* layouts = nullptr;

 private:
  struct Object {
    std::string name;
    std::vector<std::byte> bytes;
  };

  static FakeDevice& of(void* self) { return *static_cast<FakeDevice*>(self); }
  std::string name_of(const void* handle) const { return objects_.at(handle).name; }

  template <typename Handle>
  Handle* make(const std::string& kind) {
    auto* const handle =
        reinterpret_cast<Handle*>(ids_.emplace_back(std::make_unique<char>()).get());
    objects_[handle].name = kind + " " + std::to_string(++counts_[kind]);
    return handle;
  }
  template <typename Handle>
  bp_status create(const std::string& kind, Handle** out_handle) {
    if (fails(kind + ".create")) return BP_OUT_OF_MEMORY;
    *out_handle = make<Handle>(kind);
    return BP_OK;
  }
  bp_status destroy(const void* handle) {
    EXPECT_EQ(objects_.erase(handle), 1u) << "destroyed twice";
    return BP_OK;
  }
  bp_allocator_ops memory();
  bp_stream_ops streams();
  bp_event_ops events();

  bp_device_properties properties_{};
  std::vector<std::unique_ptr<char>> ids_;  // No handle is used twice.
  std::map<std::string, int> counts_;
  std::map<const void*, Object> objects_;
};

inline bp_allocator_ops FakeDevice::memory() {
  bp_allocator_ops ops{.struct_size = sizeof(ops), .self = this};
  ops.allocate = [](void* self, bp_device*, const bp_allocate_desc* desc, bp_buffer** out_buffer) {
    if (of(self).fails("allocate")) return bp_status{BP_OUT_OF_MEMORY};
    *out_buffer = of(self).make_buffer(desc->size_bytes);
    return bp_status{BP_OK};
  };
  ops.deallocate = [](void* self, bp_buffer* buffer, bp_stream* stream) {
    if (buffer == nullptr) return bp_status{BP_OK};
    FakeDevice& d = of(self);
    d.log.push_back(d.name_of(buffer) + " freed behind " +
                    (stream == nullptr ? "nothing" : d.name_of(stream)));
    return d.destroy(buffer);
  };
  ops.copy = [](void* self, bp_stream*, const bp_buffer_ref* dst, const bp_buffer_ref* src) {
    of(self).log.push_back(std::to_string(src->size_bytes) + " bytes copied");
    std::memmove(of(self).bytes(dst->buffer, dst->byte_offset, dst->size_bytes),
                 of(self).bytes(src->buffer, src->byte_offset, src->size_bytes), src->size_bytes);
    return bp_status{BP_OK};
  };
  ops.copy_from_host = [](void* self, bp_stream*, const bp_buffer_ref* dst, const void* src,
                          bp_borrow) {
    if (of(self).fails("copy_from_host")) return bp_status{BP_OUT_OF_MEMORY};
    std::memcpy(of(self).bytes(dst->buffer, dst->byte_offset, dst->size_bytes), src,
                dst->size_bytes);
    return bp_status{BP_OK};
  };
  return ops;
}

inline bp_stream_ops FakeDevice::streams() {
  bp_stream_ops ops{.struct_size = sizeof(ops), .self = this};
  ops.create = [](void* self, bp_device*, const bp_stream_desc*, bp_stream** out_stream) {
    return of(self).create("stream", out_stream);
  };
  ops.destroy = [](void* self, bp_stream* stream) { return of(self).destroy(stream); };
  ops.synchronize = [](void* self, bp_stream* stream, uint64_t) {
    of(self).log.push_back(of(self).name_of(stream) + " synchronized");
    return of(self).fails("stream.synchronize") ? bp_status{BP_OUT_OF_MEMORY} : bp_status{BP_OK};
  };
  ops.wait_event = [](void* self, bp_stream* stream, bp_event* event) {
    of(self).log.push_back(of(self).name_of(stream) + " waits for " + of(self).name_of(event));
    return bp_status{BP_OK};
  };
  return ops;
}

inline bp_event_ops FakeDevice::events() {
  bp_event_ops ops{.struct_size = sizeof(ops), .self = this};
  ops.create = [](void* self, bp_device*, const bp_event_desc*, bp_event** out_event) {
    return of(self).create("event", out_event);
  };
  ops.destroy = [](void* self, bp_event* event) { return of(self).destroy(event); };
  ops.record = [](void* self, bp_event* event, bp_stream* stream) {
    of(self).log.push_back(of(self).name_of(event) + " recorded on " + of(self).name_of(stream));
    return bp_status{BP_OK};
  };
  ops.synchronize = [](void* self, bp_event* event, uint64_t) {
    of(self).log.push_back(of(self).name_of(event) + " synchronized");
    return bp_status{BP_OK};
  };
  return ops;
}

inline CompilerBackend FakeDevice::backend(std::vector<const bp_kernel*> kernels,
                                           const char* identity) {
  return {.host = &host,
          .identity = identity,
          .memory = memory(),
          .streams = streams(),
          .events = events(),
          .devices = devices(),
          .kernels = std::move(kernels),
          .captures = nullptr,
          .self = this,
          .is_device = [](void* self, bp_device* device) { return of(self).handle() == device; }};
}

// One launch of a program, on memory of its own. Inputs and outputs begin inside their buffers, and
// the workspace lies between bytes that the program must not write.
class ProgramCall {
 public:
  ProgramCall(FakeDevice& device, const bp_kernel& kernel, const ProgramMaker& maker,
              const std::vector<std::vector<float>>& inputs)
      : device_(device), kernel_(kernel) {
    for (const bp_value_role role : {BP_VALUE_INPUT, BP_VALUE_OUTPUT}) {
      for (const bp_program_value& value : maker.values) {
        if (value.role == role) add_tensor(value);
      }
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      for (size_t k = 0; k < inputs[i].size(); ++k) {
        device.element(tensors[i], static_cast<int64_t>(k)) = inputs[i][k];
      }
    }
    args = {.struct_size = sizeof(args), .tensors = tensors.data(), .tensor_count = tensors.size()};
    uint64_t required = 0, preferred = 0;
    EXPECT_EQ(kernel.workspace_size(&kernel, device.handle(), 0, &args, &required, &preferred),
              BP_OK);
    launch = {.device = device.handle(), .stream = device.make_stream()};
    launch.workspace = {device.make_buffer(required + 2 * kGuardBytes), kGuardBytes, required};
    std::memset(workspace_bytes(), kGuard, required + 2 * kGuardBytes);
  }
  ProgramCall(const ProgramCall&) = delete;
  ~ProgramCall() {
    for (const bp_tensor& tensor : tensors) device_.end(tensor.buffer);
    const std::byte* const bytes = workspace_bytes();
    for (uint64_t i = 0; i < kGuardBytes; ++i) {
      const uint64_t behind = kGuardBytes + launch.workspace.size_bytes + i;
      EXPECT_TRUE(bytes[i] == std::byte{kGuard} && bytes[behind] == std::byte{kGuard}) << i;
    }
    device_.end(launch.workspace.buffer);
    device_.end(launch.stream);
  }

  bp_status run() { return kernel_.launch(&kernel_, &launch, &args); }

  // Returns the elements of a tensor of the frame.
  std::vector<float> elements(size_t index) {
    std::vector<float> all;
    for (int64_t i = 0; i < element_count(tensors[index]); ++i) {
      all.push_back(device_.element(tensors[index], i));
    }
    return all;
  }

  std::vector<bp_tensor> tensors;
  bp_program_args args{};
  bp_launch launch{};

 private:
  static constexpr uint64_t kGuardBytes = 256, kOffsetBytes = 16;
  static constexpr uint8_t kGuard = 0xEE;

  std::byte* workspace_bytes() {
    return device_.bytes(launch.workspace.buffer, 0, launch.workspace.size_bytes + 2 * kGuardBytes);
  }
  void add_tensor(const bp_program_value& value) {
    if (value.layout != nullptr) return add_laid_out(value);
    bp_tensor tensor{.byte_offset = kOffsetBytes,
                     .shape = value.shape,
                     .strides = value.strides,
                     .ndim = value.ndim,
                     .dtype = value.dtype};
    if (tensor.strides == nullptr) {
      std::vector<int64_t>& strides = strides_.emplace_back(value.ndim, 1);
      for (size_t i = value.ndim; i-- > 1;) strides[i - 1] = strides[i] * value.shape[i];
      tensor.strides = strides.data();
    }
    const auto size_bytes = static_cast<uint64_t>(extent_of(tensor).end);
    tensor.buffer = device_.make_buffer(kOffsetBytes + size_bytes);
    tensors.push_back(tensor);
  }

  void add_laid_out(const bp_program_value& value) {
    const bp_layout* const layout = device_.layouts->from_desc(value.layout, "test");
    tensors.push_back({.buffer = device_.make_buffer(layout->physical_size_bytes),
                       .shape = value.shape,
                       .ndim = value.ndim,
                       .dtype = value.dtype,
                       .layout = layout});
    EXPECT_EQ(device_.layouts->release(layout), BP_OK) << "the executable has a reference too";
  }

  FakeDevice& device_;
  const bp_kernel& kernel_;
  std::deque<std::vector<int64_t>> strides_;
};

// Has a compiler with a neg kernel and an add kernel, unless a test offers others.
class ProgramTest : public testing::Test {
 protected:
  ProgramTest() { offer({&neg, &add}); }

  void offer(std::vector<const bp_kernel*> kernels, const char* identity = "test 1") {
    CompilerBackend backend = device.backend(std::move(kernels), identity);
    backend.layouts = layouts.get();
    backend.layout_table = layout_table;
    compiler = std::make_unique<Compiler>(std::move(backend));
    ops = compiler->table();
  }

  bp_executable* compile(ProgramMaker& maker, bp_launch_flags flags = 0) {
    bp_executable* executable = nullptr;
    EXPECT_EQ(ops.compile(ops.self, device.handle(), maker.desc(flags), &executable), BP_OK)
        << device.text;
    return executable;
  }
  const bp_kernel& kernel_of(bp_executable* executable) {
    const bp_kernel* kernel = nullptr;
    EXPECT_EQ(ops.executable_kernel(ops.self, executable, &kernel), BP_OK) << device.text;
    return *kernel;
  }
  bp_executable_info info_of(bp_executable* executable) {
    bp_executable_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_EXECUTABLE_INFO};
    EXPECT_EQ(ops.executable_info(ops.self, executable, &info), BP_OK) << device.text;
    return info;
  }

  // Returns the elements of all inputs and outputs after one launch.
  std::vector<std::vector<float>> run(bp_executable* executable, const ProgramMaker& maker,
                                      const std::vector<std::vector<float>>& inputs) {
    ProgramCall call(device, kernel_of(executable), maker, inputs);
    EXPECT_EQ(call.run(), BP_OK) << device.text;
    std::vector<std::vector<float>> all;
    for (size_t i = 0; i < call.tensors.size(); ++i) all.push_back(call.elements(i));
    return all;
  }

  // What a kernel was launched with.
  struct Launched {
    std::string kernel;
    bp_launch launch;
    std::vector<bp_tensor> tensors;
  };

  template <typename Args>
  bp_kernel make_kernel(const char* name, uint32_t op,
                        bp_status (*launch)(const bp_kernel*, const bp_launch*, const void*)) {
    return {.struct_size = sizeof(bp_kernel),
            .struct_type = BP_STRUCT_KERNEL,
            .state = this,
            .name = name,
            .op = op,
            .spec_revision = kSpecRevision,
            .args_size_bytes = kArgsSize<Args, kSpecRevision>,
            .flags = BP_KERNEL_DETERMINISTIC | BP_KERNEL_CAPTURABLE | BP_KERNEL_IN_PLACE |
                     BP_KERNEL_TAKES_SCALAR,
            .layouts = BP_LAYOUT_ANY,
            .launch = launch};
  }
  static ProgramTest& of(const bp_kernel* self) { return *static_cast<ProgramTest*>(self->state); }

  // Writes down the launch, fills its workspace, and returns the status that the test chose.
  bp_status enter(const bp_kernel& kernel, const bp_launch& launch,
                  std::vector<bp_tensor> tensors) {
    launched.push_back({kernel.name, launch, std::move(tensors)});
    if (on_launch) std::exchange(on_launch, nullptr)();
    const bp_buffer_ref& w = launch.workspace;
    if (w.size_bytes != 0) {
      std::memset(device.bytes(w.buffer, w.byte_offset, w.size_bytes), 0xFF, w.size_bytes);
    }
    const auto refusal = refusals.find(kernel.name);
    return refusal == refusals.end() ? bp_status{BP_OK} : refusal->second;
  }
  static bp_status launch_neg(const bp_kernel* self, const bp_launch* launch, const void* args) {
    const auto& a = *static_cast<const bp_neg_args*>(args);
    ProgramTest& test = of(self);
    const bp_status status = test.enter(*self, *launch, {*a.x, *a.y});
    for (int64_t i = 0; status == BP_OK && i < element_count(*a.y); ++i) {
      test.device.element(*a.y, i) = -test.device.element(*a.x, i);
    }
    return status;
  }
  static bp_status launch_add(const bp_kernel* self, const bp_launch* launch, const void* args) {
    const auto& a = *static_cast<const bp_add_args*>(args);
    ProgramTest& test = of(self);
    const bp_status status = test.enter(*self, *launch, {*a.a, a.b == nullptr ? *a.a : *a.b, *a.y});
    for (int64_t i = 0; status == BP_OK && i < element_count(*a.y); ++i) {
      const float b = a.b == nullptr ? static_cast<float>(std::bit_cast<double>(a.b_scalar.bits))
                                     : test.device.element(*a.b, i);
      test.device.element(*a.y, i) = test.device.element(*a.a, i) + b;
    }
    return status;
  }

  FakeDevice device;
  std::unique_ptr<Layouts> layouts;  // NULL unless a test makes layouts.
  bp_layout_ops layout_table{};
  bp_kernel neg = make_kernel<bp_neg_args>("neg", BP_OP_NEG, launch_neg),
            add = make_kernel<bp_add_args>("add", BP_OP_ADD, launch_add);
  std::unique_ptr<Compiler> compiler;
  bp_compiler_ops ops{};
  std::vector<Launched> launched;
  std::map<std::string, bp_status> refusals;  // The keys are kernel names.
  std::function<void()> on_launch;            // The next launch calls it once.
};

}  // namespace bp
