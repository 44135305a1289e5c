// bp_layout_ops of the simulated device: tiles of 16 by 16.
#include "backends/sim/layout.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "backends/sim/backend.hpp"
#include "backends/sim/memory.hpp"
#include "backplane/ops.h"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/frame.hpp"
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

LayoutFacts facts_of(const LayoutForm& form) {
  const int64_t item = dtype_size_bytes(form.dtype);
  if (form.kind != BP_LAYOUT_KIND_TILED || form.variant != kTiled || item == 0) {
    refuse(BP_INCOMPATIBLE, "the layout is none of tiles of 16x16");
  }
  const int64_t size_bytes = Tiles::of(form.ndim, form.shape.data()).size_bytes(item);
  return {"tiles of 16x16", static_cast<uint64_t>(size_bytes),
          std::max<uint64_t>(kTileAlignmentBytes, static_cast<uint64_t>(item))};
}

Layouts& layouts_of(void* self) { return *instance(self).layouts; }

// Returns whether this instance registered `kernel`.
bool is_own(const Instance& i, const bp_kernel* kernel) {
  return std::ranges::any_of(i.kernels, [&](const bp_kernel& own) { return &own == kernel; });
}

// Returns the tensor argument `argument` of a frame, or NULL if it is not given.
const bp_tensor* tensor_of(const bp_kernel& kernel, uint32_t argument, const void* args) {
  uint32_t count = 0;
  for (const FrameMember& member : frame_members()) {
    const bool is_list = member.is_list() && !member.is_numbers();
    if (member.op != kernel.op || !(member.is_tensor() || is_list)) continue;
    if (count++ != argument) continue;
    // No op with lists takes tiles.
    if (is_list) return nullptr;
    return *reinterpret_cast<const bp_tensor* const*>(static_cast<const std::byte*>(args) +
                                                      member.offset);
  }
  refuse(BP_INVALID_ARGUMENT, "layout.preferred: argument is " + std::to_string(argument) + ", " +
                                  op_name(kernel.op) + " has " + std::to_string(count) +
                                  " tensor arguments");
}

bp_status preferred(void* self, bp_device* device, const bp_kernel* kernel, uint32_t argument,
                    const void* args, const bp_layout** out_layout) {
  return entry<Instance>(self, [&](const Instance& i) {
    device_of(i, device, "layout.preferred");
    require(kernel, "layout.preferred: kernel");
    require(args, "layout.preferred: args");
    require(out_layout, "layout.preferred: out_layout");
    const bp_layout* layout = nullptr;
    // A kernel that was not registered here is the kernel of a compiled program, which takes
    // strides.
    if (is_own(i, kernel)) {
      const bp_tensor* const tensor = tensor_of(*kernel, argument, args);
      const bool takes_tiles = (tiled_arguments(kernel->op) >> argument & 1) != 0;
      if (takes_tiles && tensor != nullptr) layout = i.layouts->make(tiled_form(*tensor));
    }
    *out_layout = layout;
    return BP_OK;
  });
}

bp_status from_blob(void* self, bp_device* device, const void* blob, uint64_t blob_size_bytes,
                    const bp_layout** out_layout) {
  return entry<Instance>(self, [&](const Instance& i) {
    device_of(i, device, "layout.from_blob");
    return i.layouts->from_blob(blob, blob_size_bytes, out_layout);
  });
}

bp_status convert(void* self, bp_stream* handle, const bp_tensor* dst, const bp_tensor* src) {
  return entry<Instance>(self, [&](const Instance& i) -> bp_status {
    Stream& stream = stream_of(handle, "layout.convert");
    if (i.captures->is_capturing(handle)) return i.captures->refuse("layout.convert");
    const Conversion conversion = i.layouts->read_conversion(dst, src);
    const Extents extents = extents_of(conversion.dst);
    if (extents.item_bytes == 0) {
      refuse(BP_UNSUPPORTED, "layout.convert: dtype " + std::to_string(dst->dtype) +
                                 " has elements that are no whole bytes");
    }
    if (element_count(*dst) == 0)
      return submit_work(stream, {BP_ACTIVITY_COPY, "convert"}, {}, [] {});
    const Use to = use_of_tensor(*dst, Access::kWrite, stream, "layout.convert", "dst");
    const Use from = use_of_tensor(*src, Access::kRead, stream, "layout.convert", "src");
    const Elements dst_elements = elements_of(*dst, to), src_elements = elements_of(*src, from);
    return submit_work(stream, {BP_ACTIVITY_COPY, "convert", to.size_bytes + from.size_bytes},
                       {to, from}, [=] { copy_elements(extents, dst_elements, src_elements); });
  });
}

}  // namespace

LayoutForm tiled_form(const bp_tensor& tensor) {
  return form_like(tensor, BP_LAYOUT_KIND_TILED, kTiled);
}

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
  i.layouts = std::make_unique<Layouts>(LayoutBackend{
      .host = i.host, .identity = "backplane.sim 0.1.0, tiles 1", .facts_of = facts_of});
  i.layout_table = layout_table<layouts_of>();
  i.layout_table.self = &i;
  i.layout_table.preferred = preferred;
  i.layout_table.from_blob = from_blob;
  i.layout_table.convert = convert;
  for (bp_kernel& kernel : i.kernels) {
    if (tiled_arguments(kernel.op) != 0) put_tiles(kernel);
  }
}

}  // namespace bp::sim
