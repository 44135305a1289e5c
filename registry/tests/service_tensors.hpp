// The parts that the tests of the services share: tensors on a device, and real backends from
// files.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "backplane/host.h"
#include "backplane/registry.hpp"

namespace bp {

template <typename T>
constexpr bp_dtype kDtypeOf = 0;
template <>
inline constexpr bp_dtype kDtypeOf<float> = BP_F32;
template <>
inline constexpr bp_dtype kDtypeOf<double> = BP_F64;
template <>
inline constexpr bp_dtype kDtypeOf<int64_t> = BP_I64;

// A tensor and the memory around it. Elements are read and written as bytes of the whole block, so
// that a test also sees the bytes between them.
template <typename T>
class Tensor {
 public:
  // Makes a row-major tensor at the beginning of the block.
  Tensor(const bp_target& target, std::vector<int64_t> shape)
      : Tensor(target, shape, row_major(shape), 0, count(shape)) {}

  // Makes a tensor in a block of `size` elements. The first element of the tensor is number
  // `origin`.
  Tensor(const bp_target& target, std::vector<int64_t> shape, std::vector<int64_t> strides,
         int64_t origin, int64_t size)
      : target_(target), shape_(std::move(shape)), strides_(std::move(strides)), origin_(origin) {
    const Status status =
        allocate(target, nullptr, static_cast<uint64_t>(size) * sizeof(T), &block_);
    EXPECT_TRUE(status.ok()) << status.message;
    tensor_ = {.buffer = block_->ref.buffer,
               .byte_offset = block_->ref.byte_offset + static_cast<uint64_t>(origin) * sizeof(T),
               .shape = shape_.data(),
               .strides = strides_.data(),
               .ndim = static_cast<uint32_t>(shape_.size()),
               .dtype = kDtypeOf<T>};
    write(std::vector<T>(static_cast<size_t>(size), T{77}));
  }
  Tensor(const Tensor&) = delete;

  const bp_tensor* get() const { return &tensor_; }
  size_t size() const { return static_cast<size_t>(count(shape_)); }

  // Writes the whole block, elements and the bytes between them.
  void write(const std::vector<T>& block) {
    size_ = block.size();
    if (block.empty()) return;
    const bp_buffer_ref ref{block_->ref.buffer, block_->ref.byte_offset, size_ * sizeof(T)};
    const bp_allocator_ops& memory = *target_.allocator;
    ASSERT_EQ(memory.copy_from_host(memory.self, target_.default_stream, &ref, block.data(),
                                    BP_BORROW_DURING_CALL),
              BP_OK)
        << bp_error_text();
  }
  std::vector<T> read() const {
    std::vector<T> block(size_);
    if (block.empty()) return block;
    const bp_buffer_ref ref{block_->ref.buffer, block_->ref.byte_offset, size_ * sizeof(T)};
    const bp_allocator_ops& memory = *target_.allocator;
    EXPECT_EQ(memory.copy_to_host(memory.self, target_.default_stream, block.data(), &ref,
                                  BP_BORROW_DURING_CALL, UINT64_MAX),
              BP_OK)
        << bp_error_text();
    return block;
  }

  // Returns the place in the block of element `index` in row-major order.
  size_t place(size_t index) const {
    int64_t rest = static_cast<int64_t>(index), at = origin_;
    for (size_t axis = shape_.size(); axis-- > 0; rest /= shape_[axis]) {
      at += rest % shape_[axis] * strides_[axis];
    }
    return static_cast<size_t>(at);
  }

  void set(const std::vector<T>& elements) {
    std::vector<T> block = read();
    for (size_t i = 0; i < elements.size(); ++i) block[place(i)] = elements[i];
    write(block);
  }
  std::vector<T> elements() const {
    const std::vector<T> block = read();
    std::vector<T> elements;
    for (size_t i = 0; i < size(); ++i) elements.push_back(block[place(i)]);
    return elements;
  }

 private:
  static int64_t count(const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
  static std::vector<int64_t> row_major(const std::vector<int64_t>& shape) {
    std::vector<int64_t> strides(shape.size());
    int64_t stride = 1;
    for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
    return strides;
  }

  const bp_target& target_;
  std::vector<int64_t> shape_, strides_;
  int64_t origin_;
  size_t size_ = 0;
  BlockHandle block_;
  bp_tensor tensor_{};
};

template <typename T>
std::vector<T> random_values(size_t count) {
  std::mt19937 engine(5);
  std::uniform_real_distribution<T> distribution(-2, 2);
  std::vector<T> values(count);
  for (T& value : values) value = distribution(engine);
  return values;
}

// Throws if there is no such plugin, because no test works without it.
inline const bp_target* load(Registry& registry, const char* path) {
  const bp_plugin* plugin = nullptr;
  const Status status = registry.load(path, {}, &plugin);
  if (!status.ok()) throw std::runtime_error(status.message);
  for (const bp_target* target : registry.targets()) {
    if (target->plugin == plugin) return target;
  }
  throw std::runtime_error(std::string(path) + " has no device");
}

inline bp_dispatch_statistics statistics(const bp_target& target, uint32_t op) {
  bp_dispatch_statistics s{.struct_size = sizeof(s), .struct_type = BP_STRUCT_DISPATCH_STATISTICS};
  EXPECT_EQ(bp_target_statistics(&target, op, &s), BP_OK) << bp_error_text();
  return s;
}

// Checks that the values are close to `expected`, as a few roundings of values of that magnitude
// leave them.
template <typename T>
void expect_close(const std::vector<T>& actual, const std::vector<T>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << "element " << i << " is " << actual[i];
      continue;
    }
    const T scale = std::max(T{1}, std::abs(expected[i]));
    EXPECT_NEAR(actual[i], expected[i], 8 * std::numeric_limits<T>::epsilon() * scale)
        << "element " << i;
  }
}

}  // namespace bp
