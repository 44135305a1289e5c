// A perf case runs in this order:
//
//   two groups of data -> sets that together exceed the cache twice -> one set alone, for cached
//   results -> rotating launches, whose last round is verified in every set -> the data of the
//   other group at the same addresses, launched and verified once more
//
// The first result of each group is compared with the oracle, as `run` does it. Another result of
// the same group is right if it has the same bytes; else it is compared with the oracle too.
#include "conformance/perf/perf_case.hpp"

#include <algorithm>
#include <future>
#include <memory>

#include "conformance/cases/engine/host_call.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/engine/op_facts.hpp"
#include "conformance/perf/cost.hpp"
#include "conformance/perf/spread.hpp"
#include "conformance/perf/timing.hpp"
#include "conformance/perf/yardstick.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kMostSets = 256;
constexpr uint64_t kSecondGroup = 0x9E3779B97F4A7C15u;  // A number that is mixed into the seed of
                                                        // the case for the second group.

// Returns the dtype of a scalar: the one that its member names, that of the tensor in like(x), or
// acc(x) for an operand of a kernel that takes it.
bp_dtype scalar_dtype(const OpCase& op_case, const FrameMember& member, bp_kernel_flags flags) {
  const std::string_view rule = member.dtype;
  if (!rule.starts_with("like(")) return first_dtype(member);
  const std::string_view name = rule.substr(5, rule.size() - 6);
  const bp_dtype x = std::ranges::find(op_case.tensors, name, &TensorArgument::name)->dtype;
  const bool is_acc = member.kind == "operand" && (flags & BP_KERNEL_TAKES_ACC_OPERAND) != 0;
  return is_acc ? accumulator_of(x) : x;
}

// Returns the call with tensors in place of its inline scalars, for a kernel that takes no scalars.
OpCase without_scalars(OpCase op_case, bp_kernel_flags flags) {
  for (const Attribute& attribute : op_case.attributes) {
    const auto* scalar = std::get_if<bp_scalar>(&attribute.value);
    if (scalar == nullptr) continue;
    const FrameMember& member = op_info(op_case.op).member(attribute.name);
    const Shape shape = member.kind == "operand" ? op_case.tensors.front().shape : Shape{};
    const double value = scalar_value(*scalar).hi;
    op_case.input(attribute.name, scalar_dtype(op_case, member, flags), shape,
                  {FillKind::kUniform, value, value}, Layout::kBroadcastAll);
  }
  std::erase_if(op_case.attributes, [](const Attribute& attribute) {
    return std::holds_alternative<bp_scalar>(attribute.value);
  });
  return op_case;
}

// Returns the kernel for a call whose tensors have no memory yet.
const bp_kernel& kernel_for(Context& t, const OpCase& op_case) {
  HostCall call(op_case);
  for (size_t i = 0; i < op_case.tensors.size(); ++i) call.tensor(i).buffer = nullptr;
  return native_kernel(t, op_case.op, call.frame());
}

DataGroups make_groups(const OpCase& op_case, uint64_t seed) {
  auto second =
      std::async(std::launch::async, [&] { return CallData(op_case, seed ^ kSecondGroup); });
  CallData first(op_case, seed);
  return {std::move(first), second.get()};
}

size_t set_count(Context& t, uint64_t set_bytes, const PerfOptions& options) {
  const uint64_t wanted = 2 * options.cache_bytes / std::max<uint64_t>(set_bytes, 1) + 1;
  if (wanted > kMostSets) {
    t.detail("rotation", std::to_string(kMostSets) + " sets of " + std::to_string(set_bytes) +
                             " bytes do not exceed the cache of " +
                             std::to_string(options.cache_bytes) + " bytes twice");
  }
  return static_cast<size_t>(std::clamp<uint64_t>(wanted, 2, kMostSets));
}

// Judges the outputs of both groups.
class Verifier {
 public:
  Verifier(Context& t, const OpCase& op_case, const DataGroups& groups, const bp_kernel& kernel,
           CallSets& sets)
      : t_(t), case_(op_case), groups_(groups), kernel_(kernel), sets_(sets) {}

  // Judges the outputs of the first two sets on two threads, because the oracle is slow.
  void begin() {
    right_ = {sets_.read(0), sets_.read(1)};
    auto second = std::async(std::launch::async, [&] { return judged(right_[1], 1); });
    const Verdict first = judged(right_[0], 0);
    const Verdict other = second.get();
    require_right(first, "a timed launch");
    require_right(other, "a timed launch");
    t_.metric("margin", std::max(first.margin, other.margin));
  }

  void check(size_t set, size_t group, const char* what) {
    const CallSets::Outputs outputs = sets_.read(set);
    if (outputs != right_[group]) require_right(judged(outputs, group), what);
  }

 private:
  Verdict judged(const CallSets::Outputs& outputs, size_t group) const {
    Observation seen;
    seen.source = BP_KERNEL_NATIVE;
    seen.kernel = &kernel_;
    seen.outputs = sets_.views(outputs);
    return judge(case_, groups_[group], seen);
  }

  void require_right(const Verdict& verdict, const char* what) {
    if (verdict.is_right()) return;
    t_.fail({std::string("the result of ") + what + " is wrong: " + verdict.message, verdict.cause,
             verdict.tag});
  }

  Context& t_;
  const OpCase& case_;
  const DataGroups& groups_;
  const bp_kernel& kernel_;
  CallSets& sets_;
  std::array<CallSets::Outputs, 2> right_;
};

void verify(Verifier& verifier, CallSets& sets, Launcher& launcher) {
  verifier.begin();
  for (size_t set = 2; set < sets.count(); ++set) verifier.check(set, set % 2, "a timed launch");
  for (size_t set = 0; set < 2; ++set) {
    sets.restore(set, 1 - set);
    launcher.launch(sets.frame(set));
    launcher.wait();
    verifier.check(set, 1 - set, "a launch on other data at the same addresses");
  }
}

std::string microseconds_text(double seconds) { return fixed_text(seconds * 1e6, 1) + " us"; }

void check_repeated(Context& t, const RepeatTimes& times) {
  const double changed = spread_of(times.changed).median;
  const double repeated = spread_of(times.repeated).median;
  t.metric("changed_s", changed);
  t.metric("repeated_s", repeated);
  if (!times.is_cached()) return;
  t.add({"a launch on the input of the launch before takes " + microseconds_text(repeated) +
             ", and " + microseconds_text(changed) +
             " if one element of it has changed: results are kept, not computed",
         "cached", "KERNEL-8"});
}

}  // namespace

void run_perf_case(Context& t, const OpCase& given, const PerfOptions& options) {
  require_listed(t, given);
  const Cost cost = cost_of(given);
  t.metric("bytes_read", cost.bytes_read);
  t.metric("bytes_written", cost.bytes_written);
  t.metric("bytes_updated", cost.bytes_updated);
  t.metric("flops", cost.flops);
  const bp_kernel& kernel = kernel_for(t, given);
  t.detail("kernel", kernel.name == nullptr ? "" : kernel.name);
  const bool takes_scalars = (kernel.flags & BP_KERNEL_TAKES_SCALAR) != 0;
  const OpCase op_case = takes_scalars ? given : without_scalars(given, kernel.flags);

  t.progress("fill");
  const DataGroups groups = make_groups(op_case, t.seed());
  const OwnedStream stream = make_stream(t);
  CallSets sets(t, op_case, groups, stream.get(),
                set_count(t, CallSets::size_bytes(op_case), options));
  for (size_t set = 0; set < sets.count(); ++set) sets.restore(set, set % 2);
  Launcher launcher(t, kernel, sets.frame(0), stream.get());

  t.progress("time");
  const std::optional<RepeatTimes> repeated = time_repeated(sets, launcher, t.seed());
  const auto copies = copy_yardstick(t, options, stream.get());
  const auto products =
      cost.flops == 0 ? nullptr
                      : product_yardstick(t, bp_dtype_from_name(given.dtype.c_str()), stream.get());
  std::vector<Yardstick*> yardsticks = {copies.get()};
  std::vector<std::string> names = {kCopyYardstick};
  if (products != nullptr) {
    yardsticks.push_back(products.get());
    names.emplace_back(kProductYardstick);
  }
  const GroupTimes times = time_rotating(sets, launcher, yardsticks, options);
  for (const auto& [name, value] : metrics_of(times, names)) t.metric(name, value);
  t.metric(kPartYardstick, part_seconds(t, options, stream.get()));
  t.metric("sets", static_cast<double>(sets.count()));
  t.metric("set_bytes", static_cast<double>(CallSets::size_bytes(op_case)));
  if (repeated) check_repeated(t, *repeated);

  t.progress("verify");
  Verifier verifier(t, op_case, groups, kernel, sets);
  verify(verifier, sets, launcher);
}

}  // namespace bp::conformance
