#include "backplane/shell/block_layout.hpp"

#include <algorithm>
#include <iterator>

#include "backplane/shell/boundary.hpp"
#include "backplane/shell/first_size.hpp"
#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

constexpr BlockFormat kFormats[] = {
#define BP_BLOCK_FORMAT(id, number, name, elements, bytes, scale_dtype) \
  {number, name, elements, bytes, scale_dtype},
#include "backplane/block_formats.def"
};

[[noreturn]] void refuse_desc(bp_status status, const std::string& why) {
  throw StatusError(status, why);
}

[[noreturn]] void invalid(const std::string& why) { refuse_desc(BP_INVALID_ARGUMENT, why); }

void check_shape(const bp_layout_desc& desc) {
  if (desc.ndim > BP_MAX_RANK) {
    invalid("ndim is " + std::to_string(desc.ndim) + "; at most " + std::to_string(BP_MAX_RANK) +
            " is allowed");
  }
  if (desc.ndim != 0 && desc.shape == nullptr) invalid("shape is NULL");
  for (uint32_t axis = 0; axis < desc.ndim; ++axis) {
    if (desc.shape[axis] < 0) {
      invalid("shape is " + shape_text(desc.ndim, desc.shape) + "; extents are 0 or more");
    }
    if (desc.block_shape != nullptr && desc.block_shape[axis] < 1) {
      invalid("block_shape is " + shape_text(desc.ndim, desc.block_shape) +
              "; extents of a block are 1 or more");
    }
  }
}

void check_tiles(const bp_layout_desc& desc) {
  if (desc.ndim != 0 && desc.block_shape == nullptr) {
    invalid("block_shape is NULL, and a layout of kind TILED has no format that says it");
  }
  if (desc.format_name != nullptr || desc.scale_dtype != 0) {
    invalid("a layout of kind TILED has a format_name or a scale_dtype; they are for QUANTIZED");
  }
}

// Returns "(1, 32) of ggml.q4_0" for a text.
std::string block_text(const BlockFormat& format, const int64_t* block_shape, uint32_t ndim) {
  return shape_text(ndim, block_shape) + ", as of " + format.name;
}

// Writes what the format says into `desc`, and checks what the caller says against it.
void complete(bp_layout_desc& desc, const BlockFormat& format,
              int64_t (&block_shape)[BP_MAX_RANK]) {
  if (desc.dtype != BP_F32) {
    invalid("dtype is " + std::to_string(desc.dtype) + "; the decoded dtype of a layout of kind " +
            "QUANTIZED is f32 (" + std::to_string(BP_F32) + ")");
  }
  if (desc.ndim == 0) invalid("ndim is 0; the blocks of kind QUANTIZED need a last axis");
  std::fill_n(block_shape, desc.ndim, int64_t{1});
  block_shape[desc.ndim - 1] = format.elements;
  if (desc.block_shape != nullptr &&
      !std::equal(block_shape, block_shape + desc.ndim, desc.block_shape)) {
    invalid("block_shape is " + shape_text(desc.ndim, desc.block_shape) + ", not " +
            block_text(format, block_shape, desc.ndim));
  }
  if (desc.scale_dtype != 0 && desc.scale_dtype != format.scale_dtype) {
    invalid("scale_dtype is " + std::to_string(desc.scale_dtype) + ", not " +
            std::to_string(format.scale_dtype) + ", as of " + format.name);
  }
  if (desc.shape[desc.ndim - 1] % format.elements != 0) {
    invalid("shape is " + shape_text(desc.ndim, desc.shape) +
            ", and its last extent is no multiple of the " + std::to_string(format.elements) +
            " elements of a block of " + format.name);
  }
  desc.block_shape = block_shape;
  desc.scale_dtype = format.scale_dtype;
  desc.format_name = format.name;
}

// Returns the description with what its format says. The caller adds the subject of the texts.
bp_layout_desc completed(bp_layout_desc desc, int64_t (&block_shape)[BP_MAX_RANK]) {
  check_shape(desc);
  if (desc.kind == BP_LAYOUT_KIND_TILED) {
    check_tiles(desc);
    return desc;
  }
  if (desc.kind != BP_LAYOUT_KIND_QUANTIZED) {
    refuse_desc(BP_UNSUPPORTED, "kind is " + std::to_string(desc.kind) +
                                    "; only TILED and QUANTIZED layouts are described");
  }
  if (desc.format_name == nullptr) {
    invalid("format_name is NULL, and a layout of kind QUANTIZED has a format: " +
            block_format_names());
  }
  const BlockFormat* const format = find_block_format(desc.format_name);
  if (format == nullptr) {
    refuse_desc(BP_UNSUPPORTED, "format_name is \"" + std::string(desc.format_name) +
                                    "\"; known are " + block_format_names());
  }
  complete(desc, *format, block_shape);
  return desc;
}

}  // namespace

std::span<const BlockFormat> block_formats() { return kFormats; }

const BlockFormat* find_block_format(std::string_view name) {
  const auto* const found = std::ranges::find(kFormats, name, &BlockFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

const BlockFormat* find_block_format(uint32_t number) {
  const auto* const found = std::ranges::find(kFormats, number, &BlockFormat::number);
  return found == std::end(kFormats) ? nullptr : found;
}

std::string block_format_names() {
  std::string names;
  for (const BlockFormat& format : kFormats) {
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  return names;
}

bp_layout_desc read_layout_desc(const bp_layout_desc* theirs, int64_t (&block_shape)[BP_MAX_RANK],
                                const std::string& subject) {
  if (theirs == nullptr) throw StatusError(BP_INVALID_ARGUMENT, subject + ": it is NULL");
  const bp_layout_desc desc = read_desc(theirs, kFirstSize<bp_layout_desc>, BP_STRUCT_LAYOUT_DESC,
                                        subject.c_str(), "the description");
  try {
    return completed(desc, block_shape);
  } catch (const StatusError& e) {
    throw StatusError(e.status(), subject + ": " + e.what());
  }
}

LayoutForm block_form(const bp_layout_desc& desc) {
  LayoutForm form{.kind = BP_LAYOUT_KIND_QUANTIZED,
                  .variant = find_block_format(desc.format_name)->number,
                  .dtype = desc.dtype,
                  .ndim = desc.ndim};
  std::copy_n(desc.shape, desc.ndim, form.shape.begin());
  return form;
}

LayoutFacts block_facts(const LayoutForm& form) {
  const BlockFormat* const format =
      form.kind == BP_LAYOUT_KIND_QUANTIZED ? find_block_format(form.variant) : nullptr;
  const bool is_known = format != nullptr && form.dtype == BP_F32 && form.ndim != 0 &&
                        form.shape[form.ndim - 1] % format->elements == 0;
  if (!is_known) {
    throw StatusError(BP_INCOMPATIBLE,
                      "the layout has none of the formats " + block_format_names());
  }
  std::array<int64_t, BP_MAX_RANK> blocks = form.shape;
  blocks[form.ndim - 1] /= format->elements;
  LayoutFacts facts{.name = format->name};
  facts.physical_size_bytes =
      static_cast<uint64_t>(dense_size_bytes(form.ndim, blocks.data(), format->bytes));
  facts.alignment_bytes = static_cast<uint64_t>(format->bytes & -format->bytes);
  facts.block_shape.fill(1);
  facts.block_shape[form.ndim - 1] = format->elements;
  facts.scale_dtype = format->scale_dtype;
  facts.format_name = format->name;
  return facts;
}

}  // namespace bp
