#include "registry/services/decompose.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "registry/calls/runtime_op.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/services/formula_run.hpp"
#include "registry/services/service_kernels.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::services {
namespace {

bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& decomposition = *static_cast<const Decomposition*>(self->state);
  return evaluate(*launch, self->name, [&](Evaluator& e) { decomposition.run(e, args); });
}

bp_reason supports(const bp_kernel* self, bp_device*, bp_launch_flags, const void* args) {
  const auto& decomposition = *static_cast<const Decomposition*>(self->state);
  return decomposition.applies(args) ? nullptr : decomposition.refusal;
}

std::vector<bp_kernel> make_kernels() {
  std::vector<bp_kernel> kernels;
  for (size_t i = 0; i < kDecompositionCount; ++i) {
    const Decomposition& d = kDecompositions[i];
    bp_kernel kernel = make_service("decomposition", d.op, d.args_size_bytes, &d, launch);
    // The formula ignores what came later, so the host offers it no call that gives that.
    kernel.spec_revision = d.spec_revision;
    if (d.applies != nullptr) kernel.supports = supports;
    kernels.push_back(kernel);
  }
  return kernels;
}

bp_status launch_formula(const bp_kernel* self, const bp_launch* launch, const void* args) {
  const auto& op = *static_cast<const core::RuntimeOp*>(self->state);
  return evaluate(*launch, op.name,
                  [&](Evaluator& e) { run_formula(e, *op.formula, op.name, args); });
}

// A condition that asks for what the call does not give does not hold.
bp_reason formula_supports(const bp_kernel* self, bp_device*, bp_launch_flags, const void* args) {
  const core::Formula& formula = *static_cast<const core::RuntimeOp*>(self->state)->formula;
  const int64_t answer = formula.condition.evaluate(args).number;
  return answer != 0 && answer != dims::kNone ? nullptr : formula.refusal.c_str();
}

// Returns the kernel of an op that was described at run time, or NULL if it has no decomposition.
const bp_kernel* runtime_decomposition(const core::RuntimeOp& op) {
  static std::mutex mutex;
  static std::map<const core::RuntimeOp*, bp_kernel> kernels;  // A description is never freed.
  if (op.formula == nullptr) return nullptr;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = kernels.try_emplace(&op);
  if (is_new) {
    const core::Formula& formula = *op.formula;
    found->second =
        make_service("decomposition", op.op, formula.frame_size_bytes, &op, launch_formula);
    found->second.spec_revision = formula.revision;
    if (formula.condition.is_given()) found->second.supports = formula_supports;
  }
  return &found->second;
}

}  // namespace

bp_op_output Evaluator::infer(uint32_t op, const void* args) {
  bp_op_output outputs[BP_MAX_RANK];
  uint32_t count = 0;
  const bp_status status = bp_op_infer(op, args, BP_MAX_RANK, outputs, &count);
  if (status != BP_OK) throw Failed{status};
  return outputs[0];
}

void StreamPlace::place(bp_tensor& tensor) {
  const auto count = static_cast<uint64_t>(tensors::element_count(tensor.ndim, tensor.shape));
  const uint64_t size_bytes = tensors::packed_bytes(count, bp_dtype_bits(tensor.dtype));
  bp_block* block = nullptr;
  const bp_status status = bp_block_allocate(&target_, stream_, size_bytes, &block);
  if (status != BP_OK) throw Failed{status};
  blocks_.emplace_back(block);
  tensor.buffer = block->ref.buffer;
  tensor.byte_offset = block->ref.byte_offset;
}

void StreamPlace::launch(uint32_t op, const void* args) {
  const bp_status status = bp_op_launch(&target_, stream_, flags_, op, args);
  if (status != BP_OK) throw Failed{status};
}

bp_tensor Evaluator::choose(const Choice& choice) {
  static constexpr int64_t kNoStrides[BP_MAX_RANK] = {};
  bp_tensor chosen{};
  chosen.dtype = choice.dtype;
  chosen.strides = chosen.shape = kNoStrides;
  if (choice.shape != nullptr) {
    chosen.ndim = static_cast<uint32_t>(choice.shape->count);
    chosen.shape = choice.shape->data;
  }
  return chosen;
}

const bp_tensor* Evaluator::make(const bp_op_output& like) {
  Stored& made = tensors_.emplace_back();
  std::copy_n(like.shape, like.ndim, made.shape);
  tensors::set_contiguous_strides(like.ndim, made.shape, made.strides);
  made.tensor = {};
  made.tensor.shape = made.shape;
  made.tensor.strides = made.strides;
  made.tensor.ndim = like.ndim;
  made.tensor.dtype = like.dtype;
  where_.place(made.tensor);
  return &made.tensor;
}

const bp_tensor* Evaluator::make_like(const bp_tensor& x, bp_dtype dtype) {
  bp_op_output output{};
  output.dtype = dtype;
  output.ndim = x.ndim;
  std::copy_n(x.shape, x.ndim, output.shape);
  return make(output);
}

const bp_tensor* Evaluator::cast(const bp_tensor* x, bp_dtype dtype) {
  bp_copy_args args{};
  args.x = x;
  return call(BP_OP_COPY, args, &bp_copy_args::y, {.dtype = dtype}, nullptr);
}

// Makes a view of `x`. The caller sets its shape and strides.
Evaluator::Stored& Evaluator::copy_of(const bp_tensor& x, int64_t ndim) {
  Stored& view = tensors_.emplace_back();
  view.tensor = x;
  view.tensor.ndim = static_cast<uint32_t>(ndim);
  view.tensor.shape = view.shape;
  view.tensor.strides = view.strides;
  std::copy_n(x.shape, std::min(x.ndim, view.tensor.ndim), view.shape);
  std::copy_n(x.strides, std::min(x.ndim, view.tensor.ndim), view.strides);
  return view;
}

const bp_tensor* Evaluator::reshape(const bp_tensor* x, dims::View shape) {
  if (!tensors::is_contiguous(*x)) x = cast(x, x->dtype);
  Stored& view = copy_of(*x, shape.count);
  std::copy(shape.begin(), shape.end(), view.shape);
  tensors::set_contiguous_strides(view.tensor.ndim, view.shape, view.strides);
  return &view.tensor;
}

const bp_tensor* Evaluator::expand(const bp_tensor* x, dims::View shape) {
  Stored& view = copy_of(*x, shape.count);
  const int64_t added = shape.count - static_cast<int64_t>(x->ndim);
  for (int64_t axis = 0; axis < shape.count; ++axis) {
    const bool is_repeated = axis < added || x->shape[axis - added] != shape.data[axis];
    view.shape[axis] = shape.data[axis];
    view.strides[axis] = is_repeated ? 0 : x->strides[axis - added];
  }
  return &view.tensor;
}

const bp_tensor* Evaluator::permute(const bp_tensor* x, dims::View axes) {
  Stored& view = copy_of(*x, axes.count);
  for (int64_t axis = 0; axis < axes.count; ++axis) {
    view.shape[axis] = x->shape[axes.data[axis]];
    view.strides[axis] = x->strides[axes.data[axis]];
  }
  return &view.tensor;
}

const bp_tensor* Evaluator::transpose(const bp_tensor* x) {
  Stored& view = copy_of(*x, x->ndim);
  std::swap(view.shape[x->ndim - 1], view.shape[x->ndim - 2]);
  std::swap(view.strides[x->ndim - 1], view.strides[x->ndim - 2]);
  return &view.tensor;
}

const bp_tensor* Evaluator::slice(const bp_tensor* x, int64_t axis, int64_t start, int64_t stop) {
  Stored& view = copy_of(*x, x->ndim);
  const int64_t bits = start * x->strides[axis] * int64_t{bp_dtype_bits(x->dtype)};
  if (bits % 8 != 0) {
    throw Failed{fail(BP_UNSUPPORTED, "slice: element " + std::to_string(start) + " of axis " +
                                          std::to_string(axis) + " of a tensor of " +
                                          bp_dtype_name(x->dtype) +
                                          " begins within a byte, where no tensor begins")};
  }
  view.tensor.byte_offset += static_cast<uint64_t>(bits / 8);
  view.shape[axis] = stop - start;
  return &view.tensor;
}

void Evaluator::store(const bp_tensor* value, const bp_tensor* y) {
  if (y == nullptr || value == y) return;
  bp_copy_args args{};
  args.x = value;
  call(BP_OP_COPY, args, &bp_copy_args::y, {}, y);
}

const bp_kernel* decomposition(const core::OpRow& row) {
  if (core::is_runtime_op(row)) return runtime_decomposition(core::runtime_op(row));
  static const std::vector<bp_kernel> kernels = make_kernels();
  const auto found = std::ranges::find(kernels, row.op, &bp_kernel::op);
  return found == kernels.end() ? nullptr : &*found;
}

void run_decomposition(Evaluator& e, const core::OpRow& row, const void* frame) {
  if (core::is_runtime_op(row)) {
    const core::RuntimeOp& op = core::runtime_op(row);
    return run_formula(e, *op.formula, op.name, frame);
  }
  const auto* const found =
      std::find_if(kDecompositions, kDecompositions + kDecompositionCount,
                   [&](const Decomposition& each) { return each.op == row.op; });
  found->run(e, frame);
}

}  // namespace bp::services
