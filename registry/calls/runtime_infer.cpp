// Checks the frames of ops that were described at run time, in the order in which the emitted
// checks of ops_spec do: tensors, dtypes, ranks, attributes, shapes of inputs, outputs.
#include <algorithm>
#include <string>
#include <vector>

#include "backplane/host.h"
#include "ops_spec/frame.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/calls/runtime_op.hpp"
#include "registry/calls/runtime_ops.hpp"

namespace bp::core {
namespace {

using ops::head;
using ops::kNoItem;
using ops::member;
using ops::refuse;
using ops::Tensors;

// One frame.
class Check {
 public:
  Check(const RuntimeOp& op, const void* frame, bp_op_output* outputs)
      : op_(op), row_(op.check), frame_(frame), outputs_(outputs), dtypes_(op.described.size()) {}

  bp_status run() {
    bp_status status = each([&](uint32_t i) { return check_tensors(i); });
    for (const uint32_t i : op_.dtype_order) {
      if (status == BP_OK) status = check_dtype(i);
    }
    if (status == BP_OK) status = each([&](uint32_t i) { return check_rank(i); });
    if (status == BP_OK) status = each([&](uint32_t i) { return check_attribute(i); });
    if (status == BP_OK) status = each([&](uint32_t i) { return check_shape(i); });
    return status == BP_OK ? infer() : status;
  }

 private:
  template <typename Step>
  bp_status each(Step&& step) {
    bp_status status = BP_OK;
    for (uint32_t i = 0; i < dtypes_.size() && status == BP_OK; ++i) status = step(i);
    return status;
  }

  const bp_op_argument& argument(uint32_t i) const { return op_.described[i]; }
  Tensors tensors(uint32_t i) const { return ops::tensors_of(row_.arguments[i], frame_); }
  bool is_out(uint32_t i) const { return ops::is_output(row_.arguments[i].kind); }

  bool is_required(uint32_t i) const {
    const bp_argument_kind kind = argument(i).kind;
    return kind == BP_ARGUMENT_TENSOR || kind == BP_ARGUMENT_INOUT ||
           (kind == BP_ARGUMENT_OUT && op_.arguments[i].is_given);
  }

  bp_status check_tensors(uint32_t i) const {
    const bp_op_argument& a = argument(i);
    if (is_list_kind(a.kind)) {
      const auto count = member<uint64_t>(frame_, a.offset_bytes - 8);
      const auto* const items = member<const void*>(frame_, a.offset_bytes);
      if (!ops::is_list(items, count)) return ops::bad_list(row_, i, count);
    }
    if (!is_tensor_kind(a.kind) || (is_out(i) && !op_.arguments[i].is_given)) return BP_OK;
    const Tensors t = tensors(i);
    if (t.count == 0 && is_required(i)) return ops::bad_tensor(row_, i, kNoItem, nullptr);
    for (uint64_t item = 0; item < t.count; ++item) {
      if (!ops::is_sound(t[item])) return ops::bad_tensor(row_, i, t.item(item), t[item]);
    }
    return BP_OK;
  }

  bp_dtype follow(DtypeRule rule, uint32_t other, bp_dtype fixed) const {
    switch (rule) {
      case DtypeRule::like:
        return dtypes_[other];
      case DtypeRule::accumulator:
        return dims::accumulator(dtypes_[other]);
      case DtypeRule::sum:
        return dims::sum_dtype(dtypes_[other]);
      default:
        return fixed;
    }
  }

  bp_status bad_dtype(uint32_t i, int64_t item, bp_dtype given, bp_dtype wanted) const {
    return refuse([&] {
      std::string allowed = wanted == 0 ? "" : dtype_text(wanted);
      for (const bp_dtype dtype : op_.arguments[i].dtypes) {
        if (wanted == 0) allowed += (allowed.empty() ? "" : ", ") + dtype_text(dtype);
      }
      return head(row_, i, item) + " is " + dtype_text(given) + "; allowed: " + allowed;
    });
  }

  // Returns the dtype of a free argument, or 0 if it has none.
  bp_dtype free_dtype(uint32_t i) const {
    const RuntimeArgument& a = op_.arguments[i];
    const Tensors t = tensors(i);
    const bool is_chosen = t.count != 0 && t[0] != nullptr && t[0]->dtype != 0;
    return is_chosen ? t[0]->dtype : follow(a.default_rule, a.default_other, a.default_dtype);
  }

  bp_status check_dtype(uint32_t i) {
    const RuntimeArgument& a = op_.arguments[i];
    const Tensors t = tensors(i);
    const bool is_free = a.dtype_rule == DtypeRule::free;
    dtypes_[i] =
        is_free ? free_dtype(i) : follow(a.dtype_rule, a.other, a.dtypes.empty() ? 0 : a.dtypes[0]);
    const bool is_absent = is_free && t.count == 0 && !(is_out(i) && is_plain(i));
    if (is_free && !is_absent && std::ranges::count(a.dtypes, dtypes_[i]) == 0) {
      return bad_dtype(i, kNoItem, dtypes_[i], 0);
    }
    for (uint64_t item = 0; item < t.count && !is_out(i); ++item) {
      if (t[item]->dtype == dtypes_[i]) continue;
      return bad_dtype(i, t.item(item), t[item]->dtype, dtypes_[i]);
    }
    return check_scalar(i, t);
  }

  bp_status check_scalar(uint32_t i, const Tensors& t) const {
    const bp_op_argument& a = argument(i);
    if (a.kind != BP_ARGUMENT_OPERAND && a.kind != BP_ARGUMENT_SCALAR_TENSOR) return BP_OK;
    if (t.count != 0) {
      const bool is_one = dims::numel(dims::shape(*t.single)) == 1;
      if (a.kind == BP_ARGUMENT_OPERAND || is_one) return BP_OK;
      return ops::bad_element_count(row_, i, *t.single);
    }
    const auto scalar = member<bp_scalar>(frame_, a.offset_bytes + sizeof(void*));
    const bool is_absent = scalar.dtype == 0 && a.since > op_.desc.since;
    if (is_absent || ops::is_scalar(scalar, dtypes_[i])) return BP_OK;
    return ops::bad_scalar(row_, i, scalar, dtypes_[i]);
  }

  bp_status check_rank(uint32_t i) const {
    const RuntimeArgument& a = op_.arguments[i];
    if (!is_tensor_kind(argument(i).kind) || (is_out(i) && !a.is_given)) return BP_OK;
    int64_t low = a.min_rank, high = a.max_rank;
    if (a.rank.is_given()) low = high = a.rank.evaluate(frame_).number;
    const Tensors t = tensors(i);
    for (uint64_t item = 0; item < t.count; ++item) {
      const int64_t rank = t[item]->ndim;
      if (rank >= low && rank <= high) continue;
      return ops::bad_rank(row_, i, t.item(item), rank, low, high,
                           a.rank.is_given() ? a.rank.text() : nullptr);
    }
    return BP_OK;
  }

  bp_status check_attribute(uint32_t i) const {
    const bp_op_argument& a = argument(i);
    if (a.kind == BP_ARGUMENT_ENUM) {
      const auto value = member<uint32_t>(frame_, a.offset_bytes);
      if (value - a.first_value >= a.value_count) return ops::bad_enumeration(row_, i, value);
    }
    if (is_list_kind(a.kind) && op_.arguments[i].count.is_given()) {
      const Rule& rule = op_.arguments[i].count;
      const auto count = member<uint64_t>(frame_, a.offset_bytes - 8);
      const int64_t wanted = rule.evaluate(frame_).number;
      if (static_cast<int64_t>(count) != wanted) {
        return ops::bad_count(row_, i, count, wanted, rule.text(), false);
      }
    }
    switch (a.kind) {
      case BP_ARGUMENT_I32:
        return check_bounds(i, kNoItem, member<int32_t>(frame_, a.offset_bytes));
      case BP_ARGUMENT_I64:
      case BP_ARGUMENT_U64:
        return check_bounds(i, kNoItem, member<int64_t>(frame_, a.offset_bytes));
      case BP_ARGUMENT_F64:
        return check_number(i, member<double>(frame_, a.offset_bytes));
      case BP_ARGUMENT_I64_LIST: {
        const auto* const values = member<const int64_t*>(frame_, a.offset_bytes);
        bp_status status = BP_OK;
        for (uint64_t k = 0; k < member<uint64_t>(frame_, a.offset_bytes - 8); ++k) {
          status = check_bounds(i, static_cast<int64_t>(k), values[k]);
          if (status != BP_OK) return status;
        }
        return status;
      }
      default:
        return BP_OK;
    }
  }

  bp_status check_bounds(uint32_t i, int64_t item, int64_t value) const {
    const RuntimeArgument& a = op_.arguments[i];
    const auto bound = [&](const Rule& rule, int64_t& out) -> const int64_t* {
      if (!rule.is_given()) return nullptr;
      out = rule.evaluate(frame_).number;
      return &out;
    };
    int64_t least = 0, most = 0, end = 0;
    const int64_t* const low = bound(a.at_least, least);
    const int64_t* const high = bound(a.at_most, most);
    const int64_t* const below = bound(a.below, end);
    const bool is_low = low != nullptr && value < *low;
    if (below != nullptr && (is_low || value >= *below)) {
      return ops::bad_bound(row_, i, item, value, low, below, "<");
    }
    if (is_low || (high != nullptr && value > *high)) {
      return ops::bad_bound(row_, i, item, value, low, high, "<=");
    }
    return BP_OK;
  }

  // A comparison with NaN is false, so NaN is refused where there are bounds.
  bp_status check_number(uint32_t i, double value) const {
    const bp_op_argument& a = argument(i);
    const RuntimeArgument& made = op_.arguments[i];
    if (!made.has_number_bounds) return BP_OK;
    const double* const low = a.at_least == nullptr ? nullptr : &made.least;
    const double* const high = a.at_most == nullptr ? nullptr : &made.most;
    const bool is_high = low == nullptr || value >= *low;
    if (a.below != nullptr && !(is_high && value < made.less_than)) {
      return ops::bad_bound(row_, i, kNoItem, value, low, &made.less_than, "<");
    }
    if (is_high && (high == nullptr || value <= *high)) return BP_OK;
    return ops::bad_bound(row_, i, kNoItem, value, low, high, "<=");
  }

  bp_status check_shape(uint32_t i) const {
    const Rule& rule = op_.arguments[i].shape;
    if (is_out(i) || !rule.is_given()) return BP_OK;
    const Tensors t = tensors(i);
    for (uint64_t item = 0; item < t.count; ++item) {
      const dims::Dims allowed = rule.evaluate(frame_, item).list;
      const dims::View given = dims::shape(*t[item]);
      if (given == dims::View(allowed)) continue;
      if (dims::View(allowed).exists()) {
        return ops::bad_shape(row_, i, t.item(item), given, allowed, rule.text());
      }
      return ops::no_shape(row_, i, t.item(item), frame_, rule.text(), rule.names());
    }
    return BP_OK;
  }

  bool is_plain(uint32_t i) const { return !is_list_kind(argument(i).kind); }

  // Writes what the rules say of the outputs, and asks the owner where they say nothing.
  bp_status infer() {
    uint32_t next = 0;
    for (uint32_t i = 0; i < dtypes_.size(); ++i) {
      if (!is_out(i) || !is_plain(i)) continue;
      bp_op_output& output = outputs_[next++];
      output = {};
      output.dtype = dtypes_[i];
      const RuntimeArgument& a = op_.arguments[i];
      const Tensors t = tensors(i);
      if (a.is_given) {
        if (t.count != 0) ops::set_output(output, dtypes_[i], dims::shape(*t.single));
      } else if (a.shape.is_given()) {
        const dims::Dims shape = a.shape.evaluate(frame_).list;
        if (!ops::set_output(output, dtypes_[i], shape)) {
          return ops::bad_output(row_, i, frame_, a.shape.text(), a.shape.names());
        }
      }
    }
    return op_.infers ? ask_owner() : bp_status{BP_OK};
  }

  bp_status ask_owner() {
    const bp_status status = call_infer(op_, frame_, outputs_);
    if (status != BP_OK) return status;
    uint32_t next = 0;
    for (uint32_t i = 0; i < dtypes_.size(); ++i) {
      if (!is_out(i) || !is_plain(i)) continue;
      const bp_op_output& output = outputs_[next++];
      const bool is_shape = output.ndim <= BP_MAX_RANK && ops::is_shape(output.shape, output.ndim);
      if (is_shape && output.dtype == dtypes_[i]) continue;
      return fail(BP_INTERNAL, head(row_, i) + ": infer() of its description gives " +
                                   (is_shape ? dtype_text(output.dtype) + ", and its rule " +
                                                   dtype_text(dtypes_[i])
                                             : "no shape that a tensor can have"));
    }
    return BP_OK;
  }

  const RuntimeOp& op_;
  const ops::Row& row_;
  const void* frame_;
  bp_op_output* outputs_;
  std::vector<bp_dtype> dtypes_;  // Of each argument.
};

}  // namespace

bp_status infer_runtime_op(const ops::Row& row, const void* frame, bp_op_output* out_outputs) {
  return guarded([&] {
    return Check(*static_cast<const RuntimeCheck&>(row).owner, frame, out_outputs).run();
  });
}

}  // namespace bp::core

const bp::ops::Row* bp::ops::find_runtime_row(uint32_t op) {
  const core::OpRow* const row = core::find_runtime_op(op);
  return row == nullptr ? nullptr : &core::runtime_op(*row).check;
}
