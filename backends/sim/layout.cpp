// bp_layout_ops of the simulated device: tiles of 16 by 16.
#include "backends/sim/layout.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "backends/sim/backend.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/ops.h"
#include "backplane/shell/frame.hpp"
#include "backplane/shell/layout_front.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::sim {
namespace {

constexpr uint32_t kTiled = 1;
constexpr uint64_t kTileAlignmentBytes = 64;

struct TiledOp {
  uint32_t op;
  uint32_t arguments;
};

// The bias and the preactivation of linear are never in tiles.
constexpr TiledOp kTiledOps[] = {
    {BP_OP_COPY, 0b11}, {BP_OP_ADD, 0b111}, {BP_OP_MATMUL, 0b111}, {BP_OP_LINEAR, 0b1011}};

struct LayoutTraits : Cards<Instance, Device> {
  static constexpr int64_t kMostItemBytes = 16;

  static Stream& stream_of(bp_stream* handle, const char* call) {
    return sim::stream_of(handle, call);
  }

  static LayoutFacts facts_of(const Instance&, const LayoutForm& form) {
    const int64_t item = dtype_size_bytes(form.dtype);
    if (form.kind != BP_LAYOUT_KIND_TILED || form.variant != kTiled || item == 0) {
      refuse(BP_INCOMPATIBLE, "the layout is none of tiles of 16x16");
    }
    const int64_t size_bytes = Tiles::of(form.ndim, form.shape.data()).size_bytes(item);
    return {"tiles of 16x16", static_cast<uint64_t>(size_bytes),
            std::max<uint64_t>(kTileAlignmentBytes, static_cast<uint64_t>(item))};
  }

  static std::optional<LayoutForm> preferred_form(const Instance&, const LayoutQuestion& question) {
    const bool takes_tiles = (tiled_arguments(question.kernel.op) >> question.argument & 1) != 0;
    if (!takes_tiles || question.tensor == nullptr) return std::nullopt;
    return form_like(*question.tensor, BP_LAYOUT_KIND_TILED, kTiled);
  }

  static bp_status convert(const Instance&, Stream& stream, const Conversion& conversion) {
    const auto& [dst, src, dst_form, src_form] = conversion;
    if (element_count(dst) == 0) {
      return submit_work(stream, {BP_ACTIVITY_COPY, "convert"}, {}, [] {});
    }
    const Use to = use_of_tensor(dst, Access::kWrite, stream, "layout.convert", "dst");
    const Use from = use_of_tensor(src, Access::kRead, stream, "layout.convert", "src");
    return submit_work(stream, {BP_ACTIVITY_COPY, "convert", to.size_bytes + from.size_bytes},
                       {to, from},
                       [extents = extents_of(dst), dst_elements = elements_of(dst, to),
                        src_elements = elements_of(src, from)] {
                         copy_elements(extents, dst_elements, src_elements);
                       });
  }
};

}  // namespace

uint32_t tiled_arguments(uint32_t op) {
  const auto* const row = std::ranges::find(kTiledOps, op, &TiledOp::op);
  return row == std::end(kTiledOps) ? 0 : row->arguments;
}

Extents extents_of(const bp_tensor& tensor) {
  Extents extents{.ndim = tensor.ndim, .item_bytes = dtype_size_bytes(tensor.dtype)};
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

Elements elements_of(const bp_tensor& tensor, const Use& range) {
  Elements elements{.address = range.address() - extent_of(tensor).begin,
                    .is_tiled = tensor.layout != nullptr};
  if (!elements.is_tiled) std::copy_n(tensor.strides, tensor.ndim, elements.strides);
  return elements;
}

void make_layouts(Instance& i) {
  if (!i.options.has_tiles) return;
  offer_layouts<LayoutTraits>(i, "backplane.sim 0.1.0, tiles 1");
  for (bp_kernel& kernel : i.kernels) {
    if (tiled_arguments(kernel.op) != 0) put_tiles(kernel);
  }
}

}  // namespace bp::sim
