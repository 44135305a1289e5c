// Ops that the registry has prepared, as cases.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backplane/host.h"
#include "backplane/ops.h"
#include "runtime/bench/peers/inputs.hpp"

namespace bp::bench {

constexpr uint32_t kWeight = 1;  // The number of the weight in every op of the cases.

inline void check(bp_status status) {
  if (status != BP_OK) throw std::runtime_error(bp_error_text());
}

// A prepared op with its frame. The tensors that the frame names live in `tensors`. If the weight
// is constant, the op must have a plan.
template <typename Args>
class PreparedOp {
 public:
  PreparedOp(uint32_t op, const Args& args, std::vector<Tensor> tensors, bool is_weight_constant)
      : args_(args), tensors_(std::move(tensors)) {
    args_.struct_size = sizeof(Args);
    check(bp_op_prepare(&target(), nullptr, 0, op, &args_, &kWeight, is_weight_constant ? 1 : 0,
                        &prepared_));
    if (!is_weight_constant) return;
    bp_prepared_info info{.struct_size = sizeof(info), .struct_type = BP_STRUCT_PREPARED_INFO};
    check(bp_prepared_get_info(prepared_, &info));
    if (info.has_plan == 0) {
      throw std::runtime_error(std::string("no plan was made: ") + info.algorithm);
    }
  }
  ~PreparedOp() { static_cast<void>(bp_prepared_release(prepared_)); }
  PreparedOp(const PreparedOp&) = delete;

  void run() {
    check(bp_prepared_launch(prepared_, nullptr, &args_));
    tensors_.back().device().synchronize();
  }
  double result() const { return mean_abs(tensors_.back()); }

 private:
  const bp_target& target() const { return tensors_.back().device().target(); }

  Args args_;
  std::vector<Tensor> tensors_;  // The last tensor is the result.
  bp_prepared* prepared_ = nullptr;
};

template <typename Args>
Ready ready(uint32_t op, const Args& args, std::vector<Tensor> tensors,
            bool is_weight_constant = true) {
  auto prepared =
      std::make_shared<PreparedOp<Args>>(op, args, std::move(tensors), is_weight_constant);
  return {[prepared] { prepared->run(); }, [prepared] { return prepared->result(); }};
}

}  // namespace bp::bench
