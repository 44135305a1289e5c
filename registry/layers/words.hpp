// Values of the boundary in words, for reports and traces. Nothing here calls a backend.
#pragma once

#include <string>

#include "backplane/backend.h"

namespace bp::layers {

// "0x55d0c8"; "NULL".
std::string words(const void* handle);

// "0x55d0c8[512, 1024)": the buffer, and the bytes in it.
std::string words(const bp_buffer_ref& range);

// "f32[2, 3] at 0x55d0c8+512"; strides follow where the tensor is not contiguous.
std::string words(const bp_tensor& tensor);

// "out of memory".
std::string status_words(bp_status status);

// "a f32[2, 3] at ..., y f32[2, 3] at ...", for a frame of at least this build's size.
std::string frame_words(uint32_t op, const void* args);

// "add" or "op 700".
std::string op_words(uint32_t op);

}  // namespace bp::layers
