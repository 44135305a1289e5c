#include "transfer.hpp"

#include "backplane/runtime/onnx.hpp"
#include "graph.hpp"

namespace bpo {
namespace {

constexpr int32_t kCpuInput = -2, kCpuOutput = -1;  // OrtMemType.
constexpr int32_t kCpu = 0;                         // OrtMemoryInfoDeviceType.
constexpr int32_t kNewestElementType = 26;          // Of ONNXTensorElementDataType.
constexpr int32_t kString = 8;

}  // namespace

DataTransfer::DataTransfer(const Ort& ort, const Memories& memories)
    : OrtDataTransferImpl{}, ort_(ort), memories_(memories) {
  ort_version_supported = ort.version;
  Release = [](OrtDataTransferImpl* self) { delete &of(self); };
  CanCopy = [](const OrtDataTransferImpl* self, const OrtMemoryDevice* source,
               const OrtMemoryDevice* target) {
    return static_cast<const DataTransfer*>(self)->can_copy(source, target);
  };
  CopyTensors = [](OrtDataTransferImpl* self, const OrtValue** sources, OrtValue** targets,
                   OrtSyncStream**, size_t count) {
    return guarded(of(self).ort_, [&] {
      for (size_t i = 0; i < count; ++i) {
        copy_value(of(self).ort_, of(self).memories_, sources[i], targets[i]);
      }
    });
  };
}

bool DataTransfer::can_copy(const OrtMemoryDevice* source, const OrtMemoryDevice* target) const {
  const auto is_cpu = [&](const OrtMemoryDevice* device) {
    return ort_.MemoryDevice_GetDeviceType(device) == kCpu;
  };
  for (const std::unique_ptr<DeviceMemory>& memory : memories_) {
    const bool reads = memory->is_of(source), writes = memory->is_of(target);
    if (reads && (writes || is_cpu(target))) return true;
    if (writes && is_cpu(source)) return true;
  }
  return false;
}

struct CopyKernels::Kernel : OrtKernelImpl {
  explicit Kernel(const CopyKernels& owner) : OrtKernelImpl{}, kernels(owner) {
    ort_version_supported = owner.ort_.version;
    Release = [](OrtKernelImpl* self) { delete static_cast<Kernel*>(self); };
    Compute = [](OrtKernelImpl* self, OrtKernelContext* context) {
      const CopyKernels& all = static_cast<Kernel*>(self)->kernels;
      return guarded(all.ort_, [&] { all.run(context); });
    };
  }
  const CopyKernels& kernels;
};

CopyKernels::CopyKernels(const Ort& ort, const Memories& memories, const char* name)
    : ort_(ort), memories_(memories) {
  ort_.check(ort_.CreateKernelRegistry(&registry_), "CreateKernelRegistry");
  add("MemcpyFromHost", true, name);
  add("MemcpyToHost", false, name);
}

void CopyKernels::add(const char* op, bool reads_host, const char* name) {
  std::vector<const OrtDataType*> types;
  for (int32_t type = 1; type <= kNewestElementType; ++type) {
    const OrtDataType* found = nullptr;
    if (type == kString || bp::onnx_dtype(data_type_of(type)) == 0) continue;
    OrtStatus* const unknown = ort_.GetTensorDataType(type, &found);
    if (unknown != nullptr) ort_.ReleaseStatus(unknown);
    if (found != nullptr) types.push_back(found);
  }
  OrtKernelDefBuilder* builder = nullptr;
  ort_.check(ort_.CreateKernelDefBuilder(&builder), "CreateKernelDefBuilder");
  const std::unique_ptr<OrtKernelDefBuilder, void (*)(OrtKernelDefBuilder*)> owner(
      builder, ort_.ReleaseKernelDefBuilder);
  ort_.check(ort_.KernelDefBuilder_SetOperatorType(builder, op), "SetOperatorType");
  ort_.check(ort_.KernelDefBuilder_SetDomain(builder, ""), "SetDomain");
  ort_.check(ort_.KernelDefBuilder_SetSinceVersion(builder, 1, 1), "SetSinceVersion");
  ort_.check(ort_.KernelDefBuilder_SetExecutionProvider(builder, name), "SetExecutionProvider");
  ort_.check(reads_host ? ort_.KernelDefBuilder_SetInputMemType(builder, 0, kCpuInput)
                        : ort_.KernelDefBuilder_SetOutputMemType(builder, 0, kCpuOutput),
             "SetMemType");
  ort_.check(ort_.KernelDefBuilder_AddTypeConstraint(builder, "T", types.data(), types.size()),
             "AddTypeConstraint");
  OrtKernelDef* definition = nullptr;
  ort_.check(ort_.KernelDefBuilder_Build(builder, &definition), "KernelDefBuilder_Build");
  const std::unique_ptr<OrtKernelDef, void (*)(OrtKernelDef*)> built(definition,
                                                                     ort_.ReleaseKernelDef);
  OrtKernelCreate* const create = [](void* state, const OrtKernelInfo*, OrtKernelImpl** out) {
    const auto& kernels = *static_cast<const CopyKernels*>(state);
    return guarded(kernels.ort_, [&] { *out = new Kernel(kernels); });
  };
  ort_.check(ort_.KernelRegistry_AddKernel(registry_, definition, create, this),
             "KernelRegistry_AddKernel");
}

void CopyKernels::run(OrtKernelContext* context) const {
  const OrtValue* source = nullptr;
  OrtValue* target = nullptr;
  ort_.check(ort_.KernelContext_GetInput(context, 0, &source), "KernelContext_GetInput");
  const std::vector<int64_t> dims = view_of(ort_, source).dims;
  ort_.check(ort_.KernelContext_GetOutput(context, 0, dims.data(), dims.size(), &target),
             "KernelContext_GetOutput");
  copy_value(ort_, memories_, source, target);
}

}  // namespace bpo
