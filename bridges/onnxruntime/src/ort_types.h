// The part of ONNX Runtime's C interface that this library implements: structs of callbacks, in the
// order in which ONNX Runtime reads them. The wheel of PyPI carries no header, so the layouts stand
// here as facts. A struct says in its first member for which API version it was filled, and ONNX
// Runtime reads no member that came later. A callback that is NULL is not there.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct OrtEpApi;
struct OrtEpDevice;
struct OrtEpGraphSupportInfo;
struct OrtGraph;
struct OrtHardwareDevice;
struct OrtDataType;
struct OrtKernelContext;
struct OrtKernelDef;
struct OrtKernelDefBuilder;
struct OrtKernelInfo;
struct OrtKernelRegistry;
struct OrtKeyValuePairs;
struct OrtLogger;
struct OrtMemoryDevice;
struct OrtMemoryInfo;
struct OrtNode;
struct OrtNodeComputeContext;
struct OrtOpAttr;
struct OrtSessionOptions;
struct OrtStatus;
struct OrtSyncStream;
struct OrtSyncStreamImpl;
struct OrtTensorTypeAndShapeInfo;
struct OrtTypeInfo;
struct OrtValue;
struct OrtValueInfo;

// A place that this library leaves NULL.
using OrtUnused = void*;

struct OrtApiBase {
  const void* (*GetApi)(uint32_t version);  // NULL if the host has no such version.
  const char* (*GetVersionString)();
};

struct OrtAllocator {
  uint32_t version;
  void* (*Alloc)(OrtAllocator*, size_t size);  // NULL if there is no memory.
  void (*Free)(OrtAllocator*, void*);
  const OrtMemoryInfo* (*Info)(const OrtAllocator*);
  void* (*Reserve)(OrtAllocator*, size_t size);
  OrtUnused GetStats, AllocOnStream, Shrink;
};

struct OrtDataTransferImpl {
  uint32_t ort_version_supported;
  void (*Release)(OrtDataTransferImpl*);
  bool (*CanCopy)(const OrtDataTransferImpl*, const OrtMemoryDevice* source,
                  const OrtMemoryDevice* target);
  OrtStatus* (*CopyTensors)(OrtDataTransferImpl*, const OrtValue** sources, OrtValue** targets,
                            OrtSyncStream** streams, size_t count);
};

// A kernel of one node. Its other members came later than API version 24.
struct OrtKernelImpl {
  uint32_t ort_version_supported;
  uint32_t flags;
  OrtStatus* (*Compute)(OrtKernelImpl*, OrtKernelContext*);
  void (*Release)(OrtKernelImpl*);
  OrtUnused PrePackWeight, SetSharedPrePackedWeight;
};

using OrtKernelCreate = OrtStatus*(void* state, const OrtKernelInfo*, OrtKernelImpl** out);

struct OrtNodeFusionOptions {
  uint32_t ort_version_supported;
  bool drop_constant_initializers;  // The constants that only fused nodes use may be freed.
};

struct OrtNodeComputeInfo {
  uint32_t ort_version_supported;
  OrtStatus* (*CreateState)(OrtNodeComputeInfo*, OrtNodeComputeContext*, void** out_state);
  OrtStatus* (*Compute)(OrtNodeComputeInfo*, void* state, OrtKernelContext*);
  void (*ReleaseState)(OrtNodeComputeInfo*, void* state);
};

struct OrtEp {
  uint32_t ort_version_supported;
  const char* (*GetName)(const OrtEp*);
  OrtStatus* (*GetCapability)(OrtEp*, const OrtGraph*, OrtEpGraphSupportInfo*);
  OrtStatus* (*Compile)(OrtEp*, const OrtGraph** graphs, const OrtNode** fused_nodes, size_t count,
                        OrtNodeComputeInfo** out_infos, OrtNode** out_context_nodes);
  void (*ReleaseNodeComputeInfos)(OrtEp*, OrtNodeComputeInfo** infos, size_t count);
  OrtUnused GetPreferredDataLayout, ShouldConvertDataLayoutForOp, SetDynamicOptions, OnRunStart,
      OnRunEnd, CreateAllocator, CreateSyncStreamForDevice, GetCompiledModelCompatibilityInfo;
  // Since API version 24.
  OrtStatus* (*GetKernelRegistry)(OrtEp*, const OrtKernelRegistry** out);
  OrtStatus* (*IsConcurrentRunSupported)(OrtEp*, bool* out);
  // Since 25 and later.
  OrtUnused Sync, CreateProfiler, IsGraphCaptureEnabled, IsGraphCaptured, ReplayGraph,
      GetGraphCaptureNodeAssignmentPolicy, GetAvailableResource, OnSessionInitializationEnd,
      GetDefaultMemoryDevice, ReleaseCapturedGraph, GetWeightlessSupport;
};

struct OrtEpFactory {
  uint32_t ort_version_supported;
  const char* (*GetName)(const OrtEpFactory*);
  const char* (*GetVendor)(const OrtEpFactory*);
  OrtStatus* (*GetSupportedDevices)(OrtEpFactory*, const OrtHardwareDevice* const* devices,
                                    size_t device_count, OrtEpDevice** out_ep_devices,
                                    size_t capacity, size_t* out_count);
  OrtStatus* (*CreateEp)(OrtEpFactory*, const OrtHardwareDevice* const* devices,
                         const OrtKeyValuePairs* const* metadata, size_t device_count,
                         const OrtSessionOptions*, const OrtLogger*, OrtEp** out);
  void (*ReleaseEp)(OrtEpFactory*, OrtEp*);
  uint32_t (*GetVendorId)(const OrtEpFactory*);
  const char* (*GetVersion)(const OrtEpFactory*);
  OrtUnused ValidateCompiledModelCompatibilityInfo;
  OrtStatus* (*CreateAllocator)(OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                                OrtAllocator** out);
  void (*ReleaseAllocator)(OrtEpFactory*, OrtAllocator*);
  OrtStatus* (*CreateDataTransfer)(OrtEpFactory*, OrtDataTransferImpl** out);
  bool (*IsStreamAware)(const OrtEpFactory*);
  OrtStatus* (*CreateSyncStreamForDevice)(OrtEpFactory*, const OrtMemoryDevice*,
                                          const OrtKeyValuePairs*, OrtSyncStreamImpl** out);
  // Since API version 24 and later.
  OrtUnused GetHardwareDeviceIncompatibilityDetails, CreateExternalResourceImporterForDevice,
      GetNumCustomOpDomains, GetCustomOpDomains, InitGraphicsInterop, DeinitGraphicsInterop,
      SelectBestModelCandidate;
};

}  // extern "C"
