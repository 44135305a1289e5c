// Tests that flags of tensors, and links that must be understood, reach only the kernels that know
// them, and that ignorable links change nothing.
#include "registry/calls/qualifiers.hpp"

#include <gtest/gtest.h>

#include "backplane/registry.hpp"
#include "registry/calls/claims.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

constexpr uint32_t kKnown = BP_VENDOR_FIRST, kUnknown = 0x7fff0000;
constexpr uint32_t kKnownFlag = 1u << 24, kUnknownFlag = 1u << 25;

bp_struct_header link_of(uint32_t type, const void* next = nullptr) {
  return {sizeof(bp_struct_header), type, next};
}
bp_struct_header strict_link_of(uint32_t type, const void* next = nullptr) {
  return link_of(type | BP_STRUCT_MUST_UNDERSTAND, next);
}

// Two kernels of add, the better of which knows neither links nor flags.
class Qualifiers : public testing::Test {
 protected:
  Qualifiers() {
    plain.priority = 1;
    knowing.link_types = &kKnown;
    knowing.link_type_count = 1;
    knowing.tensor_flags = kKnownFlag;
    fake.kernels = {&plain, &knowing};
    EXPECT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    target = r.target();
  }

  const bp_kernel* find() const {
    bp_kernel_choice choice{};
    const bp_status status = bp_kernel_find(target, 0, 0, BP_OP_ADD, &call.args, &choice);
    EXPECT_TRUE(status == BP_OK || status == BP_UNSUPPORTED) << bp_error_text();
    return choice.kernel;
  }
  bp_status launch() const { return bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args); }

  // Returns the error text of the last call from `what` on, or all of it.
  static std::string text_from(const char* what) {
    const std::string text = bp_error_text();
    return text.substr(std::min(text.find(what), text.size()));
  }

  bp_kernel plain = make_kernel("plain"), knowing = make_kernel("knowing");
  FakeBackend fake;  // It outlives the registry.
  TestRegistry r;
  const bp_target* target = nullptr;
  AddCall call;
};

TEST_F(Qualifiers, ReachOnlyTheKernelThatKnowsALink) {
  const bp_struct_header known = strict_link_of(kKnown), unknown = strict_link_of(kUnknown);
  EXPECT_EQ(find(), &plain);
  call.b.next = &known;
  EXPECT_EQ(find(), &knowing);
  EXPECT_EQ(launch(), BP_OK) << bp_error_text();
  call.b.next = &unknown;  // The key of the call is the same.
  EXPECT_EQ(find(), nullptr);
  EXPECT_EQ(launch(), BP_UNSUPPORTED);
  EXPECT_EQ(text_from("\n"),
            "\n  acme.npu/plain: b: it has a link of type 2147418112 that must be understood, and "
            "the kernel does not know it"
            "\n  acme.npu/knowing: b: it has a link of type 2147418112 that must be understood, "
            "and the kernel does not know it"
            "\n  decomposition: the op has none"
            "\n  host fallback: it knows no flags of tensors, and no links that must be "
            "understood");
  call.b.next = &known;
  EXPECT_EQ(find(), &knowing);
  call.b.next = nullptr;
  EXPECT_EQ(find(), &plain);
}

TEST_F(Qualifiers, ReachOnlyTheKernelThatKnowsAFlag) {
  call.y.flags = kKnownFlag;
  EXPECT_EQ(find(), &knowing);
  call.y.flags |= kUnknownFlag;
  EXPECT_EQ(find(), nullptr);
  EXPECT_EQ(launch(), BP_UNSUPPORTED);
  EXPECT_NE(text_from("knowing").find("y: it has flag bit 25, which the kernel does not know"),
            std::string::npos)
      << bp_error_text();
}

TEST_F(Qualifiers, AreNotIgnorableLinks) {
  const bp_struct_header last = link_of(kKnown), first = link_of(kUnknown, &last);
  call.a.next = call.b.next = call.y.next = &first;
  EXPECT_EQ(find(), &plain);
  EXPECT_EQ(launch(), BP_OK) << bp_error_text();
  const bp_struct_header strict = strict_link_of(kKnown, &first);
  call.y.next = &strict;
  EXPECT_EQ(find(), &knowing);
}

TEST_F(Qualifiers, AreReadInLists) {
  const OpRow& row = *find_op(BP_OP_CAT);
  const bp_struct_header known = strict_link_of(kKnown);
  call.b.next = &known;
  const bp_tensor* const xs[] = {&call.a, &call.b};
  const bp_cat_args args{.struct_size = sizeof(args), .xs_count = 2, .xs = xs, .y = &call.y};
  Key key;
  bool has_null = false;
  ASSERT_EQ(read_call(row, 0, &args, key, &has_null), BP_OK) << bp_error_text();
  EXPECT_TRUE(key.is_qualified());
  EXPECT_EQ(key.flags(), 0u);
  EXPECT_EQ(qualifiers_refusal(row, knowing, &args), "");
  EXPECT_NE(qualifiers_refusal(row, plain, &args), "");
  call.b.next = nullptr;
  Key other;
  ASSERT_EQ(read_call(row, 0, &args, other, &has_null), BP_OK) << bp_error_text();
  EXPECT_FALSE(other.is_qualified());
}

TEST_F(Qualifiers, DoNotReachAKernelThatIsNamed) {
  const bp_struct_header known = strict_link_of(kKnown);
  call.a.next = &known;
  EXPECT_EQ(bp_kernel_launch(target, nullptr, 0, &knowing, &call.args), BP_OK) << bp_error_text();
  EXPECT_EQ(bp_kernel_launch(target, nullptr, 0, &plain, &call.args), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(),
               "add by plain: argument a: it has a link of type 16777216 that must be understood, "
               "and the kernel does not know it");
}

TEST_F(Qualifiers, AreNoChainWithoutEnd) {
  bp_struct_header link = link_of(kKnown);
  link.next = &link;
  call.a.next = &link;
  EXPECT_EQ(launch(), BP_INCOMPATIBLE);
  EXPECT_STREQ(bp_error_text(),
               "add: the chain of a has more than 64 links, or leads back into itself");
}

TEST_F(Qualifiers, ArePreparedForEachLaunchAnew) {
  const bp_struct_header known = strict_link_of(kKnown), unknown = strict_link_of(kUnknown);
  bp_prepared* prepared = nullptr;
  call.a.next = &known;
  ASSERT_EQ(bp_op_prepare(target, nullptr, 0, BP_OP_ADD, &call.args, nullptr, 0, &prepared), BP_OK)
      << bp_error_text();
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_OK) << bp_error_text();
  call.a.next = &unknown;
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_INVALID_ARGUMENT);
  EXPECT_NE(text_from("2147418112").find("the kernel does not know it"), std::string::npos)
      << bp_error_text();
  call.a.next = nullptr;
  EXPECT_EQ(bp_prepared_launch(prepared, nullptr, &call.args), BP_INVALID_ARGUMENT);
  EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
}

TEST(QualifiersDefect, IsWhatNoKernelCanMean) {
  bp_kernel kernel = make_kernel("odd");
  kernel.link_type_count = 1;
  EXPECT_EQ(kernel_defect(kernel), "link_types is NULL, and link_type_count is 1");
  const uint32_t marked = 77 | BP_STRUCT_MUST_UNDERSTAND;
  kernel.link_types = &marked;
  EXPECT_EQ(kernel_defect(kernel),
            "link_types has type 77 with BP_STRUCT_MUST_UNDERSTAND; it lists types without that "
            "bit");
  kernel.link_types = &kKnown;
  EXPECT_EQ(kernel_defect(kernel), "");
}

}  // namespace
}  // namespace bp::core
