// Turns values of the boundary into text, for reports and traces. No function here calls a backend.
#pragma once

#include <string>

#include "backplane/backend.h"

namespace bp::layers {

// Returns "0x55d0c8", or "NULL".
std::string words(const void* handle);

// Returns text like "0x55d0c8[512, 1024)": the buffer, and the bytes in it.
std::string words(const bp_buffer_ref& range);

// Returns text like "f32[2, 3] at 0x55d0c8+512". Strides follow if the tensor is not contiguous.
std::string words(const bp_tensor& tensor);

// Returns text like "out of memory".
std::string status_words(bp_status status);

// Returns text like "a f32[2, 3] at ..., y f32[2, 3] at ...", for a frame of at least this build's
// size.
std::string frame_words(uint32_t op, const void* args);

// Returns text like "axes [0, 1], keepdims 1, reduction mean", for such a frame.
std::string attribute_words(uint32_t op, const void* args);

// Returns "add" or "op 700".
std::string op_words(uint32_t op);

}  // namespace bp::layers
