#include "conformance/cases/engine/op_flight.hpp"

#include <cstddef>
#include <utility>

#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/required_layouts.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kLandingNs = 20'000'000'000;  // As for every launch of an op case.

}  // namespace

bool makes_plans(const bp_kernel& kernel) {
  const bool knows_plans = kernel.struct_size >= offsetof(bp_kernel, plan_release) + sizeof(void*);
  return knows_plans && kernel.prepare != nullptr;
}

bp_status OwnPlan::release() {
  if (plan_ == nullptr) return BP_OK;
  return kernel_->plan_release(kernel_, std::exchange(plan_, nullptr));
}

Flight::Flight(Context& t, const OpCase& op_case, CallData data)
    : t_(t),
      case_(op_case),
      data_(std::move(data)),
      stream_(t),
      call_(t, op_case, data_, {}, stream_.get()) {
  bp_kernel_choice choice{};
  const bp_status status =
      bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, case_.op, call_.frame().data(), &choice);
  bp_error_clear();
  if (status != BP_OK) return;
  kernel_ = choice.kernel;
  is_direct_ = !requires_layouts(*kernel_);
  if ((kernel_->flags & BP_KERNEL_TAKES_SCALAR) == 0) call_.materialize_scalars(kernel_->flags);
  words_ = call_.frame().fitted(kernel_->args_size_bytes);
  make_workspace(is_direct_ ? ask().required : 0);
}

WorkspaceBytes Flight::ask() const {
  WorkspaceBytes bytes;
  t_.require_ok(ask_for_workspace(*kernel_, t_.target().device, 0, words_.data(), bytes),
                "workspace_size");
  return bytes;
}

WorkspaceBytes Flight::ask_without_buffers() {
  call_.strip_buffers();
  words_ = call_.frame().fitted(kernel_->args_size_bytes);
  return ask();
}

void Flight::make_workspace(uint64_t size_bytes) {
  workspace_ = std::make_shared<Workspace>(memory_place(t_, stream_.get()), size_bytes);
}

std::unique_ptr<OwnPlan> Flight::make_plan() const {
  if (!is_direct_ || !makes_plans(*kernel_)) return nullptr;
  const bp_prepare_desc desc{.struct_size = sizeof(desc), .struct_type = BP_STRUCT_PREPARE_DESC};
  bp_plan* plan = nullptr;
  const bp_status status =
      kernel_->prepare(kernel_, t_.target().device, &desc, words_.data(), &plan);
  if (status == BP_UNSUPPORTED) {
    bp_error_clear();
    return nullptr;
  }
  t_.require_ok(status, "prepare");
  auto own = std::make_unique<OwnPlan>(*kernel_, plan);
  return info_of(*own).packed_size_bytes == 0 ? std::move(own) : nullptr;
}

bp_plan_info Flight::info_of(const OwnPlan& plan) const {
  bp_plan_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_PLAN_INFO};
  t_.require_ok(kernel_->plan_info(kernel_, plan.get(), &info), "plan_info");
  return info;
}

void Flight::use(const OwnPlan* plan) {
  plan_ = plan;
  if (plan != nullptr) make_workspace(info_of(*plan).workspace_required_bytes);
}

void Flight::prepare(Poison poison) {
  call_.prepare(poison);
  workspace_->poison(poison);
}

bp_status Flight::launch() const {
  if (!is_direct_) {
    return bp_kernel_launch(&t_.target(), stream_.get(), 0, kernel_, call_.frame().data());
  }
  const bp_launch launch{.device = t_.target().device,
                         .stream = stream_.get(),
                         .workspace = workspace_->ref(),
                         .plan = plan_ == nullptr ? nullptr : plan_->get()};
  return kernel_->launch(kernel_, &launch, words_.data());
}

bool Flight::has_changed(bp_stream* reader) {
  call_.finish(reader);
  return !call_.is_untouched();
}

Verdict Flight::land(bp_status status, const std::string& text) {
  const auto failed = [&](const char* what, bp_status with, const std::string& why) {
    t_.fail({case_.id() + ": " + what + bp_status_name(with) + ": " + why, "launch", "KERNEL-8"});
  };
  if (status != BP_OK) failed("the launch failed: ", status, text);
  const bp_stream_ops& streams = *t_.target().streams;
  const bp_status end = streams.synchronize(streams.self, stream_.get(), kLandingNs);
  if (end != BP_OK) failed("the stream failed: ", end, bp_error_text());
  call_.finish();
  Observation seen;
  seen.kernel = kernel_;
  seen.source = BP_KERNEL_NATIVE;
  call_.look(true, seen);
  // After one launch, an element that holds its poison may be right. If not, its value is wrong.
  for (OutputView& output : seen.outputs) {
    output.is_unwritten.assign(output.is_unwritten.size(), false);
  }
  workspace_->look(seen);
  return judge(case_, data_, seen);
}

}  // namespace bp::conformance
