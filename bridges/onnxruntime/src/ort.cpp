#include "ort.hpp"

#include <algorithm>
#include <cstdio>

namespace bpo {
namespace {

// The error codes of ONNX Runtime that are used. Its code for the failure of a provider is not one
// of them: the Python package then computes again on the CPU, and goes on there.
enum : int32_t {
  kFail = 1,
  kInvalidArgument = 2,
  kRuntimeException = 6,
  kNotImplemented = 9,
};

int32_t code_of(bp_status status) {
  switch (status) {
    case BP_INVALID_ARGUMENT:
    case BP_DATA_FAILURE:
      return kInvalidArgument;
    case BP_UNSUPPORTED:
      return kNotImplemented;
    case BP_INCOMPATIBLE:
    case BP_NOT_FOUND:
      return kFail;
    default:
      return kRuntimeException;
  }
}

template <typename Function>
void read_slot(const void* table, size_t index, uint32_t since, uint32_t version, Function& out) {
  if (since > version) return;
  out = reinterpret_cast<Function>(static_cast<void* const*>(table)[index]);
}

// ONNX Runtime 1.N has the API versions up to N, and prints a line for each one above that is asked
// for.
uint32_t first_version(const OrtApiBase& base) {
  unsigned major = 0, minor = 0;
  const int found = std::sscanf(base.GetVersionString(), "%u.%u", &major, &minor);
  return found == 2 && major == 1 ? std::min<uint32_t>(minor, kNewestApi) : kNewestApi;
}

}  // namespace

Ort Ort::load(const OrtApiBase& base) {
  Ort ort;
  const void* api = nullptr;
  for (uint32_t version = first_version(base); version >= kOldestApi && api == nullptr; --version) {
    api = base.GetApi(version);
    ort.version = version;
  }
  if (api == nullptr) {
    throw OrtError(BP_INCOMPATIBLE, std::string("this is ONNX Runtime ") + base.GetVersionString() +
                                        "; this provider needs 1." + std::to_string(kOldestApi) +
                                        " or newer");
  }
#define ORT_API(index, since, result, name, arguments) \
  read_slot(api, index, since, ort.version, ort.name);
#define ORT_EP_API(index, since, result, name, arguments)
#include "ort_slots.def"
  const void* const ep_api = ort.GetEpApi();
#define ORT_API(index, since, result, name, arguments)
#define ORT_EP_API(index, since, result, name, arguments) \
  read_slot(ep_api, index, since, ort.version, ort.name);
#include "ort_slots.def"
  return ort;
}

void Ort::check(OrtStatus* status, const char* call) const {
  if (status == nullptr) return;
  const std::string text = std::string(call) + ": " + GetErrorMessage(status);
  ReleaseStatus(status);
  throw OrtError(BP_INTERNAL, text);
}

OrtStatus* Ort::fail(bp_status code, const char* message) const {
  return CreateStatus(code_of(code), message);
}

void Ort::log(const OrtLogger* logger, LogLevel level, const std::string& message) const {
  OrtStatus* const status =
      Logger_LogMessage(logger, level, message.c_str(), "onnxruntime_backplane", 0, "backplane");
  if (status != nullptr) ReleaseStatus(status);  // Nobody could be told.
}

}  // namespace bpo
