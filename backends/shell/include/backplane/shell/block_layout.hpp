// Layouts that the host describes (bp_layout_desc), and the formats of blocks that they name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backplane/shell/layout.hpp"

namespace bp {

// One row of backplane/block_formats.def.
struct BlockFormat {
  uint32_t number;
  const char* name;
  int64_t elements, bytes;
  bp_dtype scale_dtype;
};

std::span<const BlockFormat> block_formats();

// Each returns NULL if there is no such format.
const BlockFormat* find_block_format(std::string_view name);
const BlockFormat* find_block_format(uint32_t number);

// Returns the names of all formats, for a text: "ggml.q4_0, ggml.q4_1, ...".
std::string block_format_names();

// Reads a description of the host. The result has no member that is left to the format: its
// block_shape points to `block_shape`. Throws StatusError of BP_INVALID_ARGUMENT or BP_INCOMPATIBLE
// if the description contradicts itself, its format, or divides no block; of BP_UNSUPPORTED if
// nobody knows its format or kind. `subject` begins the text.
bp_layout_desc read_layout_desc(const bp_layout_desc* desc, int64_t (&block_shape)[BP_MAX_RANK],
                                const std::string& subject);

// Returns the form of a description that read_layout_desc() gave, of kind QUANTIZED.
LayoutForm block_form(const bp_layout_desc& desc);

// Returns the facts of a form of kind QUANTIZED. Throws StatusError of BP_INCOMPATIBLE if it is
// none that block_form() makes.
LayoutFacts block_facts(const LayoutForm& form);

}  // namespace bp
