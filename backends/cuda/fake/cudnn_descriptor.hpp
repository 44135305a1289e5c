// What the fake cuDNN keeps of a descriptor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

// The engines that the heuristics list. The first one rounds f32 inputs to TF32. Otherwise both are
// exact.
enum class Engine { kTensorCores, kPlain };

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  Engine engine = Engine::kPlain;
  std::map<int, std::vector<int64_t>> words;  // The numbers and enumerators, by attribute.
  std::map<int, std::array<std::byte, sizeof(double)>> factors;  // As they were given.
  std::map<int, std::vector<void*>> pointers;
  std::map<int, std::vector<std::shared_ptr<Descriptor>>> parts;

  // If the attribute is missing, these functions throw std::out_of_range.
  int64_t word(int name) const { return words.at(name).at(0); }
  const Descriptor& part(int name) const { return *parts.at(name).at(0); }

  bool is_set(int name) const { return words.contains(name) && word(name) != 0; }
};

// Returns the type of elements that a number of cuDNN means. Bytes are those of bool.
inline cudaDataType_t type_of(int64_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return CUDA_R_64F;
    case CUDNN_DATA_FLOAT:
      return CUDA_R_32F;
    case CUDNN_DATA_HALF:
      return CUDA_R_16F;
    case CUDNN_DATA_INT32:
      return CUDA_R_32I;
    case CUDNN_DATA_BOOLEAN:
      return CUDA_R_8U;
    default:
      return CUDA_R_16BF;
  }
}

}  // namespace bp::cuda::fake
