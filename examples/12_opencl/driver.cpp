#include "driver.hpp"

#include <signal.h>

#include <algorithm>
#include <bit>

#include "backplane/shell/bytes.hpp"
#include "backplane/shell/entry.hpp"

namespace acme_opencl {
namespace {

bp_status status_of(cl_int error) {
  switch (error) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
      return BP_OUT_OF_MEMORY;
    case CL_DEVICE_NOT_AVAILABLE:
      return BP_DEVICE_LOST;
    default:
      return BP_INTERNAL;
  }
}

void check(cl_int error, const char* call) {
  if (error == CL_SUCCESS) return;
  bp::refuse(status_of(error),
             std::string(call) + " failed with the OpenCL error " + std::to_string(error));
}

template <typename T>
T device_value(cl_device_id id, cl_device_info what) {
  T value{};
  check(clGetDeviceInfo(id, what, sizeof(value), &value, nullptr), "clGetDeviceInfo");
  return value;
}

std::string device_text(cl_device_id id, cl_device_info what) {
  size_t size_bytes = 0;
  check(clGetDeviceInfo(id, what, 0, nullptr, &size_bytes), "clGetDeviceInfo");
  std::string text(size_bytes, '\0');
  check(clGetDeviceInfo(id, what, size_bytes, text.data(), nullptr), "clGetDeviceInfo");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

// A driver that runs on the host's processors shares the host's memory, as an integrated device
// does. It does not get the class host, because hosts would use it as the fallback for others.
DeviceInfo describe(cl_device_id id) {
  const bool shares = device_value<cl_bool>(id, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
  const auto floats = device_value<cl_device_fp_config>(id, CL_DEVICE_SINGLE_FP_CONFIG);
  return {.name = device_text(id, CL_DEVICE_NAME),
          .device_class = shares ? BP_DEVICE_INTEGRATED : BP_DEVICE_DISCRETE,
          .memory_bytes = device_value<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE),
          .max_allocation_bytes = device_value<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE),
          .compute_units = device_value<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS),
          .has_f64 = device_value<cl_device_fp_config>(id, CL_DEVICE_DOUBLE_FP_CONFIG) != 0,
          .has_exact_division = (floats & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0,
          .id = id};
}

// Keeps the signal handlers of the process. The compilers of some OpenCL drivers install their own
// when the driver looks for devices, and a plugin must not change what belongs to the host.
class SignalKeeper {
 public:
  SignalKeeper() {
    for (int number = 1; number < kEnd; ++number) {
      is_known_[number] = sigaction(number, nullptr, &actions_[number]) == 0;
    }
  }
  ~SignalKeeper() {
    for (int number = 1; number < kEnd; ++number) {
      if (is_known_[number]) sigaction(number, &actions_[number], nullptr);
    }
  }
  SignalKeeper(const SignalKeeper&) = delete;

 private:
  static constexpr int kEnd = 65;
  struct sigaction actions_[kEnd];
  bool is_known_[kEnd];
};

}  // namespace

std::vector<DeviceInfo> find_devices() {
  const SignalKeeper keeper;
  std::vector<DeviceInfo> found;
  cl_uint platform_count = 0;
  // Without a platform the loader returns an error, and there is no device.
  if (clGetPlatformIDs(0, nullptr, &platform_count) != CL_SUCCESS) return found;
  std::vector<cl_platform_id> platforms(platform_count);
  check(clGetPlatformIDs(platform_count, platforms.data(), nullptr), "clGetPlatformIDs");
  for (cl_platform_id platform : platforms) {
    cl_uint count = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
    std::vector<cl_device_id> ids(count);
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids.data(), nullptr),
          "clGetDeviceIDs");
    for (cl_device_id id : ids) found.push_back(describe(id));
  }
  return found;
}

// ---- Contexts -----------------------------------------------------------------------------------

Context::Context(const DeviceInfo& info) : info_(info) {
  cl_int error = CL_SUCCESS;
  context_ = clCreateContext(nullptr, 1, &info_.id, nullptr, nullptr, &error);
  check(error, "clCreateContext");
}

Context::~Context() {
  for (const auto& [source, program] : programs_) clReleaseProgram(program);
  clReleaseContext(context_);
}

cl_program Context::program(const std::string& source) {
  const std::lock_guard lock(mutex_);
  if (const auto known = programs_.find(source); known != programs_.end()) return known->second;
  const char* text = source.c_str();
  cl_int error = CL_SUCCESS;
  cl_program program = clCreateProgramWithSource(context_, 1, &text, nullptr, &error);
  check(error, "clCreateProgramWithSource");
  const char* const options = info_.has_exact_division
                                  ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
                                  : "-cl-std=CL1.2";
  error = clBuildProgram(program, 1, &info_.id, options, nullptr, nullptr);
  if (error != CL_SUCCESS) {
    std::string log(size_t{1} << 14, '\0');
    size_t size_bytes = 0;
    clGetProgramBuildInfo(program, info_.id, CL_PROGRAM_BUILD_LOG, log.size(), log.data(),
                          &size_bytes);
    clReleaseProgram(program);
    bp::refuse(BP_INTERNAL, "clBuildProgram failed with the OpenCL error " + std::to_string(error) +
                                ": " + log.c_str());
  }
  programs_.emplace(source, program);
  return program;
}

bool Context::take(uint64_t size_bytes) {
  uint64_t used = used_bytes_;
  do {
    if (size_bytes > info_.memory_bytes - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + size_bytes));
  return true;
}

uint64_t Context::take_addresses(uint64_t size_bytes) {
  constexpr uint64_t kAlignment = 4096;
  return next_address_.fetch_add((size_bytes / kAlignment + 1) * kAlignment);
}

// ---- Memory -------------------------------------------------------------------------------------

Memory::Memory(std::shared_ptr<Context> context, uint64_t size_bytes)
    : context_(std::move(context)),
      size_bytes_(size_bytes),
      address_(context_->take_addresses(size_bytes)) {
  if (!context_->take(size_bytes)) {
    bp::refuse(BP_OUT_OF_MEMORY, "allocate: " + std::to_string(size_bytes) +
                                     " bytes were asked for, and the device has " +
                                     std::to_string(context_->free_bytes()) + " free");
  }
  cl_int error = CL_SUCCESS;
  handle_ = clCreateBuffer(context_->handle(), CL_MEM_READ_WRITE, std::max<uint64_t>(size_bytes, 1),
                           nullptr, &error);
  if (error != CL_SUCCESS) context_->give_back(size_bytes);
  check(error, "allocate: clCreateBuffer");
}

Memory::~Memory() {
  clReleaseMemObject(handle_);
  context_->give_back(size_bytes_);
}

// ---- Commands -----------------------------------------------------------------------------------

CommandQueue::CommandQueue(std::shared_ptr<Context> context) : context_(std::move(context)) {
  cl_int error = CL_SUCCESS;
  queue_ = clCreateCommandQueue(context_->handle(), context_->device(), 0, &error);
  check(error, "clCreateCommandQueue");
}

CommandQueue::~CommandQueue() {
  clFinish(queue_);
  for (const Command& command : commands_) clReleaseEvent(command.event);
  for (const auto& [key, kernel] : kernels_) clReleaseKernel(kernel);
  if (failure_ != nullptr) clReleaseMemObject(failure_);
  clReleaseCommandQueue(queue_);
}

void CommandQueue::add(cl_event event, const char* name, std::shared_ptr<const void> kept) {
  commands_.push_back({event, name, std::move(kept)});
}

void CommandQueue::copy(const Place& dst, const Place& src, uint64_t size_bytes) {
  if (dst.memory == src.memory && dst.byte_offset == src.byte_offset) return;
  cl_event event = nullptr;
  check(clEnqueueCopyBuffer(queue_, src.memory->handle(), dst.memory->handle(), src.byte_offset,
                            dst.byte_offset, size_bytes, 0, nullptr, &event),
        "clEnqueueCopyBuffer");
  add(event, "copy");
}

void CommandQueue::write(const Place& dst, const std::byte* src, uint64_t size_bytes,
                         std::shared_ptr<const void> kept) {
  cl_event event = nullptr;
  check(clEnqueueWriteBuffer(queue_, dst.memory->handle(), CL_FALSE, dst.byte_offset, size_bytes,
                             src, 0, nullptr, &event),
        "clEnqueueWriteBuffer");
  add(event, "copy_from_host", std::move(kept));
}

void CommandQueue::read(std::byte* dst, const Place& src, uint64_t size_bytes,
                        std::shared_ptr<const void> kept) {
  cl_event event = nullptr;
  check(clEnqueueReadBuffer(queue_, src.memory->handle(), CL_FALSE, src.byte_offset, size_bytes,
                            dst, 0, nullptr, &event),
        "clEnqueueReadBuffer");
  add(event, "copy_to_host", std::move(kept));
}

// OpenCL fills with patterns of 1, 2, 4, 8 or 16 bytes, at multiples of their size. A kernel fills
// with the others.
void CommandQueue::fill(const Place& dst, uint64_t size_bytes, const std::byte* pattern,
                        uint64_t pattern_size_bytes) {
  if (std::has_single_bit(pattern_size_bytes) && dst.byte_offset % pattern_size_bytes == 0) {
    cl_event event = nullptr;
    check(clEnqueueFillBuffer(queue_, dst.memory->handle(), pattern, pattern_size_bytes,
                              dst.byte_offset, size_bytes, 0, nullptr, &event),
          "clEnqueueFillBuffer");
    return add(event, "fill");
  }
  std::array<std::byte, bp::kMaxPatternBytes> bytes{};
  std::copy_n(pattern, pattern_size_bytes, bytes.begin());
  Call call(R"(
kernel void fill_bytes(global uchar* dst, long offset, long count, uchar16 pattern, int size) {
  uchar bytes[16];
  vstore16(pattern, 0, bytes);
  const long i = get_global_id(0);
  if (i < count) dst[offset + i] = bytes[i % size];
})",
            "fill_bytes");
  call.buffer(dst)
      .value(static_cast<int64_t>(dst.byte_offset))
      .value(static_cast<int64_t>(size_bytes))
      .value(bytes)
      .value(static_cast<int32_t>(pattern_size_bytes))
      .over(static_cast<int64_t>(size_bytes));
  run(call);
}

cl_kernel CommandQueue::kernel(const Call& call) {
  const std::string key = std::string(call.kernel_) + "\n" + call.source_;
  if (const auto known = kernels_.find(key); known != kernels_.end()) return known->second;
  cl_int error = CL_SUCCESS;
  cl_kernel made = clCreateKernel(context_->program(call.source_), call.kernel_, &error);
  check(error, "clCreateKernel");
  kernels_.emplace(key, made);
  return made;
}

void CommandQueue::reset_failure() {
  const Failure none;
  check(
      clEnqueueWriteBuffer(queue_, failure_, CL_TRUE, 0, sizeof(none), &none, 0, nullptr, nullptr),
      "clEnqueueWriteBuffer");
}

void CommandQueue::set_failure_arguments(cl_kernel kernel, const Call& call) {
  if (failure_ == nullptr) {
    cl_int error = CL_SUCCESS;
    failure_ =
        clCreateBuffer(context_->handle(), CL_MEM_READ_WRITE, sizeof(Failure), nullptr, &error);
    check(error, "clCreateBuffer");
    reset_failure();
  }
  failure_texts_.push_back(call.failure_text_);
  const auto number = static_cast<int32_t>(failure_texts_.size());
  const auto next = static_cast<cl_uint>(call.arguments_.size());
  check(clSetKernelArg(kernel, next, sizeof(failure_), &failure_), "clSetKernelArg");
  check(clSetKernelArg(kernel, next + 1, sizeof(number), &number), "clSetKernelArg");
}

void CommandQueue::run(const Call& call) {
  if (call.global_[0] == 0 || call.global_[1] == 0 || call.global_[2] == 0) return;
  cl_kernel const its_kernel = kernel(call);
  for (cl_uint k = 0; k < call.arguments_.size(); ++k) {
    const Call::Argument& argument = call.arguments_[k];
    if (!argument.bytes.empty()) {
      check(clSetKernelArg(its_kernel, k, argument.bytes.size(), argument.bytes.data()),
            "clSetKernelArg");
      continue;
    }
    cl_mem const handle = argument.memory == nullptr ? nullptr : argument.memory->handle();
    check(clSetKernelArg(its_kernel, k, sizeof(handle), &handle), "clSetKernelArg");
  }
  if (call.failure_text_ != nullptr) set_failure_arguments(its_kernel, call);
  cl_event event = nullptr;
  check(clEnqueueNDRangeKernel(queue_, its_kernel, 3, nullptr, call.global_.data(),
                               call.local_.data(), 0, nullptr, &event),
        "clEnqueueNDRangeKernel");
  add(event, call.kernel_);
}

void CommandQueue::finish() {
  check(clFinish(queue_), "clFinish");
  std::vector<Command> commands = std::exchange(commands_, {});
  const char* failed = nullptr;
  cl_int error = CL_COMPLETE;
  for (const Command& command : commands) {
    cl_int state = CL_COMPLETE;
    clGetEventInfo(command.event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state,
                   nullptr);
    clReleaseEvent(command.event);
    if (state >= 0 || failed != nullptr) continue;
    failed = command.name;
    error = state;
  }
  const std::vector<Call::FailureText> texts = std::exchange(failure_texts_, {});
  if (failed != nullptr) check(error, failed);
  if (texts.empty()) return;
  Failure failure;
  check(clEnqueueReadBuffer(queue_, failure_, CL_TRUE, 0, sizeof(failure), &failure, 0, nullptr,
                            nullptr),
        "clEnqueueReadBuffer");
  if (failure.number == 0) return;
  reset_failure();
  bp::refuse(BP_DATA_FAILURE,
             texts.at(static_cast<size_t>(failure.number) - 1)(failure.position, failure.value));
}

}  // namespace acme_opencl
