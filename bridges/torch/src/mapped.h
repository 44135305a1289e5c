// A row of the table, bound to the schema of one operator: it turns a call of PyTorch's into a call
// of the library.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "call.h"
#include "table.h"

namespace bpt {

using Values = c10::ArrayRef<c10::IValue>;
using Tensors = c10::SmallVector<at::Tensor, 2>;

struct Bind {
  enum class Kind { kArgument, kNumber, kGuard, kWanted };
  Kind kind = Kind::kArgument;
  int argument = -1;        // Of the op.
  int aten = -1;            // Of the operator; -1: it has no such argument.
  double number = 0;        // What a guard expects, or the number to pass.
  std::string name;         // Of the argument that a guard looks at.
  std::string word;         // What a guard expects of a text; "none": not given.
  bool is_plain = false;    // Has no part in the common dtype.
  bool is_promoted = true;  // A number that has its part.
};

class BoundRow {
 public:
  // `schema` is that of the functional operator, or of one that writes and has the same arguments.
  BoundRow(const Row& row, const c10::FunctionSchema& schema);

  // "", or what is wrong with the row itself: an argument of the op that nothing is bound to.
  std::string problem() const;

  // Runs the call into new tensors, or into `out` if it is given. Throws Unsupported.
  Tensors run(Values values, const at::Tensor* out) const;

 private:
  struct Elements;
  struct State;

  void bind(const std::string& word, const c10::FunctionSchema& schema);
  void check_guards(Values values) const;
  bool has_free_type(Values values) const;
  Elements common_of(Values values) const;
  void place(State& state, const Bind& bind, Values values) const;
  void place_value(State& state, const Bind& bind, const c10::IValue& value, Values values) const;
  at::Tensor flattened(State& state, const at::Tensor& tensor, Values values) const;
  void place_tensor(State& state, const Bind& bind, const at::Tensor& tensor) const;
  void place_number(State& state, const Bind& bind, const at::Scalar& number) const;
  void place_attribute(State& state, const Bind& bind, const c10::IValue& value) const;
  at::Tensor converted(const State& state, const Bind& bind, at::Tensor tensor,
                       Values values) const;
  Tensors run_into(Call& call, const State& state, const at::Tensor& out) const;

  const Row& row_;
  const Op& op_;
  std::vector<Bind> binds_;
  int dtype_ = -1;  // The arguments of these names.
  int alpha_ = -1;
  int value_ = -1;
  int first_tensor_ = -1;  // The bind whose tensor comes first.
};

// Says why no row served the call that this thread hands to a composed operator next: a fallback of
// that one has both reasons. "" when it has returned.
void set_outer_reason(std::string reason);

// Gives `out` the shape and strides of `result` if it has another shape, as out= does; in place
// that is an error.
void match_shape(const at::Tensor& out, const at::Tensor& result, bool is_inplace);

}  // namespace bpt
