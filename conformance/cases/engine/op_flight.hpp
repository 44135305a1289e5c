// A call of an op that is submitted now and waited for later, so that several are in flight.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/cases/engine/op_workspace.hpp"

namespace bp::conformance {

// Returns whether the kernel has the entries of plans.
bool makes_plans(const bp_kernel& kernel);

// A plan of the backend, which this object ends.
class OwnPlan {
 public:
  OwnPlan(const bp_kernel& kernel, bp_plan* plan) : kernel_(&kernel), plan_(plan) {}
  ~OwnPlan() { static_cast<void>(release()); }
  OwnPlan(const OwnPlan&) = delete;

  bp_plan* get() const { return plan_; }
  bp_status release();

 private:
  const bp_kernel* kernel_;
  bp_plan* plan_;
};

// The call of a case on a stream of its own, with the kernel of the backend that takes it. A kernel
// that takes layouts alone is launched through the host.
class Flight {
 public:
  Flight(Context& t, const OpCase& op_case, CallData data);

  // Returns the kernel of the backend; NULL if it has none for the call. The functions below need
  // one.
  const bp_kernel* kernel() const { return kernel_; }
  bool is_direct() const { return is_direct_; }
  bp_stream* stream() const { return stream_.get(); }
  const void* frame() const { return words_.data(); }

  // Returns a plan of the kernel without constant tensors; NULL if it makes none for the call, or
  // one that has something to pack.
  std::unique_ptr<OwnPlan> make_plan() const;
  // Makes launch() use the plan, which must live until land(); NULL: none.
  void use(const OwnPlan* plan);

  // Asks the kernel for the workspace of the call. The kernel is direct.
  WorkspaceBytes ask() const;
  // Asks the same for tensors without memory. The flight cannot be launched any more.
  WorkspaceBytes ask_without_buffers();
  // Makes launch() use a workspace of `size_bytes`, or that of another flight.
  void make_workspace(uint64_t size_bytes);
  void share_workspace(const Flight& other) { workspace_ = other.workspace_; }

  // Uploads the inputs, and poisons outputs and workspace.
  void prepare(Poison poison);

  // Submits the call to the stream. It may run on any thread; the caller reads the error text.
  bp_status launch() const;

  // Reads the memory of the call through another stream, and returns whether it has changed since
  // prepare(). The stream of the call must be held.
  bool has_changed(bp_stream* reader);

  // Waits for the work, and judges it. `status` and `text` are what launch() gave.
  Verdict land(bp_status status, const std::string& text);

 private:
  bp_plan_info info_of(const OwnPlan& plan) const;

  Context& t_;
  const OpCase& case_;
  const CallData data_;
  const CaseStream stream_;
  Call call_;
  const bp_kernel* kernel_ = nullptr;
  bool is_direct_ = false;
  const OwnPlan* plan_ = nullptr;
  std::vector<uint64_t> words_;
  std::shared_ptr<Workspace> workspace_;
};

}  // namespace bp::conformance
