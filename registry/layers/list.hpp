// The list of all layers.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "registry/layers/layer.hpp"

namespace bp::layers {

struct OptionInfo {
  const char* key;
  const char* meaning;  // The meaning, with the default.
};

// A row of the list.
struct LayerInfo {
  const char* name;
  const char* summary;
  std::span<const OptionInfo> options;
  std::unique_ptr<Layer> (*make)(Setup setup);
};

std::span<const LayerInfo* const> all_layers();

// Returns NULL if no layer has this name.
const LayerInfo* find_layer(std::string_view name);

// The source of each layer defines its row.
extern const LayerInfo kDiffLayer;
extern const LayerInfo kFaultLayer;
extern const LayerInfo kLeakLayer;
extern const LayerInfo kMaskLayer;
extern const LayerInfo kOldAbiLayer;
extern const LayerInfo kRecordLayer;
extern const LayerInfo kTraceLayer;
extern const LayerInfo kValidateLayer;

template <typename L>
std::unique_ptr<Layer> make_layer(Setup setup) {
  return std::make_unique<L>(std::move(setup));
}

}  // namespace bp::layers
