// Reads a frame through the rows of its op, and refuses it.
#pragma once

#include <cstring>
#include <new>
#include <string>

#include "ops_spec/checks.hpp"
#include "registry/boundary/fail.hpp"

namespace bp::ops {

// Whether refusals on this thread have texts. bp_op_is_valid() needs none.
inline thread_local bool has_refusal_texts = true;

// Calls text() for the sentence. If memory runs out, the text is lost, but not the status.
template <typename Text>
bp_status refuse(const Text& text) noexcept {
  if (!has_refusal_texts) return BP_INVALID_ARGUMENT;
  try {
    return fail(BP_INVALID_ARGUMENT, text());
  } catch (const std::bad_alloc&) {
    return BP_INVALID_ARGUMENT;
  }
}

// Returns text like "softmax: axis" or "sum: axes[1]".
inline std::string head(const Row& row, uint32_t index, int64_t item = kNoItem) {
  std::string text = std::string(row.name) + ": " + row.arguments[index].name;
  if (item != kNoItem) text += "[" + std::to_string(item) + "]";
  return text;
}

template <typename T>
T member(const void* frame, uint32_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(frame) + offset, sizeof(value));
  return value;
}

// The tensors that an argument has: one, those of a list, or none.
struct Tensors {
  const bp_tensor* single;
  const bp_tensor* const* items;
  uint64_t count;
  bool is_list;
  const bp_tensor* operator[](uint64_t i) const { return is_list ? items[i] : single; }

  // Returns the item by which head() names tensor `i`.
  int64_t item(uint64_t i) const { return is_list ? static_cast<int64_t>(i) : kNoItem; }
};

inline Tensors tensors_of(const Argument& argument, const void* frame) {
  switch (argument.kind) {
    case Kind::tensor_list:
    case Kind::out_list:
    case Kind::inout_list:
      return {nullptr, member<const bp_tensor* const*>(frame, argument.offset),
              member<uint64_t>(frame, argument.offset - 8u), true};
    case Kind::tensor:
    case Kind::tensor_opt:
    case Kind::out:
    case Kind::out_opt:
    case Kind::inout:
    case Kind::operand:
    case Kind::scalar_tensor: {
      const auto* single = member<const bp_tensor*>(frame, argument.offset);
      return {single, nullptr, single != nullptr ? 1u : 0u, false};
    }
    default:
      return {nullptr, nullptr, 0, false};
  }
}

inline bool is_tensor(Kind kind) { return kind <= Kind::scalar_tensor; }

inline bool is_output(Kind kind) {
  return kind == Kind::out || kind == Kind::out_opt || kind == Kind::out_list;
}

inline bool is_written(Kind kind) {
  return is_output(kind) || kind == Kind::inout || kind == Kind::inout_list;
}

}  // namespace bp::ops
