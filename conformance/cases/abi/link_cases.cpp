// Cases for a link of tensors that a kernel understands. They need a kernel that knows the link of
// tests, backplane/test_link.h; the cases of kernels (rules/op_link_rule.cpp) need none.
#include <algorithm>
#include <cstring>
#include <string>

#include "backplane/ops.h"
#include "backplane/test_link.h"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"

namespace bp::conformance {
namespace {

constexpr int64_t kCount = 37, kStride = 1;
constexpr uint64_t kBytes = kCount * sizeof(float);

bool knows_scales(const bp_kernel& kernel) {
  const uint32_t* const end = kernel.link_types + kernel.link_type_count;
  return kernel.op == BP_OP_NEG &&
         std::find(kernel.link_types, end, uint32_t{BP_STRUCT_TEST_SCALE}) != end;
}

bp_test_scale scale(double value, const void* next = nullptr) {
  return {.struct_size = sizeof(bp_test_scale),
          .struct_type = BP_STRUCT_TEST_SCALE | BP_STRUCT_MUST_UNDERSTAND,
          .next = next,
          .scale = value};
}

// The call y = -x of floats. The case ends as NotSupported if no kernel of it knows scales.
struct NegCall {
  explicit NegCall(Context& its_t) : t(its_t) {
    bool is_known = false;
    for (uint64_t i = 0; i < bp_target_kernel_count(&t.target()); ++i) {
      is_known = is_known || knows_scales(*bp_target_kernel(&t.target(), i));
    }
    if (!is_known) t.not_supported("no kernel of neg knows the link of tests");
    for (size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i) - 7;
    std::vector<uint8_t> bytes(kBytes);
    std::memcpy(bytes.data(), values, kBytes);
    write(t, stream.get(), range(from, 0, kBytes), bytes);
  }
  NegCall(const NegCall&) = delete;

  bp_status find(const bp_kernel** out_kernel) const {
    bp_kernel_choice choice{};
    const bp_status status = bp_kernel_find(&t.target(), 0, 0, BP_OP_NEG, &args, &choice);
    *out_kernel = choice.kernel;
    return status;
  }

  // Launches the call, whose result must be `factor` times x.
  void expect_factor(double factor, const std::string& what) const {
    const bp_kernel* kernel = nullptr;
    t.require_ok(find(&kernel), "bp_kernel_find");
    const bool is_plain =
        bp_links_read(x.next, nullptr, 0) == BP_OK && bp_links_read(y.next, nullptr, 0) == BP_OK;
    t.expect(is_plain || knows_scales(*kernel), what + ": it is offered to " + kernel->name);
    t.require_ok(bp_op_launch(&t.target(), stream.get(), 0, BP_OP_NEG, &args), "launch of neg");
    const std::vector<uint8_t> bytes = read(t, stream.get(), range(to, 0, kBytes));
    float results[kCount];
    std::memcpy(results, bytes.data(), kBytes);
    const bool is_right = std::equal(results, results + kCount, values, [&](float a, float b) {
      return a == static_cast<float>(factor * double{b});
    });
    t.expect(is_right, what + ": the result is x times " + std::to_string(factor));
  }

  Context& t;
  OwnedStream stream = make_stream(t);
  OwnedBuffer from = make_buffer(t, kBytes), to = make_buffer(t, kBytes);
  float values[kCount];
  bp_tensor x{
      .buffer = from.get(), .shape = &kCount, .strides = &kStride, .ndim = 1, .dtype = BP_F32};
  bp_tensor y{
      .buffer = to.get(), .shape = &kCount, .strides = &kStride, .ndim = 1, .dtype = BP_F32};
  bp_neg_args args{.struct_size = sizeof(args), .flags = 0, .x = &x, .y = &y};
};

void known_link_reaches_its_kernel(Context& t) {
  NegCall call(t);
  const bp_struct_header hint{sizeof(hint), 0x7fff0000, nullptr};
  const bp_test_scale half = scale(0.5), quarter = scale(0.25), behind_hint = scale(4, &hint);
  call.expect_factor(-1, "without a link");
  call.x.next = &half;
  call.expect_factor(-0.5, "with a scale of x");
  call.x.next = &behind_hint;
  call.expect_factor(-4, "with another scale in front of a hint");
  call.x.next = nullptr;
  call.y.next = &quarter;
  call.expect_factor(-4, "with a scale of y");
  call.y.next = &hint;
  call.expect_factor(-1, "with a hint");
}

void unknown_link_beside_a_known_one(Context& t) {
  NegCall call(t);
  const bp_struct_header unknown{sizeof(unknown), 0x7fff0000 | BP_STRUCT_MUST_UNDERSTAND, nullptr};
  const bp_test_scale half = scale(0.5, &unknown);
  call.x.next = &half;
  const bp_kernel* kernel = nullptr;
  t.expect_refused(call.find(&kernel), BP_UNSUPPORTED, "a link that nobody knows behind a scale");
  t.expect_refused(bp_op_launch(&t.target(), call.stream.get(), 0, BP_OP_NEG, &call.args),
                   BP_UNSUPPORTED, "the launch of this call");
}

}  // namespace

void add_link_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "link",
      {
          {"known_link_reaches_its_kernel", {"KERNEL-12", "LINK-1"}, known_link_reaches_its_kernel},
          {"unknown_link_beside_a_known_one", {"KERNEL-12"}, unknown_link_beside_a_known_one},
      });
  for (Case& c : cases) {
    if (c.id.starts_with("link.")) c.dtype = "f32";
  }
}

}  // namespace bp::conformance
