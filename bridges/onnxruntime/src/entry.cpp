// The two functions that ONNX Runtime looks up in the library.
#include "factory.hpp"

namespace {

// A host that is too old to be asked for a status gets one all the same: CreateStatus is the first
// function of every version of the table.
OrtStatus* refuse_host(const OrtApiBase& base, const char* message) {
  constexpr uint32_t kFirstVersion = 1;
  constexpr int32_t kFail = 1;
  using CreateStatus = OrtStatus* (*)(int32_t, const char*);
  const void* const api = base.GetApi(kFirstVersion);
  return reinterpret_cast<CreateStatus>(*static_cast<void* const*>(api))(kFail, message);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) OrtStatus* CreateEpFactories(
    const char* /*registered_name*/, const OrtApiBase* base, const OrtLogger* logger,
    OrtEpFactory** factories, size_t capacity, size_t* out_count) {
  bpo::Ort ort;
  try {
    ort = bpo::Ort::load(*base);
  } catch (const std::exception& e) {
    return refuse_host(*base, e.what());
  }
  return bpo::guarded(ort, [&] {
    if (capacity < 1) throw bpo::OrtError(BP_INVALID_ARGUMENT, "there is no room for a factory");
    factories[0] = new bpo::Factory(ort, logger);
    *out_count = 1;
  });
}

__attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<bpo::Factory*>(factory);
  return nullptr;
}

}  // extern "C"
