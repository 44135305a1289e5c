#include "runtime/distributed/buckets.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

namespace bp::distributed {
namespace {

struct Open {
  std::vector<size_t> members;
  uint64_t bytes = 0;
  uint64_t limit;
};

}  // namespace

std::vector<std::vector<size_t>> assign_buckets(std::span<const Tensor> parameters,
                                                std::span<const size_t> order, uint64_t first_bytes,
                                                uint64_t bucket_bytes) {
  std::vector<std::vector<size_t>> buckets;
  std::map<bp_dtype, Open> open;
  for (const size_t i : order) {
    Open& bucket =
        open.try_emplace(parameters[i].dtype(), Open{.limit = first_bytes}).first->second;
    bucket.members.push_back(i);
    bucket.bytes += parameters[i].size_bytes();
    if (bucket.bytes < bucket.limit) continue;
    buckets.push_back(std::move(bucket.members));
    bucket = {.limit = bucket_bytes};
  }
  // The rest becomes full by the last parameter of each dtype.
  std::map<size_t, std::vector<size_t>> rest;
  for (auto& [dtype, bucket] : open) {
    if (bucket.members.empty()) continue;
    size_t place = 0;
    while (order[place] != bucket.members.back()) ++place;
    rest[place] = std::move(bucket.members);
  }
  for (auto& [place, members] : rest) buckets.push_back(std::move(members));
  return buckets;
}

int64_t alignment_bytes(Device device) {
  uint64_t most = 256;
  const bp_device_properties& properties = *device.target().properties;
  const auto* heap = reinterpret_cast<const std::byte*>(properties.heaps);
  for (uint64_t i = 0; i < properties.heap_count; ++i, heap += properties.heap_stride_bytes) {
    most = std::max(most, reinterpret_cast<const bp_heap*>(heap)->tensor_offset_alignment_bytes);
  }
  return static_cast<int64_t>(most);
}

int64_t padded_count(const Tensor& tensor, int64_t alignment) {
  const int64_t unit = alignment * 8 / static_cast<int64_t>(tensor.element_bits());
  return (tensor.numel() + unit - 1) / unit * unit;
}

}  // namespace bp::distributed
