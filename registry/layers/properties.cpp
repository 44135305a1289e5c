#include "registry/layers/properties.hpp"

#include <algorithm>

namespace bp::layers {

void ShownProperties::seal() {
  properties.dtypes = dtypes.data();
  properties.dtype_count = dtypes.size();
  properties.profiles = profiles.data();
  properties.profile_count = profiles.size();
  properties.heaps = heaps.data();
  properties.heap_count = heaps.size();
  properties.heap_stride_bytes = sizeof(bp_heap);
}

std::unique_ptr<ShownProperties> PropertiesCopies::copy(const bp_device_properties& theirs) {
  auto shown = std::make_unique<ShownProperties>();
  bp_device_properties& p = shown->properties;
  static_cast<void>(bp_struct_read(&theirs, 0, &p, sizeof(p), nullptr));
  p.struct_size = std::min<uint32_t>(theirs.struct_size, sizeof(p));
  shown->dtypes.assign(p.dtypes, p.dtypes + p.dtype_count);
  shown->profiles.assign(p.profiles, p.profiles + p.profile_count);
  const auto* bytes = reinterpret_cast<const unsigned char*>(p.heaps);
  for (uint64_t i = 0; i < p.heap_count; ++i) {
    const void* heap = bytes + i * p.heap_stride_bytes;
    bp_heap& ours = shown->heaps.emplace_back();
    static_cast<void>(bp_struct_read(heap, 0, &ours, sizeof(ours), nullptr));
    ours.struct_size =
        std::min<uint32_t>(static_cast<const bp_heap*>(heap)->struct_size, sizeof(ours));
  }
  return shown;
}

}  // namespace bp::layers
