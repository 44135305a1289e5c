#include "registry/layers/list.hpp"

namespace bp::layers {
namespace {

constexpr const LayerInfo* kLayers[] = {&kDiffLayer,  &kFaultLayer,   &kLeakLayer,
                                        &kMaskLayer,  &kOldAbiLayer,  &kRecordLayer,
                                        &kTraceLayer, &kValidateLayer};

}  // namespace

std::span<const LayerInfo* const> all_layers() { return kLayers; }

const LayerInfo* find_layer(std::string_view name) {
  for (const LayerInfo* info : kLayers) {
    if (info->name == name) return info;
  }
  return nullptr;
}

}  // namespace bp::layers
