#include "registry/layers/properties.hpp"

#include <algorithm>
#include <cstring>

#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/prefix.hpp"

namespace bp::layers {

void ShownProperties::seal() {
  const auto keep = [](const char*& text, std::string& own) {
    if (text == nullptr) return;
    own = clean_name(text);
    text = own.c_str();
  };
  if (properties.name == nullptr) properties.name = "";
  keep(properties.name, own_name_);
  keep(properties.bus_id, own_bus_id_);
  own_profiles_.resize(profiles.size());
  for (size_t i = 0; i < profiles.size(); ++i) keep(profiles[i], own_profiles_[i]);
  properties.dtypes = dtypes.data();
  properties.dtype_count = dtypes.size();
  properties.profiles = profiles.data();
  properties.profile_count = profiles.size();
  properties.heaps = heaps.data();
  properties.heap_count = heaps.size();
  properties.heap_stride_bytes = sizeof(bp_heap);
}

void ShownProperties::end_links() {
  properties.next = nullptr;
  for (bp_heap& heap : heaps) heap.next = nullptr;
}

std::unique_ptr<ShownProperties> copy_properties(const bp_device_properties& theirs) {
  auto shown = std::make_unique<ShownProperties>();
  bp_device_properties& p = shown->properties;
  core::copy_prefix(theirs, p);
  p.struct_size = std::min<uint32_t>(theirs.struct_size, sizeof(p));
  shown->dtypes.assign(p.dtypes, p.dtypes + p.dtype_count);
  shown->profiles.assign(p.profiles, p.profiles + p.profile_count);
  const auto* bytes = reinterpret_cast<const unsigned char*>(p.heaps);
  for (uint64_t i = 0; i < p.heap_count; ++i) {
    const auto& heap = *reinterpret_cast<const bp_heap*>(bytes + i * p.heap_stride_bytes);
    bp_heap& ours = shown->heaps.emplace_back();
    if (heap.struct_size > core::kMaxStructBytes) {
      std::memcpy(&ours, &heap,
                  sizeof(bp_struct_header));  // The host rejects the heap for its size.
      continue;
    }
    core::copy_prefix(heap, ours);
    ours.struct_size = std::min<uint32_t>(heap.struct_size, sizeof(ours));
  }
  return shown;
}

}  // namespace bp::layers
