// Tests the table of layouts and the functions of kernels that take them, with a backend whose
// layouts have rows of four elements.
#include "backplane/shell/layout_front.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backplane/ops.h"

namespace bp {
namespace {

struct Card {};

struct Line {
  int conversions = 0;
};

// Keeps the last conversion that a capturing stream got.
struct Recorder {
  bool is_open = false;
  const bp_kernel* kernel = nullptr;
  bp_launch launched{};
  bp_copy_args args{};

  bool is_capturing(bp_stream*) const { return is_open; }

  template <typename Check>
  bp_status launch(const bp_kernel& its_kernel, const bp_launch& its_launch, const void* its_args,
                   const Check& check) {
    kernel = &its_kernel;
    launched = its_launch;
    args = *static_cast<const bp_copy_args*>(its_args);
    return check();
  }
};

struct Machine : HostedInstance {
  std::vector<bp_kernel> kernels;
  std::unique_ptr<Card> device = std::make_unique<Card>();
  std::unique_ptr<Recorder> captures = std::make_unique<Recorder>();
  std::unique_ptr<Layouts> layouts;
  bp_layout_ops layout_table{};
};

struct Traits : Cards<Machine, Card> {
  static constexpr int64_t kMostItemBytes = 4;
  static constexpr bool kConvertsPacked = false;

  static Line& stream_of(bp_stream* handle, const char* call) {
    require(handle, call);
    return *reinterpret_cast<Line*>(handle);
  }
  static LayoutFacts facts_of(const Machine&, const LayoutForm& form) {
    if (form.kind == BP_LAYOUT_KIND_QUANTIZED) return block_facts(form);
    if (form.kind != BP_LAYOUT_KIND_TILED) refuse(BP_INCOMPATIBLE, "no rows of four");
    return {"rows of four", 64, 1};
  }
  static std::optional<LayoutForm> preferred_form(const Machine&, const LayoutQuestion& question) {
    if (question.argument != 1 || question.tensor == nullptr) return std::nullopt;
    return form_like(*question.tensor, BP_LAYOUT_KIND_TILED, 1);
  }
  static std::optional<LayoutForm> described_form(const Machine&, const bp_layout_desc& desc) {
    if (desc.kind != BP_LAYOUT_KIND_QUANTIZED) return std::nullopt;
    return block_form(desc);
  }
  static std::string described_layouts(const Machine&) { return block_format_names(); }
  static bp_status convert(const Machine&, Line& line, const Conversion& conversion) {
    line.conversions += conversion.dst_form && !conversion.src_form ? 1 : 100;
    return BP_OK;
  }
};

class LayoutFront : public testing::Test {
 protected:
  LayoutFront() {
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<LayoutFront*>(self)->text = reason;
      return status;
    };
    machine.kernels.resize(1);
    machine.kernels[0].op = BP_OP_ADD;
    machine.kernels[0].state = &machine;
    offer_layouts<Traits>(machine, "rows 1");
  }

  bp_status preferred(const bp_kernel* kernel, uint32_t argument) {
    return ops.preferred(ops.self, card, kernel, argument, &args, &layout);
  }

  bp_host host{};
  std::string text;
  Machine machine{{&host}};
  const bp_layout_ops& ops = machine.layout_table;
  bp_device* const card = Traits::device_at(machine, 0);
  const int64_t shape[1] = {4}, strides[1] = {1};
  bp_tensor tensor{.buffer = reinterpret_cast<bp_buffer*>(&host),
                   .shape = shape,
                   .strides = strides,
                   .ndim = 1,
                   .dtype = BP_F32};
  bp_add_args args{.struct_size = sizeof(args), .a = &tensor, .b = &tensor, .y = &tensor};
  Line line;
  bp_stream* const stream = reinterpret_cast<bp_stream*>(&line);
  const bp_layout* layout = nullptr;
};

TEST_F(LayoutFront, AnswersForTheKernelsOfTheInstanceAlone) {
  ASSERT_EQ(preferred(machine.kernels.data(), 1), BP_OK) << text;
  ASSERT_NE(layout, nullptr);
  EXPECT_STREQ(layout->name, "rows of four");
  EXPECT_EQ(ops.release(ops.self, layout), BP_OK);
  ASSERT_EQ(preferred(machine.kernels.data(), 0), BP_OK) << text;
  EXPECT_EQ(layout, nullptr);
  const bp_kernel other = machine.kernels[0];
  ASSERT_EQ(preferred(&other, 1), BP_OK) << text;
  EXPECT_EQ(layout, nullptr);
}

TEST_F(LayoutFront, RefusesQuestionsThatMeanNothing) {
  EXPECT_EQ(preferred(machine.kernels.data(), 3), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "layout.preferred: argument is 3, add has 3 tensor arguments");
  EXPECT_EQ(preferred(nullptr, 0), BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "layout.preferred: kernel is NULL");
  EXPECT_EQ(ops.preferred(ops.self, nullptr, machine.kernels.data(), 0, &args, &layout),
            BP_INVALID_ARGUMENT);
  EXPECT_EQ(text, "layout.preferred: device is NULL or not one of this backend");
}

TEST_F(LayoutFront, MakesAnEqualLayoutFromABlob) {
  ASSERT_EQ(preferred(machine.kernels.data(), 1), BP_OK) << text;
  const bp_layout* again = nullptr;
  ASSERT_EQ(ops.from_blob(ops.self, card, layout->blob, layout->blob_size_bytes, &again), BP_OK)
      << text;
  uint32_t is_equal = 0;
  ASSERT_EQ(ops.equal(ops.self, layout, again, &is_equal), BP_OK);
  EXPECT_EQ(is_equal, 1u);
  EXPECT_EQ(ops.retain(ops.self, layout), BP_OK);
  for (int reference = 0; reference < 3; ++reference) {
    EXPECT_EQ(ops.release(ops.self, layout), BP_OK) << text;
  }
  EXPECT_EQ(ops.release(ops.self, layout), BP_INVALID_ARGUMENT);
}

// Calls from_desc() with a description of rows of q4_0, once `change` has changed it.
template <typename Change>
bp_status describe(const bp_layout_ops& ops, bp_device* card, const Change& change,
                   const bp_layout** out) {
  static constexpr int64_t kShape[2] = {3, 64};
  bp_layout_desc desc{.struct_size = sizeof(desc),
                      .struct_type = BP_STRUCT_LAYOUT_DESC,
                      .shape = kShape,
                      .ndim = 2,
                      .kind = BP_LAYOUT_KIND_QUANTIZED,
                      .dtype = BP_F32,
                      .format_name = "ggml.q4_0"};
  change(desc);
  return ops.from_desc(ops.self, card, &desc, out);
}

TEST_F(LayoutFront, MakesOneLayoutOfEqualDescriptions) {
  const bp_layout* again = nullptr;
  ASSERT_EQ(describe(
                ops, card, [](bp_layout_desc&) {}, &layout),
            BP_OK)
      << text;
  const int64_t block[2] = {1, 32};
  const auto say_all = [&](bp_layout_desc& desc) {
    desc.block_shape = block;
    desc.scale_dtype = BP_F16;
  };
  ASSERT_EQ(describe(ops, card, say_all, &again), BP_OK) << text;
  EXPECT_EQ(layout, again);
  ASSERT_EQ(ops.from_desc(ops.self, card, layout->desc, &again), BP_OK) << text;
  EXPECT_EQ(layout, again);
  EXPECT_EQ(layout->physical_size_bytes, 3u * 2 * 18);
  EXPECT_EQ(layout->alignment_bytes, 2u);
  EXPECT_STREQ(layout->desc->format_name, "ggml.q4_0");
  EXPECT_EQ(layout->desc->block_shape[0], 1);
  EXPECT_EQ(layout->desc->block_shape[1], 32);
  EXPECT_EQ(layout->desc->scale_dtype, BP_F16);
  for (int reference = 0; reference < 3; ++reference) {
    EXPECT_EQ(ops.release(ops.self, layout), BP_OK) << text;
  }
}

TEST_F(LayoutFront, SaysWhatIsWrongWithADescription) {
  const auto expect = [&](bp_status status, const std::string& words, auto change) {
    EXPECT_EQ(describe(ops, card, change, &layout), status);
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_EQ(layout, nullptr);
  };
  const int64_t odd[2] = {64, 3}, wide[2] = {2, 32}, minus[2] = {-1, 32};
  expect(BP_INVALID_ARGUMENT, "shape is [64, 3], and its last extent is no multiple of the 32",
         [&](bp_layout_desc& d) { d.shape = odd; });
  expect(BP_INVALID_ARGUMENT, "extents are 0 or more", [&](bp_layout_desc& d) { d.shape = minus; });
  expect(BP_INVALID_ARGUMENT, "shape is NULL", [&](bp_layout_desc& d) { d.shape = nullptr; });
  expect(BP_INVALID_ARGUMENT, "block_shape is [2, 32], not [1, 32], as of ggml.q4_0",
         [&](bp_layout_desc& d) { d.block_shape = wide; });
  expect(BP_INVALID_ARGUMENT, "scale_dtype is", [](bp_layout_desc& d) { d.scale_dtype = BP_F32; });
  expect(BP_INVALID_ARGUMENT, "the decoded dtype", [](bp_layout_desc& d) { d.dtype = BP_F16; });
  expect(BP_INVALID_ARGUMENT, "ndim is 9", [](bp_layout_desc& d) { d.ndim = 9; });
  expect(BP_INVALID_ARGUMENT, "ndim is 0", [](bp_layout_desc& d) { d.ndim = 0; });
  expect(BP_INVALID_ARGUMENT, "has a format: ggml.q4_0, ",
         [](bp_layout_desc& d) { d.format_name = nullptr; });
  expect(BP_UNSUPPORTED, "format_name is \"ggml.q9\"; known are ggml.q4_0, ",
         [](bp_layout_desc& d) { d.format_name = "ggml.q9"; });
  expect(BP_UNSUPPORTED, "only TILED and QUANTIZED",
         [](bp_layout_desc& d) { d.kind = BP_LAYOUT_KIND_VENDOR; });
  expect(BP_INVALID_ARGUMENT, "kind TILED has a format_name", [&](bp_layout_desc& d) {
    d.kind = BP_LAYOUT_KIND_TILED;
    d.block_shape = wide;
  });
  expect(BP_UNSUPPORTED, "the backend has no such layout; it has ggml.q4_0, ",
         [&](bp_layout_desc& d) {
           d.kind = BP_LAYOUT_KIND_TILED;
           d.block_shape = wide;
           d.format_name = nullptr;
         });
}

TEST_F(LayoutFront, ConvertsWhenACaptureIsReplayed) {
  ASSERT_EQ(preferred(machine.kernels.data(), 1), BP_OK) << text;
  bp_tensor laid = tensor;
  laid.layout = layout;
  EXPECT_EQ(ops.convert(ops.self, stream, &laid, &tensor), BP_OK) << text;
  EXPECT_EQ(line.conversions, 1);
  machine.captures->is_open = true;
  EXPECT_EQ(ops.convert(ops.self, stream, &laid, &tensor), BP_OK) << text;
  EXPECT_EQ(line.conversions, 1) << "the conversion ran while it was captured";
  EXPECT_EQ(ops.convert(ops.self, nullptr, &laid, &tensor), BP_INVALID_ARGUMENT);
  EXPECT_EQ(ops.convert(ops.self, stream, nullptr, &tensor), BP_INVALID_ARGUMENT);
  machine.captures->is_open = false;
  const Recorder& kept = *machine.captures;
  ASSERT_NE(kept.kernel, nullptr);
  EXPECT_NE(kept.kernel->flags & BP_KERNEL_CAPTURABLE, 0u);
  EXPECT_EQ(kept.kernel->launch(kept.kernel, &kept.launched, &kept.args), BP_OK) << text;
  EXPECT_EQ(line.conversions, 2);
}

TEST_F(LayoutFront, DoesNotConvertElementsThatTheBackendDoesNotCopy) {
  for (const bp_dtype dtype : {bp_dtype{BP_F64}, bp_dtype{BP_I4}}) {
    tensor.dtype = dtype;
    EXPECT_EQ(ops.convert(ops.self, stream, &tensor, &tensor), BP_UNSUPPORTED);
    EXPECT_EQ(text, "layout.convert: dtype " + std::to_string(dtype) +
                        " is not converted; allowed are dtypes whose elements have 1 to 4 bytes");
  }
  EXPECT_EQ(line.conversions, 0);
}

// ---- Kernels ------------------------------------------------------------------------------------

bp_kernel make_plain_kernel() {
  bp_kernel kernel{};
  kernel.op = BP_OP_ADD;
  kernel.launch = [](const bp_kernel*, const bp_launch*, const void*) { return bp_status{BP_OK}; };
  kernel.supports = [](const bp_kernel*, bp_device*, bp_launch_flags, const void*) -> bp_reason {
    return nullptr;
  };
  kernel.prepare = [](const bp_kernel*, bp_device*, const bp_prepare_desc*, const void*,
                      bp_plan**) { return bp_status{BP_OK}; };
  return kernel;
}

struct KernelTraits {
  using Instance = Machine;

  static const bp_kernel& plain_kernel(const bp_kernel&) {
    static const bp_kernel kernel = make_plain_kernel();
    return kernel;
  }
  static bool has_layouts(const bp_kernel&, const void* args) {
    return static_cast<const bp_add_args*>(args)->a->layout != nullptr;
  }
  static bp_status launch(const bp_kernel&, const bp_launch&, const void*) { return BP_ABORTED; }
  static uint64_t workspace_size_bytes(const bp_kernel&, bp_device*, bp_launch_flags, const void*) {
    return 64;
  }
  static bp_reason supports(const bp_kernel&, bp_device*, bp_launch_flags, const void* args) {
    if (static_cast<const bp_add_args*>(args)->b->layout != nullptr) refuse(BP_UNSUPPORTED, "b");
    return nullptr;
  }
};

class KernelsWithLayouts : public LayoutFront {
 protected:
  KernelsWithLayouts() {
    kernel = make_plain_kernel();
    kernel.state = &machine;
    LayoutKernel<KernelTraits>::put(kernel);
    laid.layout = &rows;
  }

  uint64_t workspace_size_bytes() {
    uint64_t required = 9, preferred_bytes = 9;
    EXPECT_EQ(kernel.workspace_size(&kernel, card, 0, &args, &required, &preferred_bytes), BP_OK);
    EXPECT_EQ(required, preferred_bytes);
    return required;
  }

  bp_kernel kernel;
  bp_layout rows{};
  bp_tensor laid = tensor;
  bp_launch launch{};
};

TEST_F(KernelsWithLayouts, PassCallsByStridesOn) {
  EXPECT_EQ(kernel.launch(&kernel, &launch, &args), BP_OK);
  EXPECT_EQ(kernel.launch(&kernel, nullptr, nullptr), BP_OK) << "the plain kernel refuses these";
  EXPECT_EQ(workspace_size_bytes(), 0u);
  EXPECT_EQ(kernel.supports(&kernel, card, 0, &args), nullptr);
  EXPECT_EQ(kernel.prepare(&kernel, card, nullptr, &args, nullptr), BP_OK);
}

TEST_F(KernelsWithLayouts, ServeCallsWithLayouts) {
  args.a = &laid;
  EXPECT_EQ(kernel.launch(&kernel, &launch, &args), BP_ABORTED);
  EXPECT_EQ(workspace_size_bytes(), 64u);
  EXPECT_EQ(kernel.supports(&kernel, card, 0, &args), nullptr);
  args.b = &laid;
  EXPECT_STREQ(kernel.supports(&kernel, card, 0, &args),
               "the layout of an argument is not one that the kernel takes in this call");
  EXPECT_EQ(kernel.prepare(&kernel, card, nullptr, &args, nullptr), BP_UNSUPPORTED);
  EXPECT_EQ(text, "no plan is of use: an argument has a layout");
}

TEST_F(KernelsWithLayouts, LackWhatThePlainKernelLacks) {
  kernel.supports = nullptr;
  kernel.prepare = nullptr;
  LayoutKernel<KernelTraits>::put(kernel);
  EXPECT_EQ(kernel.supports, nullptr);
  EXPECT_EQ(kernel.prepare, nullptr);
}

}  // namespace
}  // namespace bp
