// Tests the layers that show less than there is: mask and oldabi.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

struct Masked {
  TestRegistry r;
  FakeBackend fake;
  const bp_dtype rows[3] = {BP_F32, BP_F64, BP_BF16};
  const bp_dtype dtypes[3] = {BP_F32, BP_F64, BP_BF16};
  const char* profiles[2] = {"infer", "train"};
  bp_kernel fast = make_kernel("add.fast"), any = make_kernel("add.any"),
            mul = make_kernel("mul", BP_OP_MUL);
  int64_t shape[1] = {1}, strides[1] = {1};
  float value = 0;
  bp_tensor tensor{.buffer = reinterpret_cast<bp_buffer*>(&value),
                   .shape = shape,
                   .strides = strides,
                   .ndim = 1,
                   .dtype = BP_F32};
  bp_add_args args{.struct_size = sizeof(args), .a = &tensor, .b = &tensor, .y = &tensor};
  const bp_plugin* plugin = nullptr;

  explicit Masked(const char* options, const char* layers = "mask") : r(0, layers, options) {
    fast.dtype_rows = rows;
    fast.dtype_row_count = 3;
    fast.dtype_count = 1;
    fake.kernels = {&fast, &any, &mul};
    bp_device_properties& p = fake.devices[0].properties;
    p.dtypes = dtypes;
    p.dtype_count = 3;
    p.profiles = profiles;
    p.profile_count = 2;
    EXPECT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  }

  std::string kernels() const {
    std::string names;
    for (uint64_t i = 0; i < bp_target_kernel_count(r.target()); ++i) {
      names += bp_target_kernel(r.target(), i)->name + std::string(" ");
    }
    return names;
  }

  std::string chosen(bp_dtype dtype) {
    tensor.dtype = dtype;
    bp_kernel_choice choice{};
    const bp_status status =
        bp_kernel_find(r.target(), 0, BP_KERNEL_NATIVE, BP_OP_ADD, &args, &choice);
    return status == BP_OK ? choice.kernel->name : bp_status_name(status);
  }
};

TEST(MaskLayer, HidesKernelsByNameAndByOp) {
  Masked by_name("mask.kernels=add.f*");
  EXPECT_EQ(by_name.kernels(), "add.any mul ");
  EXPECT_EQ(by_name.plugin->kernel_count, 2);
  EXPECT_EQ(by_name.fake.results[0].outcome, BP_ADD_REJECTED);
  EXPECT_EQ(by_name.fake.results[1].outcome, BP_ADD_ACCEPTED);
  EXPECT_EQ(by_name.chosen(BP_F32), "add.any");
  Masked by_op("mask.kernels=add");
  EXPECT_EQ(by_op.kernels(), "mul ");
}

TEST(MaskLayer, HidesDtypesOfTheDeviceOfClaimsAndOfKernelsThatTakeAll) {
  Masked m("mask.dtypes=f64:bf16,mask.profiles=tr*");
  const bp_device_properties& p = *m.r.target()->properties;
  ASSERT_EQ(p.dtype_count, 1);
  EXPECT_EQ(p.dtypes[0], BP_F32);
  ASSERT_EQ(p.profile_count, 1);
  EXPECT_STREQ(p.profiles[0], "infer");
  EXPECT_EQ(p.heap_count, 1);
  EXPECT_EQ(p.heaps[0].size_bytes, 1ull << 40);
  EXPECT_EQ(m.chosen(BP_F32), "add.fast");
  EXPECT_EQ(m.chosen(BP_F64), "unsupported");
  EXPECT_EQ(m.fake.devices[0].properties.dtype_count, 3) << "the backend's own are not changed";
}

TEST(MaskLayer, HidesSlots) {
  Masked m("mask.slots=memory.fill:memory.copy_*");
  const bp_allocator_ops& memory = *m.r.target()->allocator;
  const unsigned char byte = 0;
  const bp_buffer_ref none{};
  EXPECT_EQ(memory.fill(memory.self, nullptr, &none, &byte, 1), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(), "memory.fill is not offered by this backend");
  EXPECT_EQ(m.fake.fills, 0);
}

TEST(MaskLayer, ReadsAFile) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("bp_mask_test_" + std::to_string(getpid())))
          .string();
  std::ofstream(path) << R"({"kernels": ["mul"], "dtypes": ["f64"]})";
  const std::string options = "mask.file=" + path;
  Masked m(options.c_str());
  EXPECT_EQ(m.kernels(), "add.fast add.any ");
  EXPECT_EQ(m.chosen(BP_F64), "unsupported");
  std::ofstream(path) << R"({"kernel": ["mul"]})";
  TestRegistry r(0, "mask", options.c_str());
  FakeBackend fake;
  EXPECT_EQ(fake.load(r.registry), BP_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(bp_error_text()),
            "layer option mask.file: " + path +
                ": 'kernel' is not known; there are kernels, dtypes, slots, tables, profiles");
  std::filesystem::remove(path);
}

// ABI 0.4 appended operators to 0.3, and to no struct, so nothing is cut.
TEST(OldAbiLayer, ShowsTheOldestMinorThatIsServed) {
  TestRegistry r(0, "oldabi", nullptr);
  FakeBackend fake;
  fake.allocator.wrap_address = [](void*, bp_device*, uint64_t, uint64_t,
                                   bp_buffer**) -> bp_status { return BP_OK; };
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  EXPECT_EQ(plugin->abi_minor, BP_ABI_MINOR_MIN + 0u);
  EXPECT_EQ(fake.host->struct_size, sizeof(bp_host));
  const bp_allocator_ops& memory = *r.target()->allocator;
  EXPECT_EQ(memory.wrap_address(memory.self, nullptr, 0, 0, nullptr), BP_OK);
}

TEST(OldAbiLayer, RefusesAMinorThatThereIsNot) {
  for (const char* options : {"oldabi.minor=2", "oldabi.minor=99", "oldabi.side=left"}) {
    TestRegistry r(0, "oldabi", options);
    FakeBackend fake;
    EXPECT_EQ(fake.load(r.registry), BP_INVALID_ARGUMENT) << options;
  }
}

// Returns what loading with this file as mask.file gives: "", or the text of the refusal after the
// path.
std::string refusal_of_file(const std::string& content) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("bp_mask_test_" + std::to_string(getpid())))
          .string();
  std::ofstream(path) << content;
  const std::string options = "mask.file=" + path;
  TestRegistry r(0, "mask", options.c_str());
  FakeBackend fake;
  const bp_status status = fake.load(r.registry);
  const std::string words = status == BP_OK ? "" : bp_error_text();
  std::filesystem::remove(path);
  const size_t begin = words.find(path + ": ");
  return begin == words.npos ? words : words.substr(begin + path.size() + 2);
}

TEST(MaskLayer, TakesOnlyListsOfTextsInItsFile) {
  EXPECT_EQ(refusal_of_file("{}"), "");
  EXPECT_EQ(refusal_of_file(R"({"kernels": [], "slots": ["memory.*"]})"), "");
  for (const char* value :
       {R"("mul")", "null", "5", R"({"a": "mul"})", "[5]", R"(["mul", null])"}) {
    EXPECT_EQ(refusal_of_file(R"({"kernels": )" + std::string(value) + "}"),
              "'kernels' is not a list of texts")
        << value;
  }
  for (const char* text : {"", "[]", "{", R"({"kernels": ["mul"]} more)"}) {
    EXPECT_EQ(refusal_of_file(text), "not a JSON object") << text;
  }
  EXPECT_EQ(refusal_of_file(R"({"dtypes": ["f31"]})"),
            "layer mask: 'f31' is no dtype, such as bf16");
  EXPECT_NE(refusal_of_file(std::string(1000, '[')).find("nests deeper than 64 levels"),
            std::string::npos);
}

TEST(MaskLayer, SaysThatItsFileIsMissing) {
  TestRegistry r(0, "mask", "mask.file=/nowhere/mask.json");
  FakeBackend fake;
  EXPECT_EQ(fake.load(r.registry), BP_NOT_FOUND);
  EXPECT_EQ(std::string(bp_error_text()).find("layer option mask.file: /nowhere/mask.json: "), 0u)
      << bp_error_text();
  EXPECT_EQ(fake.shutdowns, 0) << "it was never asked for anything";
}

TEST(MaskLayer, HidesTables) {
  bp_profiler_ops profiler{.struct_size = sizeof(bp_profiler_ops),
                           .struct_type = BP_STRUCT_PROFILER_OPS};
  profiler.stop = [](void*, bp_device*, uint64_t) -> bp_status { return BP_OK; };
  for (const char* options : {"mask.tables=prof*", "mask.tables=graph"}) {
    const bool hides = std::string_view(options) == "mask.tables=prof*";
    TestRegistry r(0, "mask", options);
    FakeBackend fake;
    fake.profiler = &profiler;
    ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    const bp_profiler_ops& shown = *r.target()->profiler;
    EXPECT_EQ(shown.stop(shown.self, r.target()->device, UINT64_MAX),
              hides ? BP_UNSUPPORTED : BP_OK);
    const bool has_table = bp_target_has_table(r.target(), BP_STRUCT_PROFILER_OPS) != 0;
    EXPECT_EQ(has_table, !hides);
  }
}

TEST(MaskLayer, HidesAKernelWhoseEveryDtypeIsHidden) {
  Masked m("mask.dtypes=f32:f64:bf16");
  EXPECT_EQ(m.kernels(), "add.any mul ");
  EXPECT_EQ(m.r.target()->properties->dtype_count, 0u);
  EXPECT_EQ(m.chosen(BP_F32), "unsupported");
  EXPECT_NE(std::string(bp_error_text()).find("the layer mask hides a dtype of this call"),
            std::string::npos)
      << bp_error_text();
  EXPECT_EQ(m.chosen(BP_F16), "add.any");
}

TEST(MaskLayer, AsksAKernelItselfAboutWhatItDoesNotHide) {
  TestRegistry r(0, "mask", "mask.dtypes=f64");
  bp_kernel picky = make_kernel("add.picky");
  picky.supports = [](const bp_kernel*, bp_device*, bp_launch_flags, const void* args) {
    const bp_tensor& a = *static_cast<const bp_add_args*>(args)->a;
    return bp_reason{a.dtype == BP_F16 ? "f16 is too narrow" : nullptr};
  };
  FakeBackend fake;
  fake.kernels = {&picky};
  ASSERT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
  AddCall call;
  const auto find = [&](bp_dtype dtype) {
    call.a.dtype = call.b.dtype = call.y.dtype = dtype;
    bp_kernel_choice choice{};
    return bp_kernel_find(r.target(), 0, BP_KERNEL_NATIVE, BP_OP_ADD, &call.args, &choice);
  };
  EXPECT_EQ(find(BP_F32), BP_OK) << bp_error_text();
  EXPECT_EQ(find(BP_F16), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text()).find("f16 is too narrow"), std::string::npos);
  EXPECT_EQ(find(BP_F64), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text()).find("the layer mask hides a dtype of this call"),
            std::string::npos);
}

}  // namespace
}  // namespace bp::core
