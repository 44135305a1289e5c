// diff: runs each launch on a second backend too, on copies of its tensors, and compares the
// outputs element by element. The first op whose results differ is the first line of the log.
//
//   launch(args) --> copies of the buffers behind the tensors, before --> second backend
//        |                                                                     |
//   first backend --> copies of the outputs  --------- compared with --------- outputs
//
// Both backends begin with the same bits, so a difference comes from this launch, and from nothing
// before it. The op's class in ops.def says how far two right results may be apart (tolerance_for).
// A sum may cancel until only its rounding errors are left. These are measured by the sum of the
// magnitudes of its terms, which the second backend computes too, as the same op on inputs without
// signs.
//
// The layer waits for each launch and copies through the host, so it is slow. A stream that waits
// for an action which the same thread takes later would wait for ever.
#include <cmath>
#include <mutex>
#include <optional>
#include <set>

#include "registry/boundary/fail.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/calls/call.hpp"
#include "registry/calls/qualifiers.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/layers/at_exit.hpp"
#include "registry/layers/directory.hpp"
#include "registry/layers/elements.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/second_backend.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

constexpr size_t kNamedTensors = 8;  // The number of arguments that a report names.

// What the rounding errors of a class are relative to.
enum class Scale { kNone, kElement, kTensor, kSums };

Scale scale_of(std::string_view numerics) {
  if (numerics == "E0" || numerics == "R3") return Scale::kNone;
  if (numerics == "E1" || numerics == "E1d" || numerics == "E2") return Scale::kElement;
  return numerics == "R1" ? Scale::kSums : Scale::kTensor;
}

// The default is 256 roundings of the type in which ops compute, and one rounding of each result to
// a narrower dtype. The bounds for one backend alone are a few roundings for functions, and 8 *
// sqrt(K) roundings for a sum of K terms. A `bound` below 0 stands for the default.
double relative_error(bp_dtype dtype, double bound) {
  if (bound == 0) return 0;
  const double inside = bound > 0 ? bound : dtype == BP_F64 ? 0x1p-45 : 0x1p-16;
  return inside + (dtype == BP_F16 ? 0x1p-10 : dtype == BP_BF16 ? 0x1p-7 : 0);
}

// A launch that is compared.
struct Compared {
  uint64_t number;
  const WrappedKernel& kernel;
  const core::OpRow& row;
  const bp_launch& launch;
  const void* args;
  std::vector<FrameTensor> tensors;
  Parts before, first, second;  // Before the launch, and after it on each backend.
};

class DiffLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status check() override {
    if (options().text("backend").empty()) {
      return fail(BP_INVALID_ARGUMENT,
                  "layer diff: option diff.backend is missing; give the name or path of the "
                  "backend to compare with");
    }
    const bp_status status = options().number("diff", "fail", 1, fails_);
    const std::string& bound = options().text("bound");
    if (status != BP_OK || bound.empty()) return status;
    bound_ = parse_double(bound).value_or(-1);
    if (std::isfinite(bound_) && bound_ >= 0) return BP_OK;
    return fail(BP_INVALID_ARGUMENT,
                "layer option diff.bound is '" + bound + "', allowed are numbers from 0");
  }

  bp_status begin(const bp_backend& /*next*/) override {
    const bp_status status = second_.load(setup(), options().text("backend"));
    if (status == BP_OK) {
      at_exit_.emplace([this] { summarize(); });
      return status;
    }
    return fail(status, "layer option diff.backend: " + std::string(bp_error_text()));
  }

  void on_table(AnyTable table) override { directory_.add(table); }

  bool on_kernel(WrappedKernel& kernel) override {
    const std::string& glob = options().text("kernels");
    if (glob.empty() || fits_glob(kernel.kernel.name, glob)) {
      replace<&DiffLayer::launch>(kernel.kernel.launch);
    } else {
      replace<&DiffLayer::count_launch>(kernel.kernel.launch);
    }
    return true;
  }

  bp_status shut_down(const bp_backend& next, uint64_t timeout_ns) override {
    const bp_status status = next.shutdown(next.self, timeout_ns);
    if (status == BP_TIMEOUT) return status;
    at_exit_.reset();
    summarize();
    second_.unload();
    return status;
  }

  bp_status count_launch(const WrappedKernel& kernel, const bp_launch* launch, const void* args) {
    launch_count_.fetch_add(1, std::memory_order_relaxed);
    return kernel.next->launch(kernel.next, launch, args);
  }

  bp_status launch(const WrappedKernel& kernel, const bp_launch* launch, const void* args) {
    const uint64_t number = launch_count_.fetch_add(1, std::memory_order_relaxed) + 1;
    const auto pass_on = [&] { return kernel.next->launch(kernel.next, launch, args); };
    const core::OpRow* row = core::find_op(core::op_of(kernel.kernel));
    const std::string obstacle = obstacle_to(row, launch, args);
    if (!obstacle.empty()) {
      skip(op_words(core::op_of(kernel.kernel)), obstacle);
      return pass_on();
    }
    Compared c{.number = number,
               .kernel = kernel,
               .row = *row,
               .launch = *launch,
               .args = args,
               .tensors = frame_tensors(*row, args)};
    const bp_allocator_ops& memory = *directory_.allocator(launch->device);
    c.before = parts_of(c.tensors);
    bp_status status = read_parts(memory, launch->stream, c.before);
    if (status != BP_OK) return status;
    c.second = c.before;
    const Status other = second_.run(*row, launch->flags, args, c.second);
    status = pass_on();
    if (status != BP_OK) return status;
    if (!other.ok()) {
      skip(row->name, other.message);
      return status;
    }
    c.first = parts_of(c.tensors);
    status = read_parts(memory, launch->stream, c.first);
    return status == BP_OK ? compare(c) : status;
  }

 private:
  // Logs the summary: as information if all launches were compared and are alike, else as a
  // warning.
  void summarize() {
    const bool is_clean = report_count() == 0 && skipped_count_.load() == 0;
    log(is_clean ? BP_LOG_INFO : BP_LOG_WARNING,
        std::to_string(compared_count_.load()) + " launches were compared with " +
            second_.device_name() + ", " + std::to_string(report_count()) + " differ, " +
            std::to_string(skipped_count_.load()) + " were not compared" + first_);
  }

  // Returns why a launch cannot be compared, or "" if it can.
  std::string obstacle_to(const core::OpRow* row, const bp_launch* launch, const void* args) {
    if (row == nullptr || launch == nullptr || args == nullptr ||
        directory_.allocator(launch->device) == nullptr ||
        core::frame_size(args) < row->first_size_bytes() ||
        core::frame_size(args) > core::kMaxFrameBytes) {
      return "its frame is not known here";
    }
    const bp_stream_ops* streams = directory_.streams(launch->device);
    uint32_t is_capturing = 0;
    if (streams != nullptr && streams->is_capturing != nullptr &&
        streams->is_capturing(streams->self, launch->stream, &is_capturing) == BP_OK &&
        is_capturing != 0) {
      return "its stream is in a capture, in which nothing runs";
    }
    for (const FrameTensor& each : frame_tensors(*row, args)) {
      if (each.tensor->layout != nullptr) return each.name + " has a layout of the backend's own";
      if (core::is_qualified(*each.tensor)) {
        return each.name + " has flags, or a link that must be understood";
      }
    }
    return "";
  }

  bp_status compare(const Compared& c) {
    compared_count_.fetch_add(1, std::memory_order_relaxed);
    for (const FrameTensor& argument : c.tensors) {
      if (!argument.is_written || !c.first.contains(argument.tensor->buffer)) continue;
      const std::string difference = difference_in(c, *argument.tensor);
      if (!difference.empty()) return report_difference(c, argument, difference);
    }
    return BP_OK;
  }

  std::string difference_in(const Compared& c, const bp_tensor& tensor) {
    const Part& first = c.first.at(tensor.buffer);
    const Elements ours{&tensor, first.bytes.data(), first.begin};
    const Elements theirs{&tensor, c.second.at(tensor.buffer).bytes.data(), first.begin};
    const Scale scale = scale_of(c.row.numerics);
    Tolerance tolerance{.relative =
                            scale == Scale::kNone ? 0 : relative_error(tensor.dtype, bound_)};
    if (scale == Scale::kTensor) tolerance.scale = largest_magnitude(theirs);
    std::string difference = first_difference(ours, theirs, tolerance);
    if (difference.empty() || scale != Scale::kSums || tolerance.relative == 0) return difference;
    const Parts sums = sums_of_magnitudes(c);
    if (sums.empty()) return difference;
    tolerance.sums = sums.at(tensor.buffer).bytes.data();
    return first_difference(ours, theirs, tolerance);
  }

  // Returns the results of the launch on inputs without signs, or none if the second backend
  // refuses.
  Parts sums_of_magnitudes(const Compared& c) {
    Parts parts = c.before;
    for (const FrameTensor& each : c.tensors) {
      const auto part = parts.find(each.tensor->buffer);
      if (!each.is_read || part == parts.end()) continue;
      make_absolute(*each.tensor, part->second.bytes.data(), part->second.begin);
    }
    const Status status = second_.run(c.row, c.launch.flags, c.args, parts);
    return status.ok() ? parts : Parts{};
  }

  // Logs the first difference of each op. All differences are counted.
  bp_status report_difference(const Compared& c, const FrameTensor& argument,
                              const std::string& difference) {
    const std::string text = "launch " + std::to_string(c.number) + ", " + c.row.name + ": " +
                             argument.name + " of kernel " + c.kernel.kernel.name +
                             " is not what " + second_.device_name() + " gives: " + difference +
                             " (" + call_words(c) + ")";
    bool is_new = false;
    {
      const std::lock_guard lock(mutex_);
      is_new = differing_.insert(c.row.name).second;
      if (first_.empty()) {
        first_ =
            "; the first that differs is launch " + std::to_string(c.number) + ", " + c.row.name;
      }
    }
    if (is_new) {
      report(text);
    } else {
      count_report();
    }
    return fails_ != 0 ? fail(BP_INTERNAL, "layer diff: " + text) : BP_OK;
  }

  static std::string call_words(const Compared& c) {
    std::string text;
    for (size_t i = 0; i < c.tensors.size() && i < kNamedTensors; ++i) {
      bp_tensor shape = *c.tensors[i].tensor;
      shape.buffer = nullptr;
      text += (i == 0 ? "" : ", ") + c.tensors[i].name + " " + words(shape);
    }
    if (c.tensors.size() <= kNamedTensors) return text;
    return text + " and " + std::to_string(c.tensors.size() - kNamedTensors) + " more";
  }

  // Logs the first call of each op that is not compared.
  void skip(const std::string& op, const std::string& why) {
    skipped_count_.fetch_add(1, std::memory_order_relaxed);
    bool is_first = false;
    {
      const std::lock_guard lock(mutex_);
      is_first = skipped_.insert(op).second;
    }
    if (is_first) log(BP_LOG_INFO, op + " is not compared: " + why);
  }

  double bound_ = -1;
  uint64_t fails_ = 0;
  SecondBackend second_;
  Directory directory_;
  std::atomic<uint64_t> launch_count_ = 0, compared_count_ = 0, skipped_count_ = 0;
  std::mutex mutex_;
  // Guarded by mutex_: names of ops, and what the summary says of the first difference.
  std::set<std::string> differing_, skipped_;
  std::string first_;
  std::optional<AtExit> at_exit_;  // The last member, so that it ends first.
};

constexpr OptionInfo kDiffOptions[] = {
    {"backend", "name or path of the backend that it compares with"},
    {"bound",
     "relative error of floats in ops that are not exact; default 1.5e-5, of f64 3e-14; 0: every "
     "op is compared bit for bit"},
    {"fail", "1: a launch that differs fails; default 0"},
    {"kernels", "glob of the kernels that are compared; default all"}};

}  // namespace

constinit const LayerInfo kDiffLayer{"diff", "compares each launch with another backend",
                                     kDiffOptions, make_layer<DiffLayer>};

}  // namespace bp::layers
