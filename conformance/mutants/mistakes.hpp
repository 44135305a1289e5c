// Mistakes in the kernels of single ops: a mutant has a table of them, and its strength names one.
// Beside the table this file has what several mistakes are made of.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "conformance/mutants/values.hpp"

namespace bp::mutants {

struct Mistake {
  std::string_view strength;
  uint32_t op;
  bp_status (*launch)(const Call& call, const void* args);
};

// Returns the row of the strength, or NULL if there is none.
template <typename Row, size_t kCount>
const Row* find(const Row (&rows)[kCount], std::string_view strength) {
  const Row* const found = std::ranges::find(rows, strength, &Row::strength);
  return found == std::end(rows) ? nullptr : found;
}

// Returns whether the strength names a row of this op.
template <const auto& kRows>
bool has_row(uint32_t op, std::string_view strength) {
  const auto* const found = find(kRows, strength);
  return found != nullptr && found->op == op;
}

template <const auto& kMistakes>
bp_status make_mistake(const Call& call, std::string_view strength, const void* args) {
  return find(kMistakes, strength)->launch(call, args);
}

// Calls a mistake that takes the frame of its op.
template <typename Args>
Args frame_type(bp_status (*launch)(const Call&, const Args&));
template <auto kLaunch>
bp_status on_frame(const Call& call, const void* args) {
  return kLaunch(call, *static_cast<const decltype(frame_type(kLaunch))*>(args));
}

// ---- Elements that are not written --------------------------------------------------------------

// Launches, and gives the elements for which is_left(i) holds the bits back that they had before,
// as if the kernel did not write them.
template <typename IsLeft>
bp_status leave_elements(const Call& call, const void* args, const bp_tensor& output,
                         IsLeft is_left) {
  const Values before(call, output);
  if (before.status() != BP_OK) return before.status();
  if (const bp_status status = call.run(args); status != BP_OK) return status;
  Values after(call, output);
  for (size_t i = 0; i < after.size(); ++i) {
    if (is_left(i)) after.set_bits(i, before.bits(i));
  }
  return after.write();
}

// ---- Inputs with other elements -----------------------------------------------------------------

// The workspace of mutants that give the good kernel a changed copy of an input.
constexpr uint64_t kCopyBytes = 1 << 16;

// A dense copy of a tensor at the end of the workspace, behind what the good kernel asked for.
class InputCopy {
 public:
  InputCopy(const Call& call, const bp_tensor& tensor);

  [[nodiscard]] bp_status status() const { return status_; }
  const bp_tensor* get() const { return &tensor_; }
  Values& values() { return values_; }

  // Returns whether the workspace of a mutant has room for a copy of the tensor.
  static bool fits(const bp_tensor& tensor);

 private:
  std::array<int64_t, BP_MAX_RANK> strides_{};
  bp_tensor tensor_;
  Values values_;
  bp_status status_;
};

// Calls launch(tensor) with a copy of the tensor whose elements edit(Values&) has changed. A tensor
// that the workspace has no room for stays as it is.
template <typename Edit, typename Launch>
bp_status with_edited(const Call& call, const bp_tensor& tensor, Edit edit, Launch launch) {
  if (!InputCopy::fits(tensor)) return launch(&tensor);
  InputCopy copy(call, tensor);
  if (copy.status() != BP_OK) return copy.status();
  edit(copy.values());
  const bp_status status = copy.values().write();
  return status == BP_OK ? launch(copy.get()) : status;
}

}  // namespace bp::mutants
