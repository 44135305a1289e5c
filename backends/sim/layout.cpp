// bp_layout_ops of the simulated device: tiles (tiles.hpp), and the blocks of files.
#include "backends/sim/layout.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "backends/host_kernels/block_codec.hpp"
#include "backends/sim/backend.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/ops.h"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/layout_front.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::sim {
namespace {

// The variants of a form of kind TILED.
constexpr uint32_t kPreferred = 1, kOnly = 2;
constexpr uint64_t kTileAlignmentBytes = 64;

struct TiledOp {
  uint32_t op;
  uint32_t tiled, in_blocks;  // Bit i is tensor argument i.
};

// What kernels take besides strides. The bias and the preactivation of linear are never in tiles,
// and no output is in blocks.
constexpr TiledOp kTiledOps[] = {{BP_OP_COPY, 0b11, 0b1},
                                 {BP_OP_ADD, 0b111, 0b11},
                                 {BP_OP_MATMUL, 0b111, 0b11},
                                 {BP_OP_LINEAR, 0b1011, 0b11}};

// Returns the number of tensor arguments of an op.
uint32_t argument_count(uint32_t op) {
  return static_cast<uint32_t>(std::ranges::count_if(frame_members(op), &FrameMember::is_argument));
}

const TiledOp* find_tiled(uint32_t op) {
  const auto* const row = std::ranges::find(kTiledOps, op, &TiledOp::op);
  return row == std::end(kTiledOps) ? nullptr : row;
}

bool is_in_blocks(const bp_tensor& tensor) {
  return tensor.layout != nullptr && tensor.layout->kind == BP_LAYOUT_KIND_QUANTIZED;
}

Elements dense_elements(const Extents& extents, std::vector<float>& memory) {
  Elements dense{.address = reinterpret_cast<std::byte*>(memory.data())};
  set_contiguous_strides(extents.ndim, extents.shape, dense.strides);
  return dense;
}

uint32_t tile_variant(const Instance& i) { return takes_tiles_alone(i) ? kOnly : kPreferred; }

// Returns "tiles of 32x32 over 4 banks".
std::string tile_name(const Instance& i) {
  const TileForm& form = tile_form(i);
  const std::string extent = std::to_string(form.extent);
  const std::string banks = form.banks == 1 ? "" : " over " + std::to_string(form.banks) + " banks";
  return "tiles of " + extent + "x" + extent + banks;
}

// Returns the extents of a tile, which has one element along all axes but the last two.
std::array<int64_t, BP_MAX_RANK> tile_shape(const Instance& i, uint32_t ndim) {
  std::array<int64_t, BP_MAX_RANK> shape;
  shape.fill(1);
  for (uint32_t axis = ndim < 2 ? 0 : ndim - 2; axis < ndim; ++axis) {
    shape[axis] = tile_form(i).extent;
  }
  return shape;
}

struct LayoutTraits : Cards<Instance, Device> {
  static constexpr int64_t kMostItemBytes = 16;
  static constexpr bool kConvertsPacked = true;

  static Stream& stream_of(bp_stream* handle, const char* call) {
    return sim::stream_of(handle, call);
  }

  static LayoutFacts facts_of(const Instance& i, const LayoutForm& form) {
    if (form.kind == BP_LAYOUT_KIND_QUANTIZED) return block_facts(form);
    const int64_t bits = dtype_size_bits(form.dtype);
    if (form.kind != BP_LAYOUT_KIND_TILED || form.variant != tile_variant(i) || bits == 0) {
      refuse(BP_INCOMPATIBLE, "the layout is none of " + tile_name(i));
    }
    const Tiles tiles = Tiles::of(tile_form(i), form.ndim, form.shape.data());
    LayoutFacts facts{tile_name(i), static_cast<uint64_t>(tiles.size_bytes(bits)),
                      kTileAlignmentBytes};
    facts.block_shape = tile_shape(i, form.ndim);
    return facts;
  }

  static std::optional<LayoutForm> described_form(const Instance& i, const bp_layout_desc& desc) {
    if (desc.kind == BP_LAYOUT_KIND_QUANTIZED) return block_form(desc);
    const auto tile = tile_shape(i, desc.ndim);
    const bool is_ours = std::equal(tile.begin(), tile.begin() + desc.ndim, desc.block_shape) &&
                         dtype_size_bits(desc.dtype) != 0;
    if (!is_ours) return std::nullopt;
    LayoutForm form{.kind = BP_LAYOUT_KIND_TILED, .variant = tile_variant(i), .dtype = desc.dtype};
    form.ndim = desc.ndim;
    std::copy_n(desc.shape, desc.ndim, form.shape.begin());
    return form;
  }

  static std::string described_layouts(const Instance& i) {
    return tile_name(i) + ", " + block_format_names();
  }

  // What already lies in blocks that the kernel takes stays there.
  static std::optional<LayoutForm> preferred_form(const Instance& i,
                                                  const LayoutQuestion& question) {
    const bool takes_tiles = (tiled_arguments(i, question.kernel.op) >> question.argument & 1) != 0;
    if (!takes_tiles || question.tensor == nullptr) return std::nullopt;
    const bool takes_blocks =
        (block_arguments(i, question.kernel.op) >> question.argument & 1) != 0;
    if (takes_blocks && is_in_blocks(*question.tensor)) {
      return i.layouts->form_of(*question.tensor, "layout.preferred");
    }
    return form_like(*question.tensor, BP_LAYOUT_KIND_TILED, tile_variant(i));
  }

  static bp_status convert(const Instance& i, Stream& stream, const Conversion& conversion) {
    const auto& [dst, src, dst_form, src_form] = conversion;
    kernels::check_encodes(dst_form, src_form);
    if (element_count(dst) == 0) {
      return submit_work(stream, {BP_ACTIVITY_COPY, "convert"}, {}, [] {});
    }
    const Use to = use_of_tensor(dst, Access::kWrite, stream, "layout.convert", "dst");
    const Use from = use_of_tensor(src, Access::kRead, stream, "layout.convert", "src");
    const Extents extents = extents_of(dst);
    const Side to_side = side_of(i, dst, dst_form, to), from_side = side_of(i, src, src_form, from);
    return submit_work(stream, {BP_ACTIVITY_COPY, "convert", to.size_bytes + from.size_bytes},
                       {to, from}, [=] { run_conversion(extents, to_side, from_side); });
  }
};

}  // namespace

const TileForm& tile_form(const Instance& i) {
  return takes_tiles_alone(i) ? kOnlyTiles : kPreferredTiles;
}

bool takes_tiles_alone(const Instance& i) { return i.options.layouts == LayoutMode::kOnly; }

uint32_t tiled_arguments(const Instance& i, uint32_t op) {
  if (takes_tiles_alone(i)) return (uint32_t{1} << argument_count(op)) - 1;
  const TiledOp* const row = find_tiled(op);
  return row == nullptr ? 0 : row->tiled;
}

uint32_t block_arguments(const Instance& i, uint32_t op) {
  const TiledOp* const row = takes_tiles_alone(i) ? nullptr : find_tiled(op);
  return row == nullptr ? 0 : row->in_blocks;
}

Extents extents_of(const bp_tensor& tensor) {
  Extents extents{.ndim = tensor.ndim, .item_bits = dtype_size_bits(tensor.dtype)};
  std::copy_n(tensor.shape, tensor.ndim, extents.shape);
  return extents;
}

Use use_of_tensor(const bp_tensor& tensor, Access access, const Stream& stream, const char* call,
                  const char* what) {
  const Buffer& b = buffer_of(tensor.buffer, call, what);
  if (&b.device->card() != &stream.device->card()) refuse_two_devices(call, what);
  const std::string subject = std::string(call) + ": " + what;
  const Extent extent = extent_in_buffer(tensor, b.size_bytes, subject.c_str());
  const auto begin = static_cast<uint64_t>(extent.begin);
  const auto size_bytes = static_cast<uint64_t>(extent.end) - begin;
  return use_of({tensor.buffer, begin, size_bytes}, access, call, what);
}

Side side_of(const Instance& i, const bp_tensor& tensor, const std::optional<LayoutForm>& form,
             const Use& range) {
  Side side{.elements = {.address = range.address() - extent_of(tensor).begin},
            .size_bytes = range.size_bytes};
  if (!form) {
    std::copy_n(tensor.strides, tensor.ndim, side.elements.strides);
  } else if (form->kind == BP_LAYOUT_KIND_QUANTIZED) {
    side.format = find_block_format(form->variant);
  } else {
    side.elements.tiles = &tile_form(i);
  }
  return side;
}

void run_conversion(const Extents& extents, const Side& dst, const Side& src) {
  if (dst.format == nullptr && src.format == nullptr) {
    copy_elements(extents, dst.elements, src.elements);
    return;
  }
  if (dst.format == src.format) {
    std::memmove(dst.elements.address, src.elements.address, dst.size_bytes);
    return;
  }
  const int64_t count = element_count(extents.ndim, extents.shape);
  std::vector<float> memory(static_cast<size_t>(count));
  const Elements dense = dense_elements(extents, memory);
  if (src.format != nullptr) {
    kernels::decode_blocks(*src.format, src.elements.address, memory.data(), count, 1);
  } else {
    copy_elements(extents, dense, src.elements);
  }
  if (dst.format != nullptr) {
    kernels::encode_blocks(*dst.format, memory.data(), dst.elements.address, count, 1);
  } else {
    copy_elements(extents, dst.elements, dense);
  }
}

void make_layouts(Instance& i) {
  if (i.options.layouts == LayoutMode::kNone) return;
  offer_layouts<LayoutTraits>(i, "backplane.sim 0.1.0, tiles 1");
  if (takes_tiles_alone(i)) {
    i.program_kernels = i.kernels;
    i.program_kernels.push_back(copy_between_layouts(i));
  }
  for (bp_kernel& kernel : i.kernels) {
    if (tiled_arguments(i, kernel.op) != 0) put_tiles(i, kernel);
  }
}

}  // namespace bp::sim
