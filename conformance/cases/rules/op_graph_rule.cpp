// Cases for kernels with the flag `capturable`: a replay must give bit for bit what the launch
// would give now. There is one case for each op, over its widest plain row.
#include <memory>

#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/engine/op_workspace.hpp"
#include "conformance/cases/fixtures/graph_fixtures.hpp"
#include "conformance/cases/rules/rules.hpp"
#include "conformance/required_layouts.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kOtherData = 0x9E3779B97F4A7C15u;

// A launch of one kernel that can be submitted or captured, and whose results can be read.
class Trial {
 public:
  Trial(Context& t, const OpCase& row)
      : t_(t),
        row_(row),
        data_(row, t.seed()),
        stream_(t),
        call_(t, row, data_, {}, stream_.get()) {
    call_.materialize_scalars(0);  // A replay reads values that vary from tensors.
    bp_kernel_choice choice{};
    const bp_status status =
        bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, row.op, call_.frame().data(), &choice);
    if (status != BP_OK) t.not_supported("the backend has no kernel for this call");
    kernel_ = choice.kernel;
    if (requires_layouts(*kernel_)) {
      t.not_supported(std::string(kernel_->name) +
                      " takes layouts alone, and the conversions of a captured launch by strides "
                      "need the memory of bp_capture_begin()");
    }
    words_ = call_.frame().fitted(kernel_->args_size_bytes);
    make_workspace();
  }

  const bp_kernel& kernel() const { return *kernel_; }
  bp_stream* stream() const { return stream_.get(); }

  // Writes other elements to the same memory.
  void change_data() {
    CallData other(row_, t_.seed() ^ kOtherData);
    for (size_t i = 0; i < other.tensors().size(); ++i) {
      data_.tensors()[i].data = std::move(other.tensors()[i].data);
    }
  }

  void prepare(Poison poison) {
    call_.prepare(poison);
    workspace_->poison(poison);
  }

  bp_status launch() const {
    const bp_launch launch{
        .device = t_.target().device, .stream = stream_.get(), .workspace = workspace_->ref()};
    return kernel_->launch(kernel_, &launch, words_.data());
  }

  // Requires that the host refuses to capture a launch whose workspace is the host's, because
  // another launch may have that workspace at the time of a replay.
  void check_host_launch() const {
    if (workspace_->ref().buffer == nullptr) return;
    const bp_status status =
        bp_kernel_launch(&t_.target(), stream_.get(), 0, kernel_, call_.frame().data());
    t_.expect_refused(status, BP_INVALID_ARGUMENT, "a launch with workspace of the host's cache");
  }

  bool is_untouched() {
    call_.finish();
    return call_.is_untouched();
  }

  // Waits, and reads the outputs.
  Observation look() {
    bp::conformance::finish(t_, stream_.get());
    call_.finish();
    Observation seen;
    seen.kernel = kernel_;
    seen.source = BP_KERNEL_NATIVE;
    call_.look(true, seen);
    workspace_->look(seen);
    return seen;
  }

  Observation eager(Poison poison) {
    prepare(poison);
    t_.require_ok(launch(), "launch");
    return look();
  }

  bool is_right(const Observation& seen) const { return judge(row_, data_, seen).is_right(); }

 private:
  void make_workspace() {
    WorkspaceBytes bytes;
    t_.require_ok(ask_for_workspace(*kernel_, t_.target().device, 0, words_.data(), bytes),
                  "workspace_size");
    workspace_ = std::make_unique<Workspace>(memory_place(t_, stream_.get()), bytes.required);
  }

  Context& t_;
  const OpCase& row_;
  CallData data_;
  CaseStream stream_;
  Call call_;
  const bp_kernel* kernel_ = nullptr;
  std::vector<uint64_t> words_;
  std::unique_ptr<Workspace> workspace_;
};

// Requires the same bits, or right results if the kernel does not promise the same bits.
void check_replay(Context& t, const Trial& trial, const Observation& eager,
                  const Observation& replayed, const std::string& when) {
  if (!replayed.damage.empty()) t.add({when + ": " + replayed.damage, "canary", "KERNEL-9"});
  if ((trial.kernel().flags & BP_KERNEL_DETERMINISTIC) == 0) {
    if (!trial.is_right(replayed)) t.add({when + ": the replay is not right", "values", ""});
    return;
  }
  for (size_t k = 0; k < eager.outputs.size(); ++k) {
    const OutputView &a = eager.outputs[k], &b = replayed.outputs[k];
    for (size_t i = 0; i < a.bits.size(); ++i) {
      if (a.bits[i] == b.bits[i]) continue;
      t.add({when + ": " + std::string(a.name) + ": element " + std::to_string(i) +
                 " has the bits " + std::to_string(b.bits[i]) + ", and those of the launch are " +
                 std::to_string(a.bits[i]),
             "values", ""});
      return;
    }
  }
}

// Captures the launch. If the kernel has no flag `capturable`, the capture must be refused, and the
// case ends.
OwnedInstance capture(Context& t, Trial& trial) {
  Capturing capturing(t, trial.stream());
  const bp_status status = trial.launch();
  if ((trial.kernel().flags & BP_KERNEL_CAPTURABLE) == 0) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, "launch of a kernel that is not capturable");
    t.expect_eq(capturing.info().node_count, uint64_t{0}, "nodes");
    capturing.abandon();
    if (t.has_failed()) t.fail("a kernel that is not capturable was captured");
    t.not_supported(std::string(trial.kernel().name) + " has no BP_KERNEL_CAPTURABLE");
  }
  t.require_ok(status, "launch in a capture");
  const uint64_t node_count = capturing.info().node_count;
  trial.check_host_launch();
  t.expect_eq(capturing.info().node_count, node_count,
              "the number of nodes after the refused launch");
  t.expect(capturing.info().node_count >= 1, "a launch is a node");
  return instantiate(t, capturing.end());
}

void replay_equals_launch(Context& t, const OpCase& row) {
  graph_table(t);
  require_listed(t, row);
  Trial trial(t, row);
  const Observation first = trial.eager(Poison::kNan);
  trial.prepare(Poison::kOnes);
  const OwnedInstance instance = capture(t, trial);
  if (!trial.is_untouched()) t.add({"a captured launch ran", "ran", "GRAPH-1"});
  trial.prepare(Poison::kOnes);
  replay(t, instance, trial.stream());
  check_replay(t, trial, first, trial.look(), "first replay");
  trial.change_data();
  const Observation second = trial.eager(Poison::kNan);
  trial.prepare(Poison::kOnes);
  replay(t, instance, trial.stream());
  check_replay(t, trial, second, trial.look(), "replay with other elements");
}

}  // namespace

void add_graph_rule(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  for (const OpCase* row : widest_of_each_op(rows)) {
    if (row->fails_on_device) continue;
    Case entry;
    entry.id = "kernel.replay_equals_launch." + std::string(op_info(row->op).name);
    entry.tags = {"GRAPH-8"};
    entry.group = group;
    entry.op = row->op;
    entry.dtype = row->dtype;
    const auto shared = std::make_shared<const OpCase>(*row);
    entry.run = [shared](Context& t) { replay_equals_launch(t, *shared); };
    cases.push_back(std::move(entry));
  }
}

}  // namespace bp::conformance
