// Cases for the layouts that a kernel prefers: a launch with arguments in these layouts must give
// the same as a launch with strides. There is one case for each op, over the first plain rows of
// each dtype.
#include <algorithm>
#include <cstring>
#include <memory>

#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/engine/op_workspace.hpp"
#include "conformance/cases/layouts/layout_fixtures.hpp"
#include "conformance/cases/rules/rules.hpp"
#include "conformance/required_layouts.hpp"

namespace bp::conformance {
namespace {

// A tensor argument and the layout that the kernel prefers for it.
struct Chosen {
  const TensorArgument* argument;
  OwnedLayout layout;
};

const bp_tensor* tensor_of(const OpCase& row, const Frame& frame, std::string_view name) {
  const bp_tensor* tensor = nullptr;
  const auto* const bytes = static_cast<const std::byte*>(frame.data());
  std::memcpy(&tensor, bytes + op_info(row.op).member(name).offset, sizeof(tensor));
  return tensor;
}

// One call of one kernel, launched with some of its arguments in layouts.
class LaidCall {
 public:
  LaidCall(Context& t, const OpCase& row)
      : t_(t),
        row_(row),
        data_(row, t.seed()),
        stream_(t),
        call_(t, row, data_, {}, stream_.get()) {}

  // Returns false if the backend has no kernel for the call.
  bool find() {
    bp_kernel_choice choice{};
    const bp_status status =
        bp_kernel_find(&t_.target(), 0, BP_KERNEL_NATIVE, row_.op, call_.frame().data(), &choice);
    bp_error_clear();
    if (status != BP_OK) return false;
    kernel_ = choice.kernel;
    if ((kernel_->flags & BP_KERNEL_TAKES_SCALAR) == 0) call_.materialize_scalars(kernel_->flags);
    return true;
  }

  // Returns the kernel's preferences, which must be the same for tensors without memory.
  std::vector<Chosen> preferences() {
    Call bare(t_, row_, data_, {}, stream_.get());
    bare.strip_buffers();
    const std::vector<uint64_t> words = call_.frame().fitted(kernel_->args_size_bytes),
                                bare_words = bare.frame().fitted(kernel_->args_size_bytes);
    std::vector<Chosen> chosen;
    for (const TensorArgument& argument : row_.tensors) {
      if (op_info(row_.op).member(argument.name).is_list()) continue;
      const uint32_t number = tensor_argument(row_.op, argument.name);
      OwnedLayout layout = preferred_layout(t_, *kernel_, number, words.data());
      const OwnedLayout without = preferred_layout(t_, *kernel_, number, bare_words.data());
      t_.expect(are_equal(t_, layout.get(), without.get()),
                row_.id() + ": the layout preferred of tensors without a buffer is the same");
      if (layout != nullptr) chosen.push_back({&argument, std::move(layout)});
    }
    return chosen;
  }

  // Launches over two kinds of poison, with the arguments of `chosen` in their layouts.
  Observation launch(const std::vector<const Chosen*>& chosen) {
    Observation seen;
    seen.kernel = kernel_;
    seen.source = BP_KERNEL_NATIVE;
    std::vector<std::unique_ptr<LaidTensor>> laid;
    Frame frame = call_.frame();
    for (const Chosen* each : chosen) {
      laid.push_back(std::make_unique<LaidTensor>(memory_place(t_, stream_.get()), *each->layout,
                                                  each->argument->dtype, each->argument->shape));
      frame.set_tensor(each->argument->name, laid.back()->view());
    }
    expect_found(frame);
    const bool is_direct = !requires_layouts(*kernel_) || chosen.size() == given_count();
    for (const Poison poison : {Poison::kNan, Poison::kOnes}) {
      launch_once(frame, chosen, laid, poison, is_direct, seen);
      if (seen.launch_status != BP_OK || seen.stream_status != BP_OK) return seen;
    }
    return seen;
  }

  // Returns whether the kernel takes no argument by strides.
  bool is_all_or_none() const { return requires_layouts(*kernel_); }

  Verdict judge(const Observation& seen) const { return bp::conformance::judge(row_, data_, seen); }

 private:
  // Requires that the host's selection accepts the layouts too.
  void expect_found(const Frame& frame) {
    bp_kernel_choice choice{};
    const bp_status status =
        bp_kernel_find(&t_.target(), 0, BP_KERNEL_NATIVE, row_.op, frame.data(), &choice);
    const std::string text = bp_error_text();
    bp_error_clear();
    t_.expect(status == BP_OK, row_.id() + ": no kernel is found for the layouts: " + text);
  }

  // Returns the number of tensors of the frame.
  size_t given_count() const {
    return static_cast<size_t>(std::ranges::count_if(row_.tensors, [&](const TensorArgument& a) {
      return op_info(row_.op).member(a.name).is_list() ||
             tensor_of(row_, call_.frame(), a.name) != nullptr;
    }));
  }

  // Launches through the host, which converts tensors that are by strides.
  void run_by_host(const Frame& frame, Observation& seen) {
    seen.launch_status = bp_kernel_launch(&t_.target(), stream_.get(), 0, kernel_, frame.data());
    if (seen.launch_status != BP_OK) return;
    const bp_stream_ops& streams = *t_.target().streams;
    seen.stream_status = streams.synchronize(streams.self, stream_.get(), kTimeoutNs);
  }

  // Runs the kernel with a workspace between canaries.
  void run(const Frame& frame, Poison poison, Observation& seen) {
    const std::vector<uint64_t> words = frame.fitted(kernel_->args_size_bytes);
    WorkspaceBytes bytes;
    seen.launch_status = ask_for_workspace(*kernel_, t_.target().device, 0, words.data(), bytes);
    if (seen.launch_status != BP_OK) return;
    Workspace workspace(memory_place(t_, stream_.get()), bytes.required);
    workspace.poison(poison);
    const bp_launch launch{
        .device = t_.target().device, .stream = stream_.get(), .workspace = workspace.ref()};
    seen.launch_status = kernel_->launch(kernel_, &launch, words.data());
    if (seen.launch_status != BP_OK) return;
    const bp_stream_ops& streams = *t_.target().streams;
    seen.stream_status = streams.synchronize(streams.self, stream_.get(), kTimeoutNs);
    if (seen.stream_status != BP_OK) return;
    workspace.look(seen);
  }

  void launch_once(const Frame& frame, const std::vector<const Chosen*>& chosen,
                   const std::vector<std::unique_ptr<LaidTensor>>& laid, Poison poison,
                   bool is_direct, Observation& seen) {
    call_.prepare(poison);
    for (size_t i = 0; i < chosen.size(); ++i) {
      laid[i]->poison(poison);
      if (chosen[i]->argument->role == Role::kOutput) continue;
      convert(t_, stream_.get(), laid[i]->view(), strided(*chosen[i]));
    }
    if (is_direct) {
      run(frame, poison, seen);
    } else {
      run_by_host(frame, seen);
    }
    if (seen.launch_status != BP_OK || seen.stream_status != BP_OK) {
      seen.status_text = bp_error_text();
      bp_error_clear();
      return;
    }
    for (size_t i = 0; i < chosen.size(); ++i) {
      const std::string damage = laid[i]->damage(chosen[i]->argument->name);
      if (seen.damage.empty()) seen.damage = damage;
      if (chosen[i]->argument->role == Role::kInput) continue;
      convert(t_, stream_.get(), strided(*chosen[i]), laid[i]->view());
    }
    bp::conformance::finish(t_, stream_.get());
    call_.finish();
    call_.look(poison == Poison::kNan, seen);
  }

  const bp_tensor* strided(const Chosen& chosen) const {
    return tensor_of(row_, call_.frame(), chosen.argument->name);
  }

  Context& t_;
  const OpCase& row_;
  const CallData data_;
  CaseStream stream_;
  Call call_;
  const bp_kernel* kernel_ = nullptr;
};

// Returns a set for each preferred argument alone, and one with all of them; only the latter if it
// is all or none.
std::vector<std::vector<const Chosen*>> sets_of(const std::vector<Chosen>& chosen,
                                                bool is_all_or_none) {
  std::vector<std::vector<const Chosen*>> sets;
  std::vector<const Chosen*> all;
  for (const Chosen& each : chosen) {
    if (!is_all_or_none) sets.push_back({&each});
    all.push_back(&each);
  }
  if (all.size() > 1 || (is_all_or_none && !all.empty())) sets.push_back(std::move(all));
  return sets;
}

std::string text_of(const OpCase& row, const std::vector<const Chosen*>& set) {
  std::string text = row.id() + ", in layouts:";
  for (const Chosen* each : set) {
    text += " " + std::string(each->argument->name) + " as " +
            (each->layout->name == nullptr ? "?" : each->layout->name);
  }
  return text + ": ";
}

// Checks one row, and returns the number of launches.
size_t check_row(Context& t, const OpCase& row) {
  LaidCall call(t, row);
  if (!call.find()) return 0;
  const std::vector<Chosen> chosen = call.preferences();
  const auto sets = sets_of(chosen, call.is_all_or_none());
  for (const auto& set : sets) {
    const std::string where = text_of(row, set);
    const Observation seen = call.launch(set);
    if (seen.launch_status != BP_OK || seen.stream_status != BP_OK) {
      const bool is_launched = seen.launch_status == BP_OK;
      t.fail({where + (is_launched ? "the stream failed: " : "the launch failed: ") +
                  bp_status_name(is_launched ? seen.stream_status : seen.launch_status) + ": " +
                  seen.status_text,
              is_launched ? "stream_failure" : "launch", "LAYOUT-2"});
    }
    const Verdict verdict = call.judge(seen);
    if (!verdict.is_right()) t.fail({where + verdict.message, verdict.cause, "LAYOUT-2"});
  }
  return sets.size();
}

void preferred_layout_is_right(Context& t, const OpCases& rows) {
  layout_table(t);
  size_t count = 0;
  for (const OpCase& row : rows) {
    if (is_listed(t, row)) count += check_row(t, row);
  }
  if (count == 0) t.not_supported("no kernel of the op prefers a layout for any argument");
  t.metric("launches", static_cast<double>(count));
}

}  // namespace

void add_layout_rule(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  add_promise(cases, rows, group,
              {"preferred_layout_is_right", {"LAYOUT-2"}, preferred_layout_is_right});
}

}  // namespace bp::conformance
