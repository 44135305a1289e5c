// bp_layout_ops: the blocks that files hold. The device converts them (kernels/blocks.cpp).
#include <optional>
#include <string>

#include "backends/vulkan/backend.hpp"
#include "backends/vulkan/device.hpp"
#include "backends/vulkan/kernels/blocks.hpp"
#include "backends/vulkan/memory.hpp"
#include "backends/vulkan/stream.hpp"
#include "backplane/shell/block_product.hpp"
#include "backplane/shell/layout_front.hpp"

namespace bp::vulkan {
namespace {

// Stands for a kernel in the texts of a conversion.
constexpr bp_kernel kConvert{.name = "layout.convert"};

struct LayoutTraits : Cards<Instance, Device> {
  static constexpr int64_t kMostItemBytes = 8;  // submit_move() takes no larger ones.
  static constexpr bool kConvertsPacked = false;

  static Stream& stream_of(bp_stream* handle, const char* call) {
    return vulkan::stream_of(handle, call);
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

  static bp_status convert(const Instance& i, Stream& stream, const Conversion& conversion) {
    check_encodes(conversion);
    const bp_launch request{};
    Launch launch(i, kConvert, request, stream);
    const bp_status status = submit_conversion(launch, conversion);
    return status == BP_OK ? launch.submit() : status;
  }
};

}  // namespace

const Layouts* MemoryTraits::layouts_of(const Instance& i) { return i.layouts.get(); }

void make_layouts(Instance& i) {
  offer_layouts<LayoutTraits>(i, "backplane.vulkan 0.1.0, blocks 1");
}

}  // namespace bp::vulkan
