// Mutants that are right as long as nothing changes: they keep results instead of computing them
// again.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "backplane/ops.h"
#include "conformance/mutants/mutant.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::mutants {
namespace {

constexpr uint32_t kMatmul[] = {BP_OP_MATMUL};
constexpr uint32_t kNeg[] = {BP_OP_NEG};
constexpr size_t kMostKept = 8;

bool is_dense(const bp_tensor& tensor) {
  return tensors::has_elements(tensor) && tensors::is_contiguous(tensor);
}

bp_buffer_ref range_of(const bp_tensor& tensor) {
  const View view(tensor);
  return {tensor.buffer, tensor.byte_offset,
          static_cast<uint64_t>(view.element_count() * view.item_size_bytes())};
}

template <typename T>
void append(std::vector<std::byte>& key, const T* values, size_t count) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  key.insert(key.end(), bytes, bytes + count * sizeof(T));
}

// Reads a dense tensor after the work that was submitted before.
bp_status append_content(const Call& call, const bp_tensor& tensor, std::vector<std::byte>& bytes) {
  const bp_allocator_ops& memory = *call.wrapped.allocator;
  const bp_buffer_ref range = range_of(tensor);
  bytes.resize(bytes.size() + range.size_bytes);
  return memory.copy_to_host(memory.self, call.launch->stream,
                             bytes.data() + bytes.size() - range.size_bytes, &range,
                             BP_BORROW_DURING_CALL, UINT64_MAX);
}

// Returns the result of the launch with this key; NULL if there is none.
const Kept* find(const Wrapped& wrapped, const std::vector<std::byte>& key) {
  const auto is_known = [&](const Kept& kept) {
    return kept.key.size() == key.size() &&
           std::memcmp(kept.key.data(), key.data(), key.size()) == 0;
  };
  const auto found = std::find_if(wrapped.kept.begin(), wrapped.kept.end(), is_known);
  return found == wrapped.kept.end() ? nullptr : &*found;
}

// Gross: treats a launch on the same tensors as the same launch.
bp_status skip_same_tensors(const Call& call, const bp_matmul_args& frame) {
  std::vector<std::byte> key;
  for (const bp_tensor* tensor : {frame.a, frame.b, frame.y}) {
    append(key, &tensor->buffer, 1);
    append(key, &tensor->byte_offset, 1);
    append(key, tensor->shape, tensor->ndim);
    append(key, tensor->strides, tensor->ndim);
  }
  const std::lock_guard lock(call.wrapped.mutex);
  if (find(call.wrapped, key) != nullptr) return BP_OK;
  const bp_status status = call.run(&frame);
  if (status == BP_OK) call.wrapped.kept.push_back({std::move(key), {}});
  return status;
}

// Subtle: compares the operands byte by byte with those of the last launches, and copies the
// product from an equal one. The result is always right.
bp_status copy_known_product(const Call& call, const bp_matmul_args& frame) {
  Kept kept;
  for (const bp_tensor* tensor : {frame.a, frame.b}) {
    append(kept.key, tensor->shape, tensor->ndim);
    const bp_status status = append_content(call, *tensor, kept.key);
    if (status != BP_OK) return status;
  }
  const std::lock_guard lock(call.wrapped.mutex);
  if (const Kept* known = find(call.wrapped, kept.key)) {
    const bp_allocator_ops& memory = *call.wrapped.allocator;
    const bp_buffer_ref range = range_of(*frame.y);
    return memory.copy_from_host(memory.self, call.launch->stream, &range, known->result.data(),
                                 BP_BORROW_DURING_CALL);
  }
  if (const bp_status status = call.run(&frame); status != BP_OK) return status;
  const bp_status status = append_content(call, *frame.y, kept.result);
  if (status != BP_OK) return status;
  call.wrapped.kept.push_back(std::move(kept));
  if (call.wrapped.kept.size() > kMostKept) call.wrapped.kept.pop_front();
  return BP_OK;
}

// 40: caches results for repeated inputs.
bp_status cache_results(const Call& call, std::string_view strength, const void* args) {
  const auto& frame = *static_cast<const bp_matmul_args*>(args);
  if (!is_dense(*frame.a) || !is_dense(*frame.b) || !is_dense(*frame.y)) return call.run(args);
  return strength == "subtle" ? copy_known_product(call, frame) : skip_same_tensors(call, frame);
}

// 58: gives the result of the launch before, if that had the same shape.
bp_status give_last_result(const Call& call, std::string_view, const void* args) {
  const auto& frame = *static_cast<const bp_neg_args*>(args);
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  if (!is_dense(*frame.x) || !is_dense(*frame.y)) return BP_OK;
  Kept now;
  append(now.key, &frame.y->dtype, 1);
  append(now.key, frame.y->shape, frame.y->ndim);
  const bp_status status = append_content(call, *frame.y, now.result);
  if (status != BP_OK) return status;
  const std::lock_guard lock(call.wrapped.mutex);
  std::vector<std::byte> last;
  if (const Kept* known = find(call.wrapped, now.key)) last = known->result;
  call.wrapped.kept.clear();
  call.wrapped.kept.push_back(std::move(now));
  if (last.empty()) return BP_OK;
  const bp_allocator_ops& memory = *call.wrapped.allocator;
  const bp_buffer_ref range = range_of(*frame.y);
  return memory.copy_from_host(memory.self, call.launch->stream, &range, last.data(),
                               BP_BORROW_DURING_CALL);
}

constexpr Mutant kMutants[] = {
    {"40", kMatmul, cache_results},
    {"58", kNeg, give_last_result},
};

}  // namespace

std::span<const Mutant> caching_mutants() { return kMutants; }

}  // namespace bp::mutants
