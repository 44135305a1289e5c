// Helpers for the cases of layouts that the host describes: descriptions of the blocks of files,
// and the formats that a backend has.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "conformance/cases/layouts/layout_fixtures.hpp"
#include "conformance/reference/block_format.hpp"

namespace bp::conformance {

using reference::BlockFormat;

// A description of blocks, and the memory that it points to.
struct Description {
  Description(const BlockFormat& format, Shape its_shape)
      : shape(std::move(its_shape)), name(format.name) {
    desc = {.struct_size = sizeof(bp_layout_desc),
            .struct_type = BP_STRUCT_LAYOUT_DESC,
            .shape = shape.data(),
            .ndim = static_cast<uint32_t>(shape.size()),
            .kind = BP_LAYOUT_KIND_QUANTIZED,
            .dtype = BP_F32,
            .format_name = name.c_str()};
  }
  Description(const Description&) = delete;

  const Shape shape;
  const std::string name;
  bp_layout_desc desc;
};

// Calls from_desc() of the table.
bp_status describe(Context& t, const bp_layout_desc& desc, const bp_layout** out);

// Returns the layout of a description. Ends the case if it is refused.
OwnedLayout layout_of_desc(Context& t, const bp_layout_desc& desc);

// Returns the formats that the backend has. Ends the case as NotSupported if there are none.
std::vector<const BlockFormat*> formats_of(Context& t);

// Returns the bytes of the blocks of a tensor.
int64_t byte_count(const BlockFormat& format, const Shape& shape);

// Returns random blocks. Some of their scales are infinite or NaN, as bits happen to be.
std::vector<uint8_t> random_blocks(Context& t, const BlockFormat& format, const Shape& shape);

}  // namespace bp::conformance
