// Tests what the host does with the parts of an offer that it does not know: it rejects the
// smallest part, says why, and takes the rest.
#include <gtest/gtest.h>

#include <string>

#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

constexpr bp_dtype kUnknown = BP_U2 + 55;

// Loads `fake`, and returns what the host refused of it.
std::string refusals_of(FakeBackend& fake, const TestRegistry& r) {
  const bp_plugin* plugin = nullptr;
  EXPECT_EQ(fake.load(r.registry, &plugin), BP_OK) << bp_error_text();
  return plugin == nullptr ? "" : plugin->refusals;
}

bool has(const std::string& text, const std::string& line) {
  return text.find(line) != std::string::npos;
}

TEST(Offers, KeepTheRowsOfDtypesThatTheHostKnows) {
  const bp_dtype rows[] = {kUnknown, BP_F32, 0x10000 + BP_F32};
  bp_kernel kernel = make_kernel("add");
  kernel.dtype_rows = rows;
  kernel.dtype_row_count = 3;
  kernel.dtype_count = 1;
  FakeBackend fake;
  fake.kernels = {&kernel};
  const TestRegistry r;
  const std::string refusals = refusals_of(fake, r);
  EXPECT_TRUE(has(refusals,
                  "acme.npu/add: rejected: dtype row 0: dtype 82 is not known to this "
                  "host\n"))
      << refusals;
  EXPECT_TRUE(has(refusals, "acme.npu/add: rejected: dtype row 2: dtype 65550 is not known"))
      << refusals;
  EXPECT_EQ(fake.results[0].outcome, BP_ADD_ACCEPTED + 0u);
  const AddCall call;
  bp_kernel_choice choice{};
  ASSERT_EQ(bp_kernel_find(r.target(), 0, BP_KERNEL_NATIVE, BP_OP_ADD, &call.args, &choice), BP_OK);
  EXPECT_EQ(choice.kernel, &kernel);
}

TEST(Offers, LoseAKernelThatHasNoUsableRow) {
  const bp_dtype unknown[] = {kUnknown}, loose[] = {BP_F32, BP_DTYPE_VENDOR_LAST};
  bp_kernel kernels[] = {make_kernel("unknown"), make_kernel("loose"), make_kernel("good")};
  kernels[0].dtype_rows = unknown;
  kernels[1].dtype_rows = loose;
  for (bp_kernel& kernel : kernels) kernel.dtype_count = 1;
  kernels[0].dtype_row_count = 1;
  kernels[1].dtype_row_count = 2;
  FakeBackend fake;
  fake.kernels = {&kernels[0], &kernels[1], &kernels[2]};
  const TestRegistry r;
  const std::string refusals = refusals_of(fake, r);
  EXPECT_TRUE(has(refusals, "acme.npu/unknown: rejected: dtype row 0: dtype 82 is not known"))
      << refusals;
  EXPECT_TRUE(has(refusals,
                  "acme.npu/loose: rejected: its rows have dtype 65535, which "
                  "add_dtype() did not give"))
      << refusals;
  ASSERT_EQ(bp_target_kernel_count(r.target()), 1u);
  EXPECT_STREQ(bp_target_kernel(r.target(), 0)->name, "good");
}

TEST(Offers, LoseAKernelWhoseDeclarationTheHostCannotJudge) {
  const bp_numerics good{.struct_size = sizeof(bp_numerics),
                         .struct_type = BP_STRUCT_NUMERICS,
                         .flush = 0xFFFF0000};  // Unknown flags are ignored.
  const struct {
    void (*change)(bp_numerics& n);
    const char* words;
  } rows[] = {
      {[](bp_numerics& n) { n.products = 9; },
       "numerics: products is 9, which this host does not know"},
      {[](bp_numerics& n) { n.tie = 2; }, "numerics: tie is 2"},
      {[](bp_numerics& n) { n.accumulator = kUnknown; }, "numerics: accumulator is dtype 82"},
      {[](bp_numerics& n) { n.struct_size = 40; }, "numerics: struct_size is 40"},
      {[](bp_numerics& n) { n.struct_size = 65537; }, "numerics: struct_size is 65537"},
      {[](bp_numerics& n) { n.struct_type = 0; }, "numerics: struct_type is 0"},
  };
  for (const auto& [change, words] : rows) {
    bp_numerics changed = good;
    change(changed);
    bp_kernel bad = make_kernel("bad"), fine = make_kernel("fine");
    bad.numerics = &changed;
    fine.numerics = &good;
    FakeBackend fake;
    fake.kernels = {&bad, &fine};
    const TestRegistry r;
    const std::string refusals = refusals_of(fake, r);
    EXPECT_TRUE(has(refusals, std::string("acme.npu/bad: rejected: ") + words)) << refusals;
    EXPECT_EQ(bp_target_kernel_count(r.target()), 1u) << words;
  }
}

TEST(Offers, KeepAKernelAndAHeapWithFlagsThatTheHostDoesNotKnow) {
  bp_kernel kernel = make_kernel("add");
  kernel.flags |= 1u << 30;
  kernel.layouts |= 1u << 30;
  kernel.supports_ignores = 1u << 30;
  FakeBackend fake;
  fake.kernels = {&kernel};
  fake.heap.flags = 1u << 31 | BP_HEAP_DEVICE_LOCAL;
  fake.devices[0].properties.device_class = 99;
  const TestRegistry r;
  EXPECT_FALSE(has(refusals_of(fake, r), "rejected"));
  EXPECT_EQ(bp_target_kernel_count(r.target()), 1u);
  EXPECT_EQ(r.target()->properties->heaps[0].flags, 1u << 31 | BP_HEAP_DEVICE_LOCAL);
}

TEST(Offers, LeaveThePlaceOfAHeapEmptyThatTheHostCannotRead) {
  for (const char* layers : {"", "mask"}) {
    const bp_struct_header link{sizeof(link), 77 | BP_STRUCT_MUST_UNDERSTAND, nullptr};
    FakeBackend fake;
    bp_heap heaps[] = {fake.heap, fake.heap, fake.heap, fake.heap};
    heaps[1].next = &link;
    heaps[2].struct_size = 65537;
    bp_device_properties& p = fake.devices[0].properties;
    p.heaps = heaps;
    p.heap_count = 4;
    const TestRegistry r(0, layers);
    const std::string refusals = refusals_of(fake, r);
    EXPECT_TRUE(has(refusals,
                    "acme.npu:0/heap 1: rejected: it has a link of type 77 that must be "
                    "understood, and this host does not know it\n"))
        << refusals;
    EXPECT_TRUE(has(refusals, "acme.npu:0/heap 2: rejected: struct_size is 65537")) << refusals;
    const bp_device_properties& ours = *r.target()->properties;
    ASSERT_EQ(ours.heap_count, 4u);
    for (const uint64_t rejected : {uint64_t{1}, uint64_t{2}}) {
      EXPECT_EQ(ours.heaps[rejected].struct_size, 0u);
      EXPECT_EQ(ours.heaps[rejected].size_bytes, 0u);
    }
    EXPECT_EQ(ours.heaps[3].size_bytes, heaps[3].size_bytes);
  }
}

TEST(Offers, MustHaveAFirstHeapThatTheHostCanRead) {
  FakeBackend fake;
  fake.heap.struct_size = 16;
  const TestRegistry r;
  EXPECT_EQ(fake.load(r.registry), BP_INTERNAL);
  EXPECT_TRUE(has(bp_error_text(), "acme.npu:0: its properties: heap 0: struct_size is 16"))
      << bp_error_text();
}

TEST(Offers, KeepTheDtypesOfADeviceThatTheHostKnows) {
  const bp_dtype dtypes[] = {BP_F32, kUnknown, BP_DTYPE_VENDOR_LAST, BP_BF16};
  FakeBackend fake;
  fake.devices[0].properties.dtypes = dtypes;
  fake.devices[0].properties.dtype_count = 4;
  const TestRegistry r;
  const std::string refusals = refusals_of(fake, r);
  EXPECT_TRUE(has(refusals, "acme.npu:0/dtypes: rejected: dtype 82 is not known to this host\n"))
      << refusals;
  EXPECT_TRUE(has(refusals, "acme.npu:0/dtypes: rejected: dtype 65535 is not known")) << refusals;
  const bp_device_properties& ours = *r.target()->properties;
  ASSERT_EQ(ours.dtype_count, 2u);
  EXPECT_EQ(ours.dtypes[1], BP_BF16 + 0u);
}

TEST(Offers, AreJudgedByTheHostAlsoBehindALayer) {
  FakeBackend fake;
  fake.allocator.struct_size = 65537;
  const TestRegistry r(0, "leak");
  EXPECT_EQ(fake.load(r.registry), BP_INTERNAL);
  EXPECT_TRUE(has(bp_error_text(), "acme.npu/allocator: rejected: struct_size is 65537"))
      << bp_error_text();
}

// ---- Dtypes of vendors --------------------------------------------------------------------------

TEST(VendorDtypes, ChooseKernelsAndAreNamedInTexts) {
  for (const char* layers : {"", "validate"}) {
    FakeBackend fake;
    fake.dtype_name = "acme.f16x";
    ASSERT_EQ(bp_dtype_add("acme.f16x", 16, &fake.dtype), BP_OK) << bp_error_text();
    const bp_dtype rows[] = {BP_F32, fake.dtype}, dtypes[] = {BP_F32, fake.dtype};
    bp_kernel kernel = make_kernel("add");
    kernel.dtype_rows = rows;
    kernel.dtype_row_count = 2;
    kernel.dtype_count = 1;
    fake.kernels = {&kernel};
    fake.devices[0].properties.dtypes = dtypes;
    fake.devices[0].properties.dtype_count = 2;
    const bp_dtype before = fake.dtype;
    fake.dtype = 0;
    const TestRegistry r(0, layers);
    EXPECT_FALSE(has(refusals_of(fake, r), "dtype")) << layers;
    EXPECT_EQ(fake.dtype, before) << "each backend of the host gets the same number";
    EXPECT_EQ(r.target()->properties->dtype_count, 2u);
    AddCall call;
    call.a.dtype = call.b.dtype = call.y.dtype = fake.dtype;
    bp_kernel_choice choice{};
    EXPECT_EQ(bp_kernel_find(r.target(), 0, BP_KERNEL_NATIVE, BP_OP_ADD, &call.args, &choice),
              BP_OK)
        << bp_error_text();
    uint64_t size = 0;
    char text[512];
    ASSERT_EQ(bp_kernel_explain(r.target(), 0, BP_OP_ADD, &call.args, sizeof(text), text, &size),
              BP_OK);
    EXPECT_TRUE(has(text, "add(a acme.f16x rank 2")) << text;
  }
}

TEST(VendorDtypes, AreHiddenByTheMaskByName) {
  FakeBackend fake;
  fake.dtype_name = "acme.f16x";
  ASSERT_EQ(bp_dtype_add("acme.f16x", 16, &fake.dtype), BP_OK) << bp_error_text();
  const bp_dtype dtypes[] = {BP_F32, fake.dtype};
  fake.devices[0].properties.dtypes = dtypes;
  fake.devices[0].properties.dtype_count = 2;
  const TestRegistry r(0, "mask", "mask.dtypes=acme.f16x:acme.later");
  refusals_of(fake, r);
  ASSERT_EQ(r.target()->properties->dtype_count, 1u);
  EXPECT_EQ(r.target()->properties->dtypes[0], BP_F32 + 0u);
}

}  // namespace
}  // namespace bp::core
