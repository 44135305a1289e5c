// Uses everything that the backend offers on the fake CUDA, many times. Each time another call of
// CUDA fails, and the tests check what the backend makes of it.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <set>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/fake/cuda.hpp"
#include "backends/cuda/fake/tour.hpp"
#include "backends/cuda/kernel_env.hpp"
#include "backends/cuda/lane.hpp"
#include "backends/cuda/library_tables.hpp"
#include "backends/cuda/stream.hpp"

namespace bp::cuda::fake {
namespace {

bp_status enter_fake(const bp_entry_request* request, bp_entry_reply* out_reply) {
  return enter(request, out_reply, driver);
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "; ";
  return text;
}

std::string joined(const std::vector<Refusal>& refusals) {
  std::string text;
  for (const Refusal& r : refusals) {
    text += r.entry + " = " + std::to_string(r.status) + ": " + r.text + "\n";
  }
  return text;
}

// Functions that end something. If one fails, no entry returns its error, and the handle that it
// should have ended is left over.
const std::set<std::string> kEnds = {"cudaFree", "cudaFreeAsync", "cudaFreeHost",
                                     "cudaHostUnregister", "cudaStreamDestroy", "cudaEventDestroy",
                                     "cudaMemPoolDestroy", "cudaGraphDestroy",
                                     "cudaGraphExecDestroy", "cuDevicePrimaryCtxRelease",
                                     // Ending something calls these too.
                                     "cuCtxGetCurrent", "cuCtxSetCurrent"};

// Functions that the backend can do without, at least in some of its calls.
const std::set<std::string> kOptional = {
    "cudaMemPoolTrimTo",      "cudaPointerGetAttributes",
    "cudaDeviceGetAttribute", "cudaDeviceGetPCIBusId",
    "cudaEventQuery",         "cudaEventCreateWithFlags",
    "cudaEventRecord",        "cuThreadExchangeStreamCaptureMode"};

// What happened in one tour in which one call failed.
struct Outcome {
  bool was_loaded = false;
  bool is_right = true;
  bool has_failed_early = true;  // The call failed before the tour ended its handles.
  std::string warnings;
  std::vector<Refusal> refusals, refused_ends;
};

Outcome tour_with(const std::string& name, uint64_t nth, cudaError_t error) {
  reset();
  fail_call(name, nth, error);
  Outcome outcome;
  try {
    TestBackend backend(enter_fake);
    outcome.was_loaded = true;
    outcome.warnings = backend.warnings;
    if (backend.device != nullptr) {
      Tour tour(backend);
      outcome.is_right = tour.run();
      outcome.has_failed_early = call_counts()[name] >= nth;
      tour.end();
      outcome.refusals = tour.refusals();
      outcome.refused_ends = tour.refused_ends();
    }
  } catch (const std::runtime_error& e) {
    outcome.warnings = e.what();
  }
  return outcome;
}

// Makes a tour without failures, and returns how often it calls each function.
std::map<std::string, uint64_t> calls_of_a_tour() {
  const Outcome outcome = tour_with("", 0, cudaSuccess);
  EXPECT_TRUE(outcome.is_right);
  EXPECT_TRUE(outcome.refusals.empty()) << joined(outcome.refusals);
  EXPECT_TRUE(outcome.refused_ends.empty()) << joined(outcome.refused_ends);
  EXPECT_TRUE(violations().empty()) << joined(violations());
  EXPECT_TRUE(leftovers().empty()) << joined(leftovers());
  return call_counts();
}

bool names_error(const Outcome& outcome, const std::string& error_name) {
  if (outcome.warnings.find(error_name) != std::string::npos) return true;
  return std::ranges::any_of(outcome.refusals, [&](const Refusal& r) {
    return r.text.find(error_name) != std::string::npos;
  });
}

TEST(Failures, ATourCallsEveryFunctionOfTheTable) {
  const std::map<std::string, uint64_t> calls = calls_of_a_tour();
  // These functions are called only by kernels, or if something is wrong.
  const std::set<std::string> others = {"cudaDriverGetVersion", "cudaFuncSetAttribute",
                                        "cudaMalloc",           "cudaMemPoolTrimTo",
                                        "cudaGetDeviceCount",   "cudaDeviceGetPCIBusId"};
#define BP_RUNTIME(name, parameters) \
  EXPECT_TRUE(calls.contains(#name) || others.contains(#name)) << #name;
#define BP_DRIVER(name, symbol, parameters) \
  EXPECT_TRUE(calls.contains(#name) || others.contains(#name)) << #name;
#define BP_NVML(name, symbol, parameters) \
  EXPECT_TRUE(calls.contains(#name) || others.contains(#name)) << #name;
#include "backends/cuda/driver.def"
}

// Returns what is wrong with a tour, whatever call failed in it and with whatever error.
std::string problems_of_any(const Outcome& outcome) {
  std::string problems;
  if (!outcome.was_loaded) problems += "it was not loaded: " + outcome.warnings;
  if (!outcome.refused_ends.empty()) problems += "an end failed: " + joined(outcome.refused_ends);
  return problems + joined(violations());
}

std::string problems_of_submission(const std::string& name, const Outcome& outcome) {
  std::string problems = problems_of_any(outcome);
  if (!outcome.is_right) problems += "bytes were wrong; ";
  for (const Refusal& r : outcome.refusals) {
    const bool is_known = r.status == BP_INTERNAL || r.status == BP_STREAM_FAILED;
    if (!is_known || r.text.empty()) {
      problems += "refused otherwise: " + joined(outcome.refusals);
    }
  }
  if (kEnds.contains(name) || !outcome.has_failed_early) return problems;
  if (!kOptional.contains(name) && !names_error(outcome, "cudaErrorInvalidValue")) {
    problems += "nobody names the error: " + outcome.warnings + joined(outcome.refusals);
  }
  return problems + joined(leftovers());
}

// The first refusals may belong to work that was submitted earlier. The last one must say that the
// device is lost.
std::string problems_of_loss(const std::string& name, const Outcome& outcome) {
  std::string problems = problems_of_any(outcome);
  if (kEnds.contains(name) || kOptional.contains(name) || !outcome.has_failed_early) {
    return problems;
  }
  if (!names_error(outcome, "cudaErrorIllegalAddress")) {
    problems += "nobody names the error: " + outcome.warnings + joined(outcome.refusals);
  } else if (!outcome.refusals.empty() && outcome.refusals.back().status != BP_DEVICE_LOST) {
    problems += "the device is not lost: " + joined(outcome.refusals);
  }
  return problems;
}

// Makes a tour for each call of each function, in which this call fails, and expects no problems.
// If `all` is false, only the first and the last call of each function fail.
void with_each_call(cudaError_t error, bool all,
                    std::string (*problems)(const std::string& name, const Outcome& outcome)) {
  for (const auto& [name, count] : calls_of_a_tour()) {
    // If NVML fails, probing asks CUDA instead. Other tests below check that.
    if (name == "cudaGetLastError" || name.starts_with("nvml")) continue;
    for (uint64_t nth = 1; nth <= count; nth = all ? nth + 1 : std::max(nth + 1, count)) {
      EXPECT_EQ(problems(name, tour_with(name, nth, error)), "")
          << name << ", call " << nth << " of " << count << ", " << cudaGetErrorName(error);
    }
  }
  // A tour without failures still succeeds in this process.
  calls_of_a_tour();
}

TEST(Failures, OfSubmissionsAreToldByNameAndLeaveNothing) {
  with_each_call(cudaErrorInvalidValue, true, problems_of_submission);
}

TEST(Failures, ThatLoseTheDeviceAreToldByEveryCallButEnds) {
  with_each_call(cudaErrorIllegalAddress, false, problems_of_loss);
}

TEST(Failures, OfAPoolLetItBeTrimmedAndAskedAgain) {
  const Outcome outcome = tour_with("cudaMallocFromPoolAsync", 1, cudaErrorMemoryAllocation);
  EXPECT_EQ(joined(outcome.refusals), "");
  EXPECT_EQ(call_counts()["cudaMemPoolTrimTo"], 1u);
}

TEST(Failures, OfMemoryAreOutOfMemory) {
  const Outcome outcome = tour_with("cudaHostAlloc", 1, cudaErrorMemoryAllocation);
  ASSERT_FALSE(outcome.refusals.empty());
  EXPECT_EQ(outcome.refusals[0].status, BP_OUT_OF_MEMORY) << outcome.refusals[0].text;
  EXPECT_NE(outcome.refusals[0].text.find("cudaErrorMemoryAllocation"), std::string::npos);
}

TEST(Failures, NoDeviceIsNoErrorAndSaysWhy) {
  reset({.device_count = 0});
  const TestBackend backend(enter_fake);
  EXPECT_EQ(backend.device, nullptr);
  EXPECT_NE(backend.warnings.find("no device"), std::string::npos) << backend.warnings;
}

TEST(Failures, AnOldDriverIsNamedWithItsVersion) {
  for (const bool has_nvml : {true, false}) {
    reset({.has_nvml = has_nvml, .driver_version = 11040});
    const TestBackend backend(enter_fake);
    EXPECT_EQ(backend.device, nullptr);
    EXPECT_NE(backend.warnings.find("serves CUDA 11.4"), std::string::npos) << backend.warnings;
    EXPECT_NE(backend.warnings.find("install a newer driver"), std::string::npos)
        << backend.warnings;
  }
}

TEST(Failures, WithoutNvmlEachCallOfProbingIsTold) {
  for (const char* name : {"cudaGetDeviceCount", "cudaGetDeviceProperties"}) {
    reset({.has_nvml = false});
    fail_call(name, 1, cudaErrorNotReady);
    const TestBackend backend(enter_fake);
    EXPECT_NE(backend.warnings.find("cudaErrorNotReady"), std::string::npos) << backend.warnings;
  }
}

TEST(Failures, NoDeviceIsNoErrorAlsoWithoutNvml) {
  reset({.device_count = 0, .has_nvml = false});
  const TestBackend backend(enter_fake);
  EXPECT_EQ(backend.device, nullptr);
  EXPECT_NE(backend.warnings.find("no device"), std::string::npos) << backend.warnings;
}

TEST(Failures, ADeviceOfAnOldArchitectureIsLeftOutByName) {
  reset({.device_count = 1, .major = 7});
  const TestBackend backend(enter_fake);
  EXPECT_EQ(backend.device, nullptr);
  EXPECT_NE(backend.warnings.find("compute capability is 7.0"), std::string::npos)
      << backend.warnings;
}

TEST(Failures, ADeviceThatDoesNotExistIsRefused) {
  reset();
  try {
    const TestBackend backend(enter_fake, {{"devices", "5"}});
    FAIL() << "it was loaded";
  } catch (const std::runtime_error& e) {
    EXPECT_NE(std::string(e.what()).find("option devices: there is no device 5; there are 0: fake"),
              std::string::npos)
        << e.what();
  }
}

TEST(Failures, DevicesAreChosenByOption) {
  reset();
  const TestBackend backend(enter_fake, {{"devices", "1"}});
  ASSERT_EQ(backend.all_devices.size(), 1u);
  const bp_device_properties* properties = nullptr;
  backend.devices->properties(backend.devices->self, backend.device, &properties);
  EXPECT_STREQ(properties->name, "fake accelerator 1");
}

TEST(Failures, WithoutAPoolMemoryIsPlain) {
  reset();
  {
    TestBackend backend(enter_fake, {{"allocator", "plain"}});
    bp_buffer* const buffer = backend.make_buffer(4096);
    EXPECT_EQ(backend.allocator->deallocate(backend.allocator->self, buffer, nullptr), BP_OK);
  }
  EXPECT_EQ(call_counts()["cudaMalloc"], 1u);
  EXPECT_EQ(call_counts()["cudaMallocFromPoolAsync"], 0u);
  EXPECT_TRUE(leftovers().empty()) << joined(leftovers());
}

TEST(Probing, DoesNotTouchTheDriverSoThatForksMay) {
  reset();
  const TestBackend backend(enter_fake);
  uint64_t count = 0;
  EXPECT_EQ(backend.devices->probe(backend.devices->self, &count), BP_OK);
  EXPECT_EQ(count, 2u);
  for (const auto& [name, calls] : call_counts()) EXPECT_TRUE(name.starts_with("nvml")) << name;
  EXPECT_TRUE(leftovers().empty()) << joined(leftovers());
}

TEST(Probing, AsksCudaWhereThereIsNoNvml) {
  reset({.has_nvml = false});
  const TestBackend backend(enter_fake);
  EXPECT_EQ(backend.all_devices.size(), 2u);
  EXPECT_EQ(call_counts()["cudaGetDeviceCount"], 1u);
  EXPECT_EQ(call_counts()["cuDevicePrimaryCtxRetain"], 0u);
}

TEST(Probing, AsksCudaWhereADeviceIsInParts) {
  reset({.is_in_parts = true});
  const TestBackend backend(enter_fake);
  EXPECT_EQ(backend.all_devices.size(), 2u);
  EXPECT_EQ(call_counts()["cudaGetDeviceCount"], 1u);
}

TEST(Probing, ShowsWhatTheEnvironmentDoesNotHide) {
  const std::pair<const char*, size_t> rows[] = {{"", 0}, {"1", 1}, {"GPU-1", 1}, {"1,0", 2}};
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);  // The two devices are different models.
  for (const auto& [visible, count] : rows) {
    reset();
    setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    const TestBackend backend(enter_fake);
    EXPECT_EQ(backend.all_devices.size(), count) << visible;
    EXPECT_EQ(call_counts()["cudaGetDeviceCount"], 0u);
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("CUDA_DEVICE_ORDER");
}

TEST(Failures, OfAStreamAreToldToTheHostWithoutItsLock) {
  reset();
  TestBackend backend(enter_fake);
  bp_stream* const stream = backend.make_stream();
  Lane& lane = lane_of(stream, "the test");
  lane.fail(BP_ABORTED, "it was aborted");
  // Another thread can use the stream while the host reads the text.
  std::future<bp_status> other;
  bool could_go_on = false;
  backend.on_error = [&] {
    other = std::async(std::launch::async, [&] { return lane.outcome().status; });
    could_go_on = other.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  };
  EXPECT_EQ(backend.streams->status(backend.streams->self, stream), BP_ABORTED);
  backend.on_error = nullptr;
  EXPECT_TRUE(could_go_on);
  EXPECT_EQ(other.get(), BP_ABORTED);
  EXPECT_EQ(backend.text, "it was aborted");
  EXPECT_EQ(lane.admit(), BP_STREAM_FAILED);
  EXPECT_EQ(backend.text, "the stream has failed: it was aborted");
  EXPECT_EQ(backend.streams->destroy(backend.streams->self, stream), BP_OK);
}

// Pages of such words are never given back to CUDA.
TEST(Failures, WordsThatKernelsReportToAreUsedAgain) {
  reset();
  TestBackend backend(enter_fake);
  const CheckedIndices indices{.op = "gather", .argument = "indices"};
  bp_stream* const other = backend.make_stream();
  for (int i = 0; i < 1000; ++i) {
    bp_stream* const stream = backend.make_stream();
    Lane& lane = lane_of(stream, "the test");
    lane.next_reporter(indices).report->launch = i % 2 == 0 ? 1 : 0;
    lane_of(other, "the test").inherit(lane.marks());
    EXPECT_EQ(lane.outcome().status, i % 2 == 0 ? BP_DATA_FAILURE : BP_OK);
    EXPECT_EQ(lane.next_reporter(indices).launch, 2u);
    lane.clear_failure();
    EXPECT_EQ(lane.outcome().status, BP_OK);
    EXPECT_EQ(backend.streams->destroy(backend.streams->self, stream), BP_OK);
    lane_of(other, "the test").clear_failure();
    EXPECT_TRUE(lane_of(other, "the test").wait(UINT64_MAX));
  }
  EXPECT_EQ(call_counts()["cudaHostAlloc"], 1u);
  EXPECT_EQ(backend.streams->destroy(backend.streams->self, other), BP_OK);
}

TEST(Failures, AStreamOfTheCallerIsNotUsedAfterItsHandle) {
  reset();
  TestBackend backend(enter_fake);
  bp_stream* const stream = backend.make_stream();
  Lane& owner = lane_of(stream, "the test");
  auto lent = std::make_shared<Lane>(owner.device(), owner.native(), false);
  lent->next_reporter({.op = "gather", .argument = "indices"});
  EXPECT_EQ(backend.streams->destroy(backend.streams->self, stream), BP_OK);
  const uint64_t before = call_counts()["cudaEventRecord"];
  lent.reset();
  EXPECT_EQ(call_counts()["cudaEventRecord"], before);
}

bp_status run_library(const bp_kernel&, const void*, Launch& launch) {
  if (!launch.only_checks()) throw ExecutionFailed("cublasLtMatmul failed: IN_THE_TEST");
  return BP_OK;
}

// Launches a kernel whose library cannot run it, while CUDA says `error` of the stream.
void launch_of_a_library(cudaError_t error, bp_status want, const std::string& text) {
  reset();
  TestBackend backend(enter_fake);
  bp_stream* const stream = backend.make_stream();
  const Device& device = lane_of(stream, "the test").device();
  const bp_kernel kernel{.struct_size = sizeof(bp_kernel),
                         .struct_type = BP_STRUCT_KERNEL,
                         .state = &lane_of(stream, "the test").device().owner(),
                         .name = "of.the.test"};
  const bp_launch launch{.device = backend.device, .stream = stream};
  if (error != cudaSuccess) fail_call("cudaStreamQuery", 1, error);
  EXPECT_EQ(run_launch(&kernel, &launch, &launch, run_library), want);
  EXPECT_EQ(backend.text, text);
  EXPECT_EQ(device.is_lost(), want == BP_DEVICE_LOST);
  fail_call("", 0, cudaSuccess);
  EXPECT_EQ(backend.streams->destroy(backend.streams->self, stream), BP_OK);
}

TEST(Failures, OfLibrariesAreLossesIfCudaSaysSo) {
  launch_of_a_library(cudaSuccess, BP_INTERNAL, "cublasLtMatmul failed: IN_THE_TEST");
  launch_of_a_library(cudaErrorNotReady, BP_INTERNAL, "cublasLtMatmul failed: IN_THE_TEST");
  launch_of_a_library(cudaErrorIllegalAddress, BP_DEVICE_LOST,
                      "fake accelerator 0 is lost: cublasLtMatmul failed: IN_THE_TEST: "
                      "cudaErrorIllegalAddress (an illegal memory access was encountered); CUDA "
                      "serves this process no more: end it and start another");
}

TEST(Probing, ADeviceThatCudaDoesNotShowIsRefusedInWords) {
  reset();
  fail_call("cudaDeviceGetByPCIBusId", 1, cudaErrorInvalidDevice);
  TestBackend backend(enter_fake);
  bp_stream* stream = nullptr;
  EXPECT_EQ(backend.streams->create(backend.streams->self, backend.device, nullptr, &stream),
            BP_UNSUPPORTED);
  EXPECT_NE(backend.text.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << backend.text;
}

// Another library of the process, such as PyTorch, captures meanwhile. CUDA would refuse calls that
// allocate, wait or ask, and end its capture.
TEST(Graphs, OfOthersAreNotDisturbed) {
  reset();
  {
    TestBackend backend(enter_fake);
    const Driver other = driver();
    CUcontext context = nullptr;
    ASSERT_EQ(other.cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    ASSERT_EQ(other.cuCtxSetCurrent(context), CUDA_SUCCESS);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(other.cudaStreamCreateWithPriority(&stream, 0, 0), cudaSuccess);
    ASSERT_EQ(other.cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    {
      Tour tour(backend);
      EXPECT_TRUE(tour.run());
      tour.end();
      EXPECT_TRUE(tour.refusals().empty()) << joined(tour.refusals());
      EXPECT_TRUE(tour.refused_ends().empty()) << joined(tour.refused_ends());
    }
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(other.cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(other.cudaGraphDestroy(graph), cudaSuccess);
    EXPECT_EQ(other.cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(other.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(other.cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
  }
  EXPECT_TRUE(violations().empty()) << joined(violations());
}

TEST(Graphs, AreLaunchedByOneCallAndUpdatedInPlace) {
  calls_of_a_tour();
  const std::map<std::string, uint64_t> calls = call_counts();
  EXPECT_EQ(calls.at("cudaGraphLaunch"), 2u);
  EXPECT_EQ(calls.at("cudaGraphInstantiate"), 1u);
  EXPECT_EQ(calls.at("cudaGraphExecUpdate"), 1u);
}

}  // namespace
}  // namespace bp::cuda::fake
