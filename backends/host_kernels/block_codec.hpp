// Blocks of the formats of backplane/block_formats.def, decoded to f32 and encoded from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "backplane/shell/block_layout.hpp"

namespace bp::kernels {

// Returns the function that decodes one block.
using DecodeBlock = void(const std::byte* block, float* elements);
DecodeBlock* decoder_of(const BlockFormat& format);

// Decodes the blocks of `count` elements, which is a multiple of the elements of a block. The
// result has the bits that the definition of the format gives (api/docs/layouts.md).
void decode_blocks(const BlockFormat& format, const std::byte* blocks, float* elements,
                   int64_t count, int thread_count);

// Throws StatusError of BP_UNSUPPORTED if a conversion encodes, and encode_blocks() does not know
// the format. The forms are those of layout.hpp's Conversion.
void check_encodes(const std::optional<LayoutForm>& dst, const std::optional<LayoutForm>& src);

// Encodes `count` elements, which are a multiple of the elements of a block. A block with an
// element that is not finite gets unspecified codes.
void encode_blocks(const BlockFormat& format, const float* elements, std::byte* blocks,
                   int64_t count, int thread_count);

}  // namespace bp::kernels
