// Submits one dispatch of a kernel: the module, its constants, the record, and the ranges that it
// reads and writes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

// The ranges of a dispatch. A tensor that is NULL or has no elements has no range.
class Ranges {
 public:
  explicit Ranges(const Launch& launch, std::initializer_list<const bp_tensor*> tensors = {})
      : launch_(launch) {
    for (const bp_tensor* tensor : tensors) add(tensor);
  }
  Ranges& add(const bp_tensor* tensor) {
    if (tensor != nullptr && element_count(*tensor) != 0) add(launch_.range(*tensor));
    return *this;
  }
  Ranges& add(const Range& range) {
    ranges_.at(count_++) = range;
    return *this;
  }
  operator std::span<const Range>() const { return {ranges_.data(), count_}; }

 private:
  const Launch& launch_;
  std::array<Range, 12> ranges_{};
  size_t count_ = 0;
};

// What a dispatch reads, writes and binds, as in Dispatch.
struct Touched {
  const Ranges &reads, &writes;
  std::span<const Range> bound = {};
};

// Returns the default number of invocations of a workgroup, which is constant 0 of every module.
inline uint32_t local_size(const Env& env) { return env.is_processor() ? 64 : 256; }

// Divides `count` workgroups over two axes, which shaders combine again. There may be a few
// workgroups too many.
void fold_groups(const Env& env, uint64_t count, uint32_t (&out_groups)[3]);

// Dispatches `group_count` workgroups. The record is copied.
template <typename Record>
bp_status submit(Launch& launch, const Module& module, std::span<const uint32_t> constants,
                 const Record& record, uint64_t group_count, const Touched& touched) {
  Dispatch dispatch{.module = &module,
                    .constants = constants,
                    .arguments = std::as_bytes(std::span(&record, 1)),
                    .bound = touched.bound,
                    .reads = touched.reads,
                    .writes = touched.writes};
  fold_groups(launch, group_count, dispatch.groups);
  return launch.dispatch(dispatch);
}

constexpr uint64_t ceil_divide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Returns whether elements of `dtype` are computed in f32.
constexpr bool is_f32_class(bp_dtype dtype) {
  return dtype == BP_F32 || dtype == BP_F16 || dtype == BP_BF16;
}

// Returns the device address of a tensor, or 0 if it is NULL or has no elements.
inline uint64_t address_of(const Launch& launch, const bp_tensor* tensor) {
  return tensor == nullptr || element_count(*tensor) == 0 ? 0 : launch.device_address(*tensor);
}

}  // namespace bp::vulkan
