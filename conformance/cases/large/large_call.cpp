#include "conformance/cases/large/large_call.hpp"

#include <algorithm>
#include <cstdio>
#include <list>
#include <stdexcept>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/engine/launch_watch.hpp"
#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/engine/op_workspace.hpp"
#include "conformance/cases/large/repeated_tensor.hpp"
#include "conformance/required_layouts.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

// Calls up to this size are launched again and again.
constexpr uint64_t kMostWatchedBytes = uint64_t{1} << 21;
constexpr uint64_t kHugeBytes = uint64_t{1} << 30;
// Level S of the suite ends at tensors of this size.
constexpr uint64_t kLevelBytes = uint64_t{1} << 31;

uint64_t bytes_of(bp_dtype dtype, const Shape& shape) {
  return static_cast<uint64_t>(element_count(shape)) * element_size(dtype);
}

std::string place_text(int64_t element, const Shape& shape) {
  std::string text = "[";
  for (const int64_t c : coordinates(element, shape)) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(c);
  }
  return text + "]";
}

std::string value_text(bp_dtype dtype, DoubleDouble value) {
  if (!is_float(dtype)) return std::to_string(to_int64(value));
  return short_text(value.hi, dtype == BP_F64 ? 17 : 9);
}

// Returns "from element 65536 on": the largest power of two that all wrong elements have behind
// them, where chunks, grids and counters end.
std::string boundary_text(const WrongElements& wrong) {
  for (int bits = 31; bits >= 10; --bits) {
    const int64_t boundary = int64_t{1} << bits;
    if (wrong.first >= boundary) return ", all behind element 2^" + std::to_string(bits);
  }
  return "";
}

class Run {
 public:
  Run(Context& t, const LargeCall& call)
      : t_(t), call_(call), data_(call.period, t.seed()), stream_(t), frame_(call.period.op) {
    const bool is_huge = conformance::bytes_of(call) > kHugeBytes;
    if (is_huge) require_room();
    for (size_t i = 0; i < call.growths.size(); ++i) {
      const TensorArgument& argument = call.period.tensors[i];
      const RepeatedTensor& added = tensors_.emplace_back(
          t, stream_.get(), argument, data_.tensors()[i], call.growths[i], is_huge);
      if (op_info(call.period.op).member(argument.name).is_list()) {
        frame_.add_tensor(argument.name, added.view());
      } else {
        frame_.set_tensor(argument.name, added.view());
      }
    }
    set_attributes(frame_, call.period);
    if (bp_op_check(call.period.op, frame_.data()) != BP_OK) {
      throw std::runtime_error(std::string("the case is not a legal call: ") + bp_error_text());
    }
  }

  void check() {
    const bp_kernel& kernel = choose();
    t_.progress("fill");
    for (RepeatedTensor& tensor : tensors_) tensor.upload();
    launch(kernel);
    t_.progress("verify");
    judge(kernel);
    if ((call_.flags & BP_LAUNCH_DETERMINISTIC) != 0) check_repetition(kernel);
    t_.progress("launch again");
    if (conformance::bytes_of(call_) > kMostWatchedBytes) return;
    check_leaks(kernel);
    check_wait(kernel);
  }

 private:
  // Ends the case as skipped if the first heap says that it has less memory than the call needs.
  void require_room() const {
    const bp_device_ops& devices = *t_.target().devices;
    uint64_t free_bytes = 0, total_bytes = 0;
    const bp_status status =
        devices.memory_info(devices.self, t_.target().device, 0, &free_bytes, &total_bytes);
    bp_error_clear();
    const uint64_t needed = conformance::bytes_of(call_);
    if (status != BP_OK || free_bytes / 4 * 3 >= needed) return;
    t_.skip("the call needs " + std::to_string(needed) + " bytes, which are more than three " +
            "quarters of the " + std::to_string(free_bytes) + " bytes that the device has free");
  }

  // Ends the case if no kernel of the backend takes the call. A kernel that takes the period has to
  // take the large call, up to the tensors of level S.
  const bp_kernel& choose() const {
    const OpCase& period = call_.period;
    bp_kernel_choice choice{};
    const bp_status status = bp_kernel_find(&t_.target(), call_.flags, BP_KERNEL_NATIVE, period.op,
                                            frame_.data(), &choice);
    if (status == BP_OK) {
      t_.detail("kernel", choice.kernel->name == nullptr ? "" : choice.kernel->name);
      return *choice.kernel;
    }
    const std::string reasons = bp_error_text();
    bp_error_clear();
    if (call_.flags != 0) t_.not_supported("no kernel takes the launch flags: " + reasons);
    if (!is_served(t_, period, data_, {}, BP_KERNEL_NATIVE)) {
      t_.not_supported("the backend has no kernel for this call: " + reasons);
    }
    const bool is_beyond = std::ranges::any_of(tensors_, [&](const RepeatedTensor& tensor) {
      return bytes_of(tensor.view()->dtype, tensor.growth().shape) >= kLevelBytes;
    });
    if (is_beyond) t_.not_supported("tensors of 2^31 bytes are not claimed: " + reasons);
    t_.missing("a kernel takes the call with " + shape_text(period.tensors[0].shape) +
               " elements, and none takes it with " + shape_text(call_.growths[0].shape) + ": " +
               reasons);
  }

  void launch(const bp_kernel& kernel) {
    t_.progress("launch");
    const bp_status status =
        bp_kernel_launch(&t_.target(), stream_.get(), call_.flags, &kernel, frame_.data());
    if (status == BP_UNSUPPORTED) {
      t_.fail({std::string("the kernel refuses a call that it claims: ") + bp_error_text(),
               "refused", "KERNEL-8"});
    }
    t_.require_ok(status, "launch");
    const bp_stream_ops& streams = *t_.target().streams;
    const bp_status end = streams.synchronize(streams.self, stream_.get(), UINT64_MAX);
    if (end == BP_OK) return;
    const std::string text = bp_error_text();
    bp_error_clear();
    t_.fail({std::string("the stream failed: ") + bp_status_name(end) + ": " + text,
             "stream_failure", "KERNEL-8"});
  }

  // Large calls are where kernels begin to use memory and threads of their own.
  void check_leaks(const bp_kernel& kernel) {
    LeakWatch watch(t_);
    std::string text;
    const auto launch_watched = [&](From from) {
      const How how{from, &watch};
      how.begin(t_, stream_.get());
      const bp_status status = launch_from(t_, from, text, [&] {
        return bp_kernel_launch(&t_.target(), stream_.get(), call_.flags, &kernel, frame_.data());
      });
      if (status != BP_OK) add_failure("from a new thread", status, text);
      if (status != BP_OK || !ends_well("from a new thread")) return false;
      how.end();
      return true;
    };
    for (int i = 0; i < 2; ++i) {
      if (!launch_watched(From::kNewThread)) return;
    }
    if (watch.is_suspect()) look_for_leak(watch, kernel, launch_watched);
  }

  // Launches while the stream waits. Only a kernel that needs nothing of the host is launched, so
  // that the host does not wait either.
  void check_wait(const bp_kernel& kernel) {
    const bool has_scalar = std::ranges::any_of(call_.period.attributes, [](const Attribute& a) {
      return std::holds_alternative<bp_scalar>(a.value);
    });
    const bool takes_scalar = (kernel.flags & BP_KERNEL_TAKES_SCALAR) != 0;
    if (requires_layouts(kernel) || !can_hold_streams(t_) || (has_scalar && !takes_scalar)) return;
    if (has_layers(t_)) return;  // Some wait for the results.
    const std::vector<uint64_t> words = frame_.fitted(kernel.args_size_bytes);
    WorkspaceBytes bytes;
    t_.require_ok(ask_for_workspace(kernel, t_.target().device, call_.flags, words.data(), bytes),
                  "workspace_size");
    if (bytes.required != 0) return;
    const bp_launch launch{
        .device = t_.target().device, .stream = stream_.get(), .flags = call_.flags};
    HeldStream held(t_, stream_.get());
    const bp_status status = kernel.launch(&kernel, &launch, words.data());
    const std::string text = status == BP_OK ? "" : bp_error_text();
    bp_error_clear();
    const bool was_late = held.done();
    held.open();
    if (status != BP_OK) add_failure("while its stream waited", status, text);
    if (status != BP_OK || !ends_well("while its stream waited") || !was_late) return;
    t_.add({"launch() did not return while its stream waited for an event", "blocks", "KERNEL-3"});
  }

  void add_failure(const std::string& when, bp_status status, const std::string& text) {
    t_.add({"the call was right once, and failed when it was launched again " + when + ": " +
                bp_status_name(status) + ": " + text,
            "refused", "KERNEL-8"});
  }

  bool ends_well(const char* when) {
    const bp_stream_ops& streams = *t_.target().streams;
    const bp_status status = streams.synchronize(streams.self, stream_.get(), UINT64_MAX);
    if (status == BP_OK) return true;
    add_failure(when, status, bp_error_text());
    bp_error_clear();
    return false;
  }

  // Launches again over new poison and compares the bits.
  void check_repetition(const bp_kernel& kernel) {
    std::vector<std::vector<std::byte>> before;
    for (RepeatedTensor& tensor : tensors_) before.push_back(tensor.bytes());
    for (RepeatedTensor& tensor : tensors_) tensor.upload();
    launch(kernel);
    size_t i = 0;
    for (RepeatedTensor& tensor : tensors_) {
      if (tensor.bytes() != before[i]) {
        t_.add({std::string(data_.tensors()[i].name) +
                    " differs between two launches with BP_LAUNCH_DETERMINISTIC",
                "nondeterministic", "KERNEL-6"});
      }
      ++i;
    }
  }

  void judge(const bp_kernel& kernel) {
    bp_numerics declared = kernel.numerics == nullptr ? bp_numerics{} : *kernel.numerics;
    if ((call_.flags & BP_LAUNCH_STRICT_F32) != 0) declared.products = BP_PRODUCTS_NATIVE;
    const Expectation wanted =
        expectation(call_.period, data_, kernel.numerics == nullptr ? nullptr : &declared);
    size_t output = 0, i = 0;
    for (RepeatedTensor& tensor : tensors_) {
      const HostTensor& period = data_.tensors()[i++];
      if (const std::string damage = tensor.damage(); !damage.empty()) {
        t_.add({std::string(period.name).append(": ").append(damage), "canary", "KERNEL-9"});
      }
      if (period.role == Role::kInput) {
        const std::string change = tensor.change();
        if (change.empty()) continue;
        t_.add(
            {std::string(period.name).append(": ").append(change), "input_modified", "KERNEL-9"});
        continue;
      }
      const Expected& expected = wanted.outputs.at(output++);
      RepeatedJudge judge(period, expected, wanted.numerics);
      const WrongElements wrong = tensor.wrong_elements(judge);
      if (wrong.count > 0) report(tensor, period, expected, wanted.numerics, wrong);
    }
  }

  void report(const RepeatedTensor& tensor, const HostTensor& period, const Expected& expected,
              const Numerics& numerics, const WrongElements& wrong) {
    const Shape& shape = tensor.growth().shape;
    const Exact exact = exact_at(expected, wrong.slot);
    char bits[24];
    std::snprintf(bits, sizeof(bits), "0x%llx", static_cast<unsigned long long>(wrong.bits));
    std::string text = std::string(period.name) + place_text(wrong.first, shape) + " is " +
                       value_text(period.dtype, wrong.value) + " (" + bits + "), not " +
                       value_text(period.dtype, exact.value);
    if (is_float(period.dtype) && !isnan(exact.value) && exact.bound != 0) {
      const Interval interval = accepted_interval(period.dtype, exact, numerics);
      text += " within [" + value_text(period.dtype, interval.low) + ", " +
              value_text(period.dtype, interval.high) + "]";
    }
    text += "; " + std::to_string(wrong.count) + " of " + std::to_string(element_count(shape)) +
            " elements are wrong, the first is element " + std::to_string(wrong.first) +
            " and the last element " + std::to_string(wrong.last) + boundary_text(wrong);
    if (wrong.are_unwritten) text += "; they still hold their values from before the launch";
    t_.add({text, wrong.are_unwritten ? "unwritten" : "values",
            wrong.are_unwritten ? "KERNEL-9" : "KERNEL-8"});
  }

  Context& t_;
  const LargeCall& call_;
  const CallData data_;
  const CaseStream stream_;
  Frame frame_;
  std::list<RepeatedTensor> tensors_;
};

}  // namespace

uint64_t bytes_of(const LargeCall& call) {
  uint64_t total = 0;
  for (size_t i = 0; i < call.growths.size(); ++i) {
    total += bytes_of(call.period.tensors[i].dtype, call.growths[i].shape);
  }
  return total;
}

void run_large_call(Context& t, const LargeCall& call) {
  require_listed(t, call.period);
  Run(t, call).check();
}

}  // namespace bp::conformance
