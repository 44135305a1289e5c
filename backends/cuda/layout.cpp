// bp_layout_ops: the blocks that files hold. The device converts them (kernels/blocks.cu).
#include <optional>
#include <string>

#include "backends/cuda/backend.hpp"
#include "backends/cuda/device.hpp"
#include "backends/cuda/kernel_env.hpp"
#include "backends/cuda/kernels/blocks.hpp"
#include "backends/cuda/memory.hpp"
#include "backends/cuda/stream.hpp"
#include "backplane/shell/block_product.hpp"
#include "backplane/shell/layout_front.hpp"

namespace bp::cuda {
namespace {

// Submits a conversion; `args` is the frame of a copy. The body of a launch.
bp_status convert_body(const bp_kernel&, const void* args, Launch& launch) {
  const auto& frame = *static_cast<const bp_copy_args*>(args);
  return submit_conversion(launch, launch.instance().layouts->read_conversion(frame.y, frame.x));
}

struct LayoutTraits : Cards<Instance, Device> {
  static constexpr int64_t kMostItemBytes = 8;  // submit_copy() takes no larger ones.
  static constexpr bool kConvertsPacked = false;

  static bp_stream& stream_of(bp_stream* handle, const char* call) {
    static_cast<void>(lane_of(handle, call));
    return *handle;
  }

  static LayoutFacts facts_of(const Instance&, const LayoutForm& form) { return block_facts(form); }

  static std::optional<LayoutForm> described_form(const Instance&, const bp_layout_desc& desc) {
    if (desc.kind != BP_LAYOUT_KIND_QUANTIZED) return std::nullopt;
    return block_form(desc);
  }

  static std::string described_layouts(const Instance&) { return block_format_names(); }

  // A weight stays in blocks that the kernel takes. No kernel prefers blocks to strides.
  static std::optional<LayoutForm> preferred_form(const Instance& i,
                                                  const LayoutQuestion& question) {
    const bool takes_blocks = question.kernel.layout_claims == kWeightInBlocks;
    const bool is_weight = takes_blocks && question.argument == 1 && question.tensor != nullptr &&
                           question.tensor->layout != nullptr;
    if (!is_weight) return std::nullopt;
    return i.layouts->form_of(*question.tensor, "layout.preferred: the weight");
  }

  // The conversion is a launch, so that a stream that is held back keeps it.
  static bp_status convert(const Instance& i, bp_stream& stream, const Conversion& conversion) {
    check_encodes(conversion);
    const bp_copy_args args{
        .struct_size = sizeof(args), .x = &conversion.src, .y = &conversion.dst};
    const bp_launch launch{.stream = &stream};
    return run_launch(&i.layouts->conversion_kernel, &launch, &args, convert_body);
  }
};

}  // namespace

const Layouts* MemoryTraits::layouts_of(const Instance& i) { return i.layouts.get(); }

void make_layouts(Instance& i) { offer_layouts<LayoutTraits>(i, "backplane.cuda 0.1.0, blocks 1"); }

}  // namespace bp::cuda
