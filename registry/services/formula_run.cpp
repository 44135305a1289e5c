// Runs a formula line by line. The text comes from a plugin, so each view is checked before it is
// made, and each call before it is launched.
#include "registry/services/formula_run.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "registry/boundary/error_slot.hpp"
#include "registry/calls/call.hpp"
#include "registry/calls/dtypes.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::services {
namespace {

using core::Formula;
using core::FormulaCall;
using core::FormulaInput;
using core::FormulaLine;
using core::FormulaTensor;
using core::Rule;
using core::RuleType;
using core::RuleValue;
using Kind = FormulaTensor::Kind;

// A frame, or a frame with the values of lines behind it.
class Frame {
 public:
  explicit Frame(uint32_t size_bytes) : words_((size_bytes + 7) / 8) {}

  void* data() { return words_.data(); }
  std::byte* at(uint32_t offset) { return reinterpret_cast<std::byte*>(words_.data()) + offset; }

  template <typename T>
  void set(uint32_t offset, T value) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): T may be a pointer.
    std::memcpy(at(offset), &value, sizeof(value));
  }
  const bp_tensor* tensor(uint32_t offset) {
    const bp_tensor* tensor = nullptr;
    std::memcpy(&tensor, at(offset), sizeof(void*));
    return tensor;
  }
  core::TensorList tensors(uint32_t offset) {
    core::TensorList list{};
    std::memcpy(&list.count, at(offset - 8), sizeof(list.count));
    std::memcpy(&list.items, at(offset), sizeof(void*));
    return list;
  }
  void set_tensors(uint32_t offset, const std::vector<const bp_tensor*>& list) {
    set(offset - 8, uint64_t{list.size()});
    set(offset, static_cast<const bp_tensor* const*>(list.data()));
  }
  void set_list(uint32_t offset, const dims::Dims& list) {
    set(offset - 8, static_cast<uint64_t>(list.count));
    set(offset, static_cast<const int64_t*>(list.data));
  }

 private:
  std::vector<uint64_t> words_;
};

std::string shape_text(dims::View shape) {
  std::string text = "[";
  for (const int64_t extent : shape) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(extent);
  }
  return text + "]";
}

class Run {
 public:
  Run(Evaluator& e, const Formula& formula, const void* frame)
      : e_(e), formula_(formula), frame_(formula.run_size_bytes) {
    std::memcpy(frame_.data(), frame, formula.frame_size_bytes);
    find_shared();
  }

  void run(const FormulaLine& line) {
    item_ = 0;
    if (!core::is_tensor_kind(line.kind)) return store_value(line);
    if (core::is_list_kind(line.kind)) return run_for_list(line);
    const bool is_written = line.kind != BP_ARGUMENT_TENSOR;
    frame_.set(line.offset, run(line, is_written ? frame_.tensor(line.offset) : nullptr));
  }

  // Copies results to the memory of inputs, which no further line reads.
  void finish() {
    for (const auto& [made, given] : late_) e_.store(made, given);
  }

 private:
  void run_for_list(const FormulaLine& line) {
    const core::TensorList given = frame_.tensors(line.offset);
    std::vector<const bp_tensor*>& made = tensors_.emplace_back();
    for (; item_ < given.count; ++item_) made.push_back(run(line, given.items[item_]));
    frame_.set_tensors(line.offset, made);
  }

  // Computes the value of a line for the tensor `given`, or for no tensor of the caller.
  const bp_tensor* run(const FormulaLine& line, const bp_tensor* given) {
    const bool is_late = given != nullptr && line.may_alias && is_shared(*given);
    const bp_tensor* made = tensor(line.tensor, is_late ? nullptr : given);
    if (given == nullptr || made == given) return made;
    check_result(*made, *given, line.name);
    if (!is_late) {
      e_.store(made, given);
      return made;
    }
    // A result that is memory of the caller may be overwritten before it is copied.
    if (is_shared(*made)) made = e_.cast(made, made->dtype);
    late_.push_back({made, given});
    return made;
  }

  [[noreturn]] static void fail_with(const std::string& text) {
    throw Failed{fail(BP_INTERNAL, text)};
  }

  // ---- Memory that outputs share with inputs ----

  void find_shared() {
    for (const core::FormulaRead& read : formula_.inputs) {
      const bp_tensor* const single = read.is_list ? nullptr : frame_.tensor(read.offset);
      const core::TensorList list =
          read.is_list ? frame_.tensors(read.offset) : core::TensorList{1, &single};
      for (uint64_t i = 0; i < list.count; ++i) {
        if (list.items[i] != nullptr) input_buffers_.push_back(list.items[i]->buffer);
      }
    }
  }
  // Tensors of a question have no memory.
  bool is_shared(const bp_tensor& output) const {
    return output.buffer != nullptr && std::ranges::count(input_buffers_, output.buffer) != 0;
  }

  // ---- Values ----

  RuleValue value(const Rule& rule) {
    RuleValue value = rule.evaluate(frame_.data(), item_);
    const bool exists = rule.type() == RuleType::dims ? value.list.count != dims::kNone
                                                      : value.number != dims::kNone;
    if (!exists) fail_with(std::string("'") + rule.text() + "' does not exist for this call");
    return value;
  }

  const dims::Dims& list(const Rule& rule) { return lists_.emplace_back(value(rule).list); }

  static double as_real(const Rule& rule, const RuleValue& value) {
    return rule.type() == RuleType::real ? value.real : static_cast<double>(value.number);
  }

  void store_value(const FormulaLine& line) {
    if (line.kind == BP_ARGUMENT_I64_LIST) return frame_.set_list(line.offset, list(line.value));
    const RuleValue made = value(line.value);
    if (line.kind == BP_ARGUMENT_F64) return frame_.set(line.offset, made.real);
    frame_.set(line.offset, made.number);
  }

  // ---- Tensors ----

  // Returns the value of a tensor. A call writes its result to `into`, if that is given.
  const bp_tensor* tensor(const FormulaTensor& t, const bp_tensor* into) {
    switch (t.kind) {
      case Kind::name: {
        const bp_tensor* const named = frame_.tensor(t.offset);
        if (named == nullptr) fail_with("it reads a tensor that this call does not give");
        return named;
      }
      case Kind::present:
        return of_list(t.offset, static_cast<int64_t>(item_));
      case Kind::item:
        return of_list(t.offset, value(t.index).number);
      case Kind::choice:
        return tensor(t.inputs[value(t.condition).number == 1 ? 0 : 1], into);
      case Kind::call:
        return call(t, into);
      default:
        return view(t, tensor(t.inputs[0], nullptr));
    }
  }

  const bp_tensor* of_list(uint32_t offset, int64_t index) {
    const core::TensorList list = frame_.tensors(offset);
    if (index >= 0 && static_cast<uint64_t>(index) < list.count) return list.items[index];
    fail_with("it reads tensor " + std::to_string(index) + " of a list that has " +
              std::to_string(list.count));
  }

  const bp_tensor* view(const FormulaTensor& t, const bp_tensor* x) {
    switch (t.kind) {
      case Kind::reshape:
        return reshape(x, list(t.parameters[0]));
      case Kind::expand:
        return expand(x, list(t.parameters[0]));
      case Kind::permute:
        return permute(x, list(t.parameters[0]));
      case Kind::slice:
        return slice(x, value(t.parameters[0]).number, value(t.parameters[1]).number,
                     value(t.parameters[2]).number);
      default:
        if (x->ndim < 2) fail_with("transpose: the tensor has fewer than 2 axes");
        return e_.transpose(x);
    }
  }

  static void check_rank(const char* what, dims::View shape) {
    const bool is_shape = shape.count <= BP_MAX_RANK &&
                          std::ranges::all_of(shape, [](int64_t extent) { return extent >= 0; });
    if (!is_shape) fail_with(std::string(what) + ": no tensor has shape " + shape_text(shape));
  }

  const bp_tensor* reshape(const bp_tensor* x, dims::View shape) {
    check_rank("reshape", shape);
    if (dims::numel(shape) != dims::numel(dims::shape(*x))) {
      fail_with("reshape: " + shape_text(dims::shape(*x)) + " and " + shape_text(shape) +
                " have different numbers of elements");
    }
    return e_.reshape(x, shape);
  }

  const bp_tensor* expand(const bp_tensor* x, dims::View shape) {
    check_rank("expand", shape);
    const dims::Dims both = dims::broadcast(dims::shape(*x), shape);
    if (!(dims::View(both) == shape)) {
      fail_with("expand: " + shape_text(dims::shape(*x)) + " does not broadcast to " +
                shape_text(shape));
    }
    return e_.expand(x, shape);
  }

  const bp_tensor* permute(const bp_tensor* x, dims::View axes) {
    uint64_t seen = 0;
    for (const int64_t axis : axes) {
      if (axis >= 0 && axis < int64_t{x->ndim}) seen |= uint64_t{1} << axis;
    }
    if (axes.count != int64_t{x->ndim} || seen != (uint64_t{1} << x->ndim) - 1) {
      fail_with("permute: " + shape_text(axes) + " is no order of " + std::to_string(x->ndim) +
                " axes");
    }
    return e_.permute(x, axes);
  }

  const bp_tensor* slice(const bp_tensor* x, int64_t axis, int64_t start, int64_t stop) {
    const bool has_axis = axis >= 0 && axis < int64_t{x->ndim};
    if (!has_axis || start < 0 || start > stop || stop > x->shape[axis]) {
      fail_with("slice: axis " + std::to_string(axis) + " of " + shape_text(dims::shape(*x)) +
                " has no range " + std::to_string(start) + " to " + std::to_string(stop));
    }
    return e_.slice(x, axis, start, stop);
  }

  // ---- Calls ----

  const bp_tensor* call(const FormulaTensor& t, const bp_tensor* into) {
    const FormulaCall& c = t.call;
    Frame frame(c.frame_size_bytes);
    frame.set(0, c.frame_size_bytes);
    for (const FormulaInput& input : c.inputs) give(frame, t, input);
    const uint32_t place = c.output->offset_bytes;
    Evaluator::Choice choice;
    if (c.dtype.is_given()) choice.dtype = static_cast<bp_dtype>(value(c.dtype).number);
    if (c.shape.is_given()) choice.shape = &list(c.shape);
    const bp_tensor chosen = Evaluator::choose(choice);
    const bool is_chosen = choice.dtype != 0 || choice.shape != nullptr;
    frame.set(place, is_chosen ? &chosen : nullptr);
    const bp_op_output output = e_.infer(c.desc->op, frame.data());
    if (into == nullptr) {
      into = e_.make(output);
    } else {
      bp_tensor made{};
      made.dtype = output.dtype;
      made.ndim = output.ndim;
      made.shape = output.shape;
      check_result(made, *into, c.desc->name);
    }
    frame.set(place, into);
    e_.launch(c.desc->op, frame.data());
    return into;
  }

  static void check_result(const bp_tensor& made, const bp_tensor& given, const std::string& what) {
    const bool is_same = made.dtype == given.dtype && dims::shape(made) == dims::shape(given);
    if (is_same) return;
    fail_with(what + " gives " + core::dtype_text(made.dtype) + " " +
              shape_text(dims::shape(made)) + ", and the output is " +
              core::dtype_text(given.dtype) + " " + shape_text(dims::shape(given)));
  }

  void give(Frame& frame, const FormulaTensor& t, const FormulaInput& input) {
    const uint32_t offset = input.argument->offset_bytes;
    switch (input.source) {
      case FormulaInput::Source::tensor:
        return frame.set(offset, tensor(t.inputs[input.index], nullptr));
      case FormulaInput::Source::tensors: {
        std::vector<const bp_tensor*>& list = tensors_.emplace_back();
        for (uint32_t i = 0; i < input.count; ++i) {
          list.push_back(tensor(t.inputs[input.index + i], nullptr));
        }
        return frame.set_tensors(offset, list);
      }
      case FormulaInput::Source::list: {
        const core::TensorList list = frame_.tensors(input.offset);
        frame.set(offset - 8, list.count);
        return frame.set(offset, list.items);
      }
      case FormulaInput::Source::operand:
        std::memcpy(frame.at(offset), frame_.at(input.offset), sizeof(void*) + sizeof(bp_scalar));
        return;
      case FormulaInput::Source::value:
        return give_value(frame, *input.argument, input.value);
    }
  }

  void give_value(Frame& frame, const bp_op_argument& a, const Rule& rule) {
    const uint32_t offset = a.offset_bytes;
    if (a.kind == BP_ARGUMENT_I64_LIST) return frame.set_list(offset, list(rule));
    const RuleValue given = value(rule);
    switch (a.kind) {
      case BP_ARGUMENT_OPERAND:
      case BP_ARGUMENT_SCALAR_TENSOR:
        return frame.set(
            offset + static_cast<uint32_t>(sizeof(void*)),
            rule.type() == RuleType::real ? to_scalar(given.real) : to_scalar(given.number));
      case BP_ARGUMENT_F64:
        return frame.set(offset, as_real(rule, given));
      case BP_ARGUMENT_I32:
        if (given.number != static_cast<int32_t>(given.number)) break;
        return frame.set(offset, static_cast<int32_t>(given.number));
      case BP_ARGUMENT_ENUM:
      case BP_ARGUMENT_DTYPE:
        if (given.number != static_cast<uint32_t>(given.number)) break;
        return frame.set(offset, static_cast<uint32_t>(given.number));
      default:
        return frame.set(offset, given.number);
    }
    fail_with(std::string(a.name) + " is " + std::to_string(given.number) +
              ", which 32 bits do not hold");
  }

  struct Late {
    const bp_tensor* made;
    const bp_tensor* given;
  };

  Evaluator& e_;
  const Formula& formula_;
  Frame frame_;
  uint64_t item_ = 0;             // The tensor of a list for which a line runs.
  std::deque<dims::Dims> lists_;  // Frames point to them.
  std::deque<std::vector<const bp_tensor*>> tensors_;  // The same.
  std::vector<const bp_buffer*> input_buffers_;
  std::vector<Late> late_;
};

}  // namespace

void run_formula(Evaluator& e, const Formula& formula, const char* name, const void* frame) {
  uint32_t number = 0;
  try {
    Run run(e, formula, frame);
    for (const FormulaLine& line : formula.lines) {
      number = line.number;
      run.run(line);
    }
    run.finish();
  } catch (const Failed& failed) {
    // The checks have accepted the frame, so a frame that a line makes is not the caller's mistake.
    const bool is_ours = failed.status == BP_INVALID_ARGUMENT;
    const std::string why = core::take_error();
    throw Failed{fail(
        is_ours ? bp_status{BP_INTERNAL} : failed.status,
        std::string(name) + ": line " + std::to_string(number) + " of its decomposition: " + why)};
  }
}

}  // namespace bp::services
