// Cases for the ops that a backend describes at run time. They are made from the descriptions, and
// know no op by its name.
#include <algorithm>
#include <cstring>

#include "conformance/cases/abi/described_call.hpp"
#include "conformance/cases/abi/described_program.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/numerics/agreement.hpp"
#include "conformance/numerics/dtype.hpp"
#include "conformance/required_layouts.hpp"

namespace bp::conformance {
namespace {

constexpr int kCallsOfEachOp = 4;
constexpr DescribedLayout kLayouts[] = {{"contiguous", 1, false, 0},
                                        {"behind an offset", 1, false, 3},
                                        {"of every second element", 2, false, 1},
                                        {"of axes in reverse order", 1, true, 0}};

using Elements = std::vector<std::vector<std::byte>>;

// Calls body(plan) for calls of each described op that a kernel of this device takes.
template <typename Body>
void for_each_call(Context& t, Body&& body) {
  const std::vector<const bp_op_desc*> ops = described_ops(t.target());
  if (ops.empty()) t.not_supported("the backend has no kernel of an op that it describes");
  std::mt19937_64 random(t.seed());
  for (const bp_op_desc* op : ops) {
    t.begin_part(op->name);
    int count = 0;
    for (int i = 0; i < kCallsOfEachOp; ++i) {
      const std::optional<DescribedPlan> plan = draw_plan(t.target(), *op, random);
      if (!plan) break;
      ++count;
      body(*plan);
    }
    t.detail(op->name, std::to_string(count) + " calls");
    if (count != 0) continue;
    t.quality_warning(std::string(op->name) +
                      " was not tested: no call was found that its description and a kernel take");
  }
}

std::string place_text(const DescribedTensor& output, size_t element) {
  return std::string(output.argument->name) + ", element " + std::to_string(element);
}

// Compares outputs. The results of different kernels may differ by the tolerance.
void expect_close(Context& t, const DescribedPlan& plan, const DescribedTensor& output,
                  const Elements& got, const Elements& wanted, const std::string& what) {
  Agreement agreement(output.dtype);
  const auto value = [&](const std::vector<std::byte>& element) {
    return load_element(output.dtype, element.data()).hi;
  };
  for (const auto& each : wanted) agreement.add(value(each));
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    const double a = value(got[i]), b = value(wanted[i]);
    if (agreement.holds(a, b)) continue;
    t.add({std::string(plan.op->name) + ": " + place_text(output, i) + " is " + std::to_string(a) +
               ", and " + what + " gives " + std::to_string(b),
           "values", "OP-8"});
    return;
  }
}

// Compares all outputs of two calls.
void expect_equal_results(Context& t, const DescribedPlan& plan, DescribedCall& got,
                          DescribedCall& wanted, const std::string& what) {
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const DescribedTensor& each = plan.tensors[i];
    if (!each.is_output || !each.is_given) continue;
    expect_close(t, plan, each, got.elements(i), wanted.elements(i), what);
  }
}

struct RegistryEnd {
  void operator()(bp_registry* registry) const { static_cast<void>(bp_registry_destroy(registry)); }
};
using OwnedRegistry = std::unique_ptr<bp_registry, RegistryEnd>;

// Returns a device of class host among the installed backends, or NULL.
const bp_target* load_host(bp_registry* registry) {
  uint64_t count = 0;
  if (bp_registry_discover(registry, &count) != BP_OK) return nullptr;
  for (uint64_t i = 0; i < count; ++i) {
    const bp_manifest* manifest = nullptr;
    if (bp_registry_manifest(registry, i, &manifest) != BP_OK || manifest->problem != nullptr) {
      continue;
    }
    const std::string name = manifest->name;
    static_cast<void>(bp_registry_load(registry, name.c_str(), 0, nullptr, nullptr));
    for (uint64_t k = 0; k < bp_registry_target_count(registry); ++k) {
      const bp_target* const target = bp_registry_target(registry, k);
      if (target->properties->device_class == BP_DEVICE_HOST) return target;
    }
  }
  return nullptr;
}

// ---- Cases --------------------------------------------------------------------------------------

void kernels_give_the_results_of_the_decomposition(Context& t) {
  bp_registry* made = nullptr;
  t.require_ok(bp_registry_create(nullptr, &made), "bp_registry_create");
  const OwnedRegistry registry(made);
  const bp_target* host = nullptr;
  bool is_searched = false;
  int compared = 0;
  for_each_call(t, [&](const DescribedPlan& plan) {
    if (plan.op->decomposition == nullptr) return;
    DescribedCall native(t, t.target(), plan, kLayouts[0], t.seed());
    t.require_ok(native.launch(BP_KERNEL_NATIVE), "launch of the kernel");
    DescribedCall own(t, t.target(), plan, kLayouts[0], t.seed());
    bp_status status = own.launch(BP_KERNEL_DECOMPOSED);
    if (status == BP_OK) {
      ++compared;
      return expect_equal_results(t, plan, native, own, "the decomposition");
    }
    // The device lacks an op that the decomposition calls.
    if (status != BP_UNSUPPORTED) t.require_ok(status, "launch of the decomposition");
    if (!is_searched) host = load_host(made);
    is_searched = true;
    if (host == nullptr) {
      t.not_supported(
          "the device lacks ops of the decomposition, and no backend with a device of "
          "class host is installed, on which it runs");
    }
    DescribedCall other(t, *host, plan, kLayouts[0], t.seed());
    t.require_ok(other.launch(0), "launch of the decomposition on the host");
    ++compared;
    expect_equal_results(t, plan, native, other, "the decomposition");
  });
  if (compared == 0) t.not_supported("no described op has a decomposition");
}

void kernels_take_every_layout_of_their_claims(Context& t) {
  for_each_call(t, [&](const DescribedPlan& plan) {
    DescribedCall plain(t, t.target(), plan, kLayouts[0], t.seed());
    t.require_ok(plain.launch(BP_KERNEL_NATIVE), "launch of contiguous tensors");
    for (const DescribedLayout& layout : kLayouts) {
      DescribedCall call(t, t.target(), plan, layout, t.seed());
      const bp_status status = call.launch(BP_KERNEL_NATIVE);
      if (status == BP_UNSUPPORTED) continue;  // No claims cover the layout.
      t.require_ok(status, std::string("launch of tensors ") + layout.name);
      expect_equal_results(t, plan, call, plain,
                           std::string("a call of contiguous tensors, not ") + layout.name + ",");
      const std::string stray = call.stray_write();
      if (stray.empty()) continue;
      t.add({std::string(plan.op->name) + ": a launch of tensors " + layout.name +
                 " changed bytes of " + stray + " that are no elements of an output",
             "canary", "KERNEL-9"});
    }
  });
}

void kernels_write_into_inputs_where_they_may(Context& t) {
  int tried = 0;
  for_each_call(t, [&](const DescribedPlan& plan) {
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      const DescribedTensor& output = plan.tensors[i];
      if (!output.is_output || !output.is_given) continue;
      for (size_t k = 0; k < plan.tensors.size(); ++k) {
        const DescribedTensor& input = plan.tensors[k];
        const bool may_share = (output.argument->may_alias >> input.index & 1) != 0;
        if (!may_share || !input.is_given || input.shape != output.shape) continue;
        DescribedCall apart(t, t.target(), plan, kLayouts[0], t.seed());
        DescribedCall shared(t, t.target(), plan, kLayouts[0], t.seed(), static_cast<int64_t>(i),
                             static_cast<int64_t>(k));
        const bp_status status = shared.launch(BP_KERNEL_NATIVE);
        if (status == BP_UNSUPPORTED) continue;  // No kernel has BP_KERNEL_IN_PLACE.
        t.require_ok(status, "launch in place");
        t.require_ok(apart.launch(BP_KERNEL_NATIVE), "launch");
        ++tried;
        expect_close(t, plan, output, shared.elements(i), apart.elements(i),
                     "a call whose output has memory of its own");
      }
    }
  });
  if (tried == 0) t.not_supported("no described op has an output that may be an input");
}

void deterministic_kernels_repeat_their_bits(Context& t) {
  for_each_call(t, [&](const DescribedPlan& plan) {
    DescribedCall first(t, t.target(), plan, kLayouts[0], t.seed());
    bp_kernel_choice choice{};
    t.require_ok(
        bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, plan.op->op, first.frame(), &choice),
        "bp_kernel_find");
    if ((choice.kernel->flags & BP_KERNEL_DETERMINISTIC) == 0) return;
    t.require_ok(first.launch(BP_KERNEL_NATIVE), "launch");
    for (int run = 0; run < 3; ++run) {
      DescribedCall again(t, t.target(), plan, kLayouts[0], t.seed());
      t.require_ok(again.launch(BP_KERNEL_NATIVE), "launch");
      for (size_t i = 0; i < plan.tensors.size(); ++i) {
        if (!plan.tensors[i].is_output || !plan.tensors[i].is_given) continue;
        t.expect(first.elements(i) == again.elements(i),
                 std::string(plan.op->name) + ": two launches give equal bits");
      }
    }
  });
}

// Returns the executable that deserialize() makes of the bytes of another one.
OwnedExecutable read_again(Context& t, const OwnedExecutable& executable) {
  const bp_compiler_ops& compiler = compiler_table(t);
  const std::vector<uint8_t> bytes = serialized(t, executable);
  bp_executable* read = nullptr;
  t.require_ok(compiler.deserialize(compiler.self, t.target().device, bytes.data(), bytes.size(),
                                    nullptr, &read),
               "deserialize");
  return OwnedExecutable(read, {&compiler});
}

void programs_hold_described_ops(Context& t) {
  const bp_compiler_ops& compiler = compiler_table(t);
  int compiled = 0;
  for_each_call(t, [&](const DescribedPlan& plan) {
    const DescribedProgram program(plan);
    uint32_t partition = 0;
    bp_reason reason = nullptr;
    uint64_t count = 0;
    t.require_ok(compiler.query(compiler.self, t.target().device, &program.desc(), 1, &partition,
                                &reason, &count),
                 "query");
    if (reason != nullptr) return;  // The compiler has no kernel for the op.
    ++compiled;
    const OwnedExecutable executable = compile_taken(t, program.desc());
    DescribedCall plain(t, t.target(), plan, kLayouts[0], t.seed());
    t.require_ok(plain.launch(BP_KERNEL_NATIVE), "launch of the kernel");
    DescribedCall whole(t, t.target(), plan, kLayouts[0], t.seed());
    t.require_ok(program.launch(t, executable, whole), "launch of the program");
    expect_equal_results(t, plan, whole, plain, "a launch of the op alone");
    DescribedCall again(t, t.target(), plan, kLayouts[0], t.seed());
    t.require_ok(program.launch(t, read_again(t, executable), again), "launch of the bytes");
    expect_equal_results(t, plan, again, plain, "a launch of the op alone");
  });
  if (compiled == 0) t.not_supported("the compiler takes no op that the backend describes");
}

// Bends one thing of a call, asks for a check, which must refuse it with a text, and bends it back.
class Bends {
 public:
  Bends(Context& t, const DescribedPlan& plan)
      : t_(t), plan_(plan), call_(t, t.target(), plan, kLayouts[0], t.seed()) {}

  void run() {
    t_.require_ok(check(), "bp_op_check of a call that the description accepts");
    for (const uint32_t size : {0u, 4u, 7u, plan_.op->frame_size_bytes - 1}) bend_size(size);
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const DescribedTensor& each = plan_.tensors[i];
      if (!each.is_given) continue;
      bend_tensor(i, each);
    }
  }

 private:
  bp_status check() { return bp_op_check(plan_.op->op, call_.frame()); }

  void expect_refused(const std::string& what) {
    const bp_status status = check();
    const bool is_told = status != BP_OK && *bp_error_text() != '\0';
    t_.expect(is_told, std::string(plan_.op->name) + ": " + what +
                           (status == BP_OK ? " is accepted" : " is refused without a text"));
  }

  void bend_size(uint32_t size) {
    const uint64_t kept = call_.words()[0];
    std::memcpy(call_.words().data(), &size, sizeof(size));
    expect_refused("a struct_size of " + std::to_string(size));
    call_.words()[0] = kept;
  }

  void bend_tensor(size_t i, const DescribedTensor& each) {
    const std::string name = each.argument->name;
    uint64_t& word = call_.words()[each.argument->offset_bytes / 8];
    const bool is_required =
        each.argument->kind == BP_ARGUMENT_TENSOR || each.argument->kind == BP_ARGUMENT_OUT;
    const uint64_t kept = word;
    word = 0;
    if (is_required) expect_refused("a NULL for " + name);
    word = kept;
    bp_tensor& tensor = call_.tensor(i);
    const bp_tensor whole = tensor;
    tensor.dtype = BP_C128;
    expect_refused("complex numbers for " + name);
    tensor = whole;
    tensor.ndim = BP_MAX_RANK + 1;
    expect_refused("a rank above the highest for " + name);
    tensor = whole;
    tensor.shape = nullptr;
    if (tensor.ndim != 0) expect_refused("axes without a shape for " + name);
    tensor = whole;
    if (!each.is_output || tensor.ndim == 0) return;
    std::vector<int64_t> shape = each.shape;
    ++shape[0];
    tensor.shape = shape.data();
    expect_refused("a longer axis for " + name);
    tensor = whole;
  }

  Context& t_;
  const DescribedPlan& plan_;
  DescribedCall call_;
};

void frames_that_break_the_description_are_refused(Context& t) {
  for_each_call(t, [&](const DescribedPlan& plan) { Bends(t, plan).run(); });
}

void unknown_launch_flags_are_refused(Context& t) {
  for_each_call(t, [&](const DescribedPlan& plan) {
    DescribedCall call(t, t.target(), plan, kLayouts[0], t.seed());
    bp_kernel_choice choice{};
    t.require_ok(
        bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, plan.op->op, call.frame(), &choice),
        "bp_kernel_find");
    if (requires_layouts(*choice.kernel)) return;  // Its launch() takes no tensor by strides.
    const bp_launch launch{
        .device = t.target().device, .stream = t.target().default_stream, .flags = 1u << 30};
    t.expect_refused(choice.kernel->launch(choice.kernel, &launch, call.frame()), BP_UNSUPPORTED,
                     std::string(plan.op->name) + ": a launch with an unknown flag");
  });
}

}  // namespace

void add_described_op_cases(std::vector<Case>& cases) {
  const size_t first = cases.size();
  add_api_cases(
      cases, "described_op",
      {{"kernels_give_the_results_of_the_decomposition",
        {"OP-8", "KERNEL-8"},
        kernels_give_the_results_of_the_decomposition},
       {"kernels_take_every_layout_of_their_claims",
        {"KERNEL-8", "KERNEL-9", "TENSOR-1"},
        kernels_take_every_layout_of_their_claims},
       {"kernels_write_into_inputs_where_they_may",
        {"KERNEL-8"},
        kernels_write_into_inputs_where_they_may},
       {"deterministic_kernels_repeat_their_bits",
        {"KERNEL-6"},
        deterministic_kernels_repeat_their_bits},
       {"frames_that_break_the_description_are_refused",
        {"KERNEL-4", "KERNEL-7"},
        frames_that_break_the_description_are_refused},
       {"programs_hold_described_ops", {"OP-11", "COMPILER-1"}, programs_hold_described_ops},
       {"unknown_launch_flags_are_refused", {"KERNEL-2"}, unknown_launch_flags_are_refused}});
  for (size_t i = first; i < cases.size(); ++i) cases[i].is_mandatory = false;
}

}  // namespace bp::conformance
