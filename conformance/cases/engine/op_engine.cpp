// The engine of the op cases.
//
//   inputs -> guarded memory, poisoned outputs -> launch -> wait -> memory, inputs, values
//
// Each call is launched twice over different poison, so that an unwritten element shows. A failing
// call runs again with one property of the call removed after the other (diagnose()).
#include "conformance/cases/engine/op_engine.hpp"

#include <algorithm>
#include <span>

#include "conformance/cases/engine/op_facts.hpp"
#include "conformance/cases/engine/op_words.hpp"

namespace bp::conformance {
namespace {

bool lists_dtype(const bp_device_properties& device, bp_dtype dtype) {
  const std::span dtypes(device.dtypes, device.dtype_count);
  return std::ranges::find(dtypes, dtype) != dtypes.end();
}

// Returns why the device does not list a property of the case's tensors; "" if it lists all.
std::string unlisted(const bp_device_properties& device, const OpCase& op_case) {
  for (const TensorArgument& argument : op_case.tensors) {
    if (!lists_dtype(device, argument.dtype)) {
      return std::string("dtype not listed by the device: ") + dtype_text(argument.dtype);
    }
    if (argument.shape.size() > device.max_rank) return "the rank is above the device's max_rank";
  }
  return "";
}

// Returns whether the device claims the profile. `train` includes `infer`; the other profiles add
// to both.
bool claims_profile(const bp_device_properties& device, std::string_view profile) {
  for (const char* claimed : std::span(device.profiles, device.profile_count)) {
    if (claimed == profile || (profile == "infer" && std::string_view(claimed) == "train")) {
      return true;
    }
  }
  return false;
}

bool has_aliases(const OpCase& op_case) {
  return std::ranges::any_of(op_case.tensors, [](const auto& a) { return !a.alias.empty(); });
}

// Returns what the call adds to the plain one that a kernel of the backend serves: "layout" or "in
// place", which kernels need not claim; "" if it adds nothing, or if no kernel serves the plain
// call, in which every tensor is dense and has its own memory.
std::string unclaimed_part(Context& t, const OpCase& op_case, const CallData& data) {
  Variant dense;
  dense.has_layouts = dense.has_offsets = false;
  const bool is_dense = op_case.layout == "dense";
  if (!is_dense && is_served(t, op_case, data, dense, BP_KERNEL_NATIVE)) return "layout";
  if (!has_aliases(op_case)) return "";
  OpCase apart = op_case;
  for (TensorArgument& argument : apart.tensors) argument.alias = {};
  const CallData its_data(apart, t.seed());
  return is_served(t, apart, its_data, dense, BP_KERNEL_NATIVE) ? "in place" : "";
}

// Ends a case that nothing serves: as Missing if the call is mandatory, else as NotSupported.
[[noreturn]] void report_unserved(Context& t, const OpCase& op_case, const CallData& data,
                                  const std::string& reasons) {
  const OpInfo& info = op_info(op_case.op);
  const std::string part = unclaimed_part(t, op_case, data);
  if (!part.empty()) t.not_supported(part + " not claimed: " + reasons);
  if (!op_case.optional_part.empty()) {
    t.not_supported(op_case.optional_part + " not claimed: " + reasons);
  }
  const std::string profile(info.profile);
  if (!claims_profile(*t.target().properties, profile)) {
    t.not_supported("profile not claimed: " + profile);
  }
  for (const TensorArgument& argument : op_case.tensors) {
    if (is_index(op_case, argument) && argument.dtype != BP_I64) {
      t.not_supported("indices of i32 not claimed: " + reasons);
    }
  }
  if (info.is_decomposable) {
    t.not_supported("no kernel, so the host decomposes " + std::string(info.name) + ": " + reasons);
  }
  t.missing("no kernel for " + std::string(info.name) + " of profile " + profile + ": " + reasons);
}

void report_source(Context& t, const OpCase& op_case, const CallData& data,
                   const Observation& seen) {
  t.detail("kernel", seen.kernel->name == nullptr ? "" : seen.kernel->name);
  if (seen.source == BP_KERNEL_NATIVE) return;
  const OpInfo& info = op_info(op_case.op);
  const bool is_mandatory = claims_profile(*t.target().properties, info.profile);
  const bool is_core = !info.is_decomposable && op_case.optional_part.empty();
  // The host decomposes only where the run asks for it, in order to judge what it gives.
  if (seen.source == BP_KERNEL_DECOMPOSED) {
    const bool is_formula = std::string_view(seen.kernel->name) == "decomposition";
    return t.fallback(is_formula ? "decomposed" : "service");
  }
  if (is_core && is_mandatory && unclaimed_part(t, op_case, data).empty()) {
    t.missing(std::string(info.name) + " is a core op, and only a fallback serves it");
  }
  t.fallback("host");
}

// A coverage table is honest only if it claims what works. If a call that supports() refuses gives
// right results, the case ends as Unclaimed.
void check_unclaimed(Context& t, const OpCase& op_case, const CallData& data) {
  if (op_case.fails_on_device) return;
  const std::optional<Refused> refused = observe_refused(t, op_case, data);
  if (!refused || refused->seen.launch_status != BP_OK || refused->seen.stream_status != BP_OK) {
    return;
  }
  if (!judge(op_case, data, refused->seen).is_right()) return;
  t.unclaimed(refused->kernel + " refuses with \"" + refused->reason +
              "\", and gives right results");
}

// Returns whether `text` names the op, and an argument that holds indices, which may be i64 alone.
bool names_index(const OpCase& op_case, const std::string& text) {
  return text.find(op_info(op_case.op).name) != std::string::npos &&
         std::ranges::any_of(op_case.tensors, [&](const TensorArgument& argument) {
           const bool is_i64 = op_info(op_case.op).member(argument.name).dtype == "i64";
           return (is_i64 || is_index(op_case, argument)) &&
                  text.find(argument.name) != std::string::npos;
         });
}

void check_failing_stream(Context& t, const OpCase& op_case, const Observation& seen) {
  t.detail("failure", seen.status_text);
  if (seen.stream_status == BP_OK) {
    t.add({"an index is out of range, and the stream reported no failure", "no_failure", ""});
  } else if (seen.status_text.empty()) {
    t.add({"the failure of the stream came without an error text", "no_text", "ERROR-1"});
  } else if (seen.stream_status != BP_DATA_FAILURE) {
    t.add({std::string("an index is out of range, and the stream failed with: ") +
               bp_status_name(seen.stream_status),
           "no_failure", "STREAM-22"});
  } else if (seen.source == BP_KERNEL_NATIVE && !names_index(op_case, seen.status_text)) {
    t.add({"the failure of the stream does not name the op and the argument: " + seen.status_text,
           "no_text", "STREAM-22"});
  }
  if (!seen.damage.empty()) t.add({seen.damage, "canary", "KERNEL-9"});
  if (!seen.modified_input.empty()) t.add({seen.modified_input, "input_modified", "KERNEL-9"});
}

void require_launched(Context& t, const OpCase& op_case, const Observation& seen) {
  const std::string text =
      std::string(bp_status_name(seen.launch_status)) + ": " + seen.status_text;
  if (seen.launch_status == BP_UNSUPPORTED && seen.source == BP_KERNEL_DECOMPOSED) {
    t.not_supported("nothing serves a step of the decomposition: " + text);
  }
  if (seen.launch_status == BP_UNSUPPORTED) {
    t.fail({"the kernel refuses a call that it claims: " + text, "refused", "KERNEL-8"});
  }
  if (seen.launch_status != BP_OK) t.fail({"launch failed: " + text, "launch", "KERNEL-8"});
  if (seen.stream_status != BP_OK && !op_case.fails_on_device) {
    t.fail({std::string("the stream failed: ") + bp_status_name(seen.stream_status) + ": " +
                seen.status_text,
            "stream_failure", "KERNEL-8"});
  }
}

void report_right(Context& t, const OpCase& op_case, const Verdict& verdict) {
  t.metric("margin", verdict.margin);
  t.metric("outputs", static_cast<double>(verdict.outputs));
  t.metric("zero_share", verdict.zero_share);
  if (verdict.bias != 0) t.metric("bias_z", verdict.bias);
  if (!verdict.worst.empty()) t.detail("worst", verdict.worst);
  if (!verdict.suspicion.empty()) t.quality_warning(verdict.suspicion);
  if (verdict.is_mistrusted && op_case.varies) {
    t.mistrusted("the expected outputs are constant or mostly zero");
  }
}

// Returns whether elements share memory. Their results are equal and round alike, so they do not
// count as separate samples.
bool has_repeats(const OpCase& op_case) {
  return std::ranges::any_of(op_case.tensors, [](const TensorArgument& argument) {
    return is_broadcast(argument.layout);
  });
}

// A second seed must confirm a bias before it counts.
void check_bias(Context& t, const OpCase& op_case, const Verdict& verdict) {
  if (!verdict.is_biased || op_case.fill != "random" || has_repeats(op_case)) return;
  const CallData data(op_case, t.seed() ^ 0x9E3779B97F4A7C15u);
  const Observation seen = observe(t, op_case, data, {});
  if (!judge(op_case, data, seen).is_biased) return;
  const std::string text = "results are biased: the mean signed error is " +
                           std::to_string(verdict.bias) + " half units in the last place";
  const bool is_faithful = resolve_numerics(seen.numerics(), BP_F32).faithful;
  if (is_faithful) {
    t.quality_warning(text);
  } else {
    t.add({text, "bias", "KERNEL-8"});
  }
}

// Says from what the worst element was computed, and by which call.
void detail_mistake(Context& t, const OpCase& op_case, const CallData& data,
                    const Observation& seen, const Verdict& verdict) {
  t.detail(kCallDetail, call_text(op_case));
  if (verdict.wrong_element < 0) return;
  t.detail(kValueDetail, verdict.value);
  t.detail(kPlaceDetail, verdict.place);
  const Numerics numerics = expectation(op_case, data, seen.kernel->numerics).numerics;
  const std::string inputs =
      inputs_text(op_case, data, numerics, verdict.wrong_output, verdict.wrong_element);
  if (inputs.empty()) return;
  const OutputView& output = seen.outputs[verdict.wrong_output];
  t.detail(kInputsDetail, std::string(output.name) +
                              place_text(verdict.wrong_element, output.shape) +
                              " is computed from " + inputs);
}

}  // namespace

bool is_listed(const Context& t, const OpCase& op_case) {
  return unlisted(*t.target().properties, op_case).empty();
}

void require_listed(Context& t, const OpCase& op_case) {
  const std::string reason = unlisted(*t.target().properties, op_case);
  if (!reason.empty()) t.not_supported(reason);
}

Observation observe_native(Context& t, const OpCase& op_case, const CallData& data,
                           const Variant& variant) {
  require_listed(t, op_case);
  Observation seen;
  try {
    seen = observe(t, op_case, data, variant);
  } catch (const NoKernel& none) {
    t.not_supported("the backend has no kernel for this call: " + none.what);
  }
  if (seen.source != BP_KERNEL_NATIVE) t.not_supported("the backend has no kernel of its own");
  require_launched(t, op_case, seen);
  return seen;
}

void run_op_case(Context& t, const OpCase& op_case) {
  require_listed(t, op_case);
  t.progress("fill");
  const CallData data(op_case, t.seed());
  Observation seen;
  try {
    seen = observe(t, op_case, data, {});
  } catch (const NoKernel& none) {
    check_unclaimed(t, op_case, data);
    report_unserved(t, op_case, data, none.what);
  }
  if (seen.source != BP_KERNEL_NATIVE) check_unclaimed(t, op_case, data);
  report_source(t, op_case, data, seen);
  require_launched(t, op_case, seen);
  if (op_case.fails_on_device) return check_failing_stream(t, op_case, seen);
  const Verdict verdict = judge(op_case, data, seen);
  if (verdict.is_right()) {
    check_bias(t, op_case, verdict);
    return report_right(t, op_case, verdict);
  }
  t.progress("diagnose");
  const std::string cause = diagnose(t, op_case, data, seen, verdict);
  const bool is_layout = cause == "offset" || cause == "broadcast" || cause == "stride";
  t.metric("margin", verdict.margin);
  detail_mistake(t, op_case, data, seen, verdict);
  t.add({verdict.message, cause, is_layout ? "TENSOR-1" : verdict.tag});
}

}  // namespace bp::conformance
