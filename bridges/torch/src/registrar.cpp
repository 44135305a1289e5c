#include "registrar.h"

#include <ATen/MemoryOverlap.h>

#include <map>
#include <set>
#include <sstream>

#include "direct.h"
#include "mapped.h"
#include "tensors.h"

namespace bpt {
namespace {

using at::Tensor;
using torch::jit::Stack;

// How an operator hands its results back: as new tensors, in place, or into out=.
struct Form {
  bool is_inplace = false;
  std::vector<int> outs;  // The arguments that are written.
};

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

Form form_of(const c10::FunctionSchema& schema) {
  Form form;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!is_written(schema.arguments()[i])) continue;
    form.outs.push_back(static_cast<int>(i));
    if (!schema.arguments()[i].is_out()) form.is_inplace = true;
  }
  return form;
}

// Runs the rows of one operator in their order.
struct Mapped final : c10::OperatorKernel {
  Mapped(const c10::OperatorHandle& op, std::vector<const Row*> the_rows,
         c10::KernelFunction the_composed)
      : rows(std::move(the_rows)), composed(std::move(the_composed)), form(form_of(op.schema())) {}

  // The ops are looked up when the operator is first called: then a library is loaded.
  void bind(const c10::FunctionSchema& schema) {
    const std::lock_guard lock(mutex);
    if (is_bound) return;
    for (const Row* row : rows) {
      try {
        bound.emplace_back(*row, schema);
      } catch (const Unsupported& unsupported) {
        missing = unsupported.reason;
      }
    }
    is_bound = true;
  }

  Tensors run(Values values) {
    const Tensor* out = form.outs.size() == 1 ? &values[form.outs[0]].toTensor() : nullptr;
    if (out != nullptr) at::assert_no_internal_overlap(*out);
    std::string reasons;
    for (const BoundRow& row : bound) {
      try {
        return row.run(values, out);
      } catch (const Unsupported& unsupported) {
        reasons += (reasons.empty() ? "" : "; ") + unsupported.reason;
      }
    }
    throw Unsupported{reasons.empty() ? missing : reasons};
  }

  void hand_back(Stack* stack, Values values, Tensors results) {
    c10::SmallVector<Tensor, 2> returned;
    for (size_t i = 0; i < form.outs.size(); ++i) {
      const Tensor out = values[form.outs[i]].toTensor();
      if (!out.is_same(results[i])) {
        TORCH_CHECK(c10::canCast(results[i].scalar_type(), out.scalar_type()), "result type ",
                    results[i].scalar_type(), " can't be cast to the desired output type ",
                    out.scalar_type());
        match_shape(out, results[i], form.is_inplace);
        copy_into(results[i], out);
      }
      returned.push_back(out);
    }
    if (form.outs.empty()) returned = std::move(results);
    torch::jit::drop(*stack, values.size());
    for (Tensor& tensor : returned) stack->emplace_back(std::move(tensor));
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    if (C10_UNLIKELY(!is_bound)) bind(op.schema());
    const size_t count = op.schema().arguments().size();
    const Values values(stack->data() + stack->size() - count, count);
    std::string reason;
    try {
      hand_back(stack, values, run(values));
      return;
    } catch (const Unsupported& unsupported) {
      reason = unsupported.reason;
    }
    if (composed.isValid()) {
      set_outer_reason(reason);
      composed.callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), stack);
      set_outer_reason("");
    } else {
      fall_back(op, stack, reason);
    }
  }

  std::vector<const Row*> rows;
  c10::KernelFunction
      composed;  // What serves the calls that no row does, if there is such a thing.
  Form form;
  std::vector<BoundRow> bound;
  std::string missing = "the table has no row for this call";
  std::atomic<bool> is_bound{false};
  std::mutex mutex;
};

// Runs the functional form, and copies its results to where the writing form wants them.
struct Writing final : c10::OperatorKernel {
  Writing(c10::OperatorHandle the_functional, const c10::OperatorHandle& own)
      : functional(std::move(the_functional)), form(form_of(own.schema())) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const Values values(stack->data() + stack->size() - count, count);
    Stack call;
    for (size_t i = 0; i < count; ++i) {
      if (!op.schema().arguments()[i].is_out()) call.push_back(values[i]);
    }
    for (const int out : form.outs) at::assert_no_internal_overlap(values[out].toTensor());
    functional.callBoxed(&call);
    std::vector<Tensor> outs;
    for (size_t i = 0; i < form.outs.size(); ++i) {
      const Tensor out = values[form.outs[i]].toTensor();
      const Tensor& result = call[i].toTensor();
      TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ",
                  result.scalar_type(), " can't be cast to the desired output type ",
                  out.scalar_type());
      match_shape(out, result, form.is_inplace);
      copy_into(result, out);
      outs.push_back(out);
    }
    torch::jit::drop(*stack, count);
    for (Tensor& out : outs) stack->emplace_back(std::move(out));
  }

  c10::OperatorHandle functional;
  Form form;
};

const std::multimap<std::string, c10::OperatorName>& all_names() {
  static const auto* names = [] {
    auto* map = new std::multimap<std::string, c10::OperatorName>;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
      map->emplace(name.name, name);
    }
    return map;
  }();
  return *names;
}

bool has_same_inputs(const c10::FunctionSchema& functional, const c10::FunctionSchema& writing) {
  size_t next = 0;
  for (const c10::Argument& argument : writing.arguments()) {
    if (argument.is_out()) continue;
    if (next == functional.arguments().size()) return false;
    const c10::Argument& own = functional.arguments()[next++];
    if (own.name() != argument.name() || *own.type() != *argument.type()) return false;
  }
  return next == functional.arguments().size();
}

struct ByName {
  bool operator()(const c10::OperatorName& a, const c10::OperatorName& b) const {
    return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name);
  }
};

std::set<c10::OperatorName, ByName>& registered() {
  static auto* names = new std::set<c10::OperatorName, ByName>;
  return *names;
}

// The rows of each operator.
const std::map<c10::OperatorName, std::vector<const Row*>, ByName>& rows_by_name() {
  static const auto* all = [] {
    auto* map = new std::map<c10::OperatorName, std::vector<const Row*>, ByName>;
    for (const std::span<const Row> table : {elementwise_rows(), other_rows()}) {
      for (const Row& row : table) {
        std::istringstream names(row.aten);
        for (std::string name; names >> name;) {
          (*map)[aten_op(name).operator_name()].push_back(&row);
        }
      }
    }
    return map;
  }();
  return *all;
}

std::map<c10::OperatorName, c10::KernelFunction, ByName>& last_resorts() {
  static auto* kernels = new std::map<c10::OperatorName, c10::KernelFunction, ByName>;
  return *kernels;
}

c10::KernelFunction writing(const c10::OperatorHandle& functional, const c10::OperatorHandle& own) {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Writing>(functional, own));
}

void register_mapped(const c10::OperatorHandle& op, const std::vector<const Row*>& rows,
                     c10::KernelFunction composed) {
  const auto boxed = [&] {
    return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Mapped>(op, rows, composed));
  };
  if (!register_direct(op, *rows[0], boxed())) register_kernel(op, boxed());
}

void register_rows() {
  for (const auto& [name, rows] : rows_by_name()) {
    const c10::OperatorHandle op = *c10::Dispatcher::singleton().findSchema(name);
    const auto found = last_resorts().find(name);
    const bool is_composed = found != last_resorts().end();
    register_mapped(op, rows, is_composed ? found->second : c10::KernelFunction());
    for (const auto& form : writing_forms_of(op)) {
      register_mapped(form, rows, is_composed ? writing(op, form) : c10::KernelFunction());
    }
  }
}

}  // namespace

c10::OperatorHandle aten_op(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string base = "aten::" + name.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(base.c_str(), overload.c_str());
}

std::vector<c10::OperatorHandle> writing_forms_of(const c10::OperatorHandle& op) {
  std::vector<c10::OperatorHandle> forms;
  const std::string& base = op.operator_name().name;
  for (const std::string& name : {base, base + "_"}) {
    const auto [begin, end] = all_names().equal_range(name);
    for (auto it = begin; it != end; ++it) {
      const auto other = c10::Dispatcher::singleton().findSchema(it->second);
      if (!other || form_of(other->schema()).outs.empty()) continue;
      if (has_same_inputs(op.schema(), other->schema())) forms.push_back(*other);
    }
  }
  return forms;
}

void register_kernel(const c10::OperatorHandle& op, c10::KernelFunction kernel,
                     std::optional<c10::impl::CppSignature> signature) {
  // The registrations last as long as the process.
  static auto* kept = new std::vector<c10::RegistrationHandleRAII>;
  TORCH_CHECK(registered().insert(op.operator_name()).second,
              "torch_backplane: ", op.operator_name(), " has two entries in the table.");
  kept->push_back(c10::Dispatcher::singleton().registerImpl(
      op.operator_name(), c10::DispatchKey::PrivateUse1, std::move(kernel), signature, nullptr,
      "torch_backplane"));
}

void register_composed(const c10::OperatorHandle& op, c10::KernelFunction kernel,
                       const c10::impl::CppSignature& signature) {
  if (rows_by_name().contains(op.operator_name())) {
    last_resorts().emplace(op.operator_name(), std::move(kernel));
    return;
  }
  register_kernel(op, std::move(kernel), signature);
  for (const c10::OperatorHandle& form : writing_forms_of(op)) {
    if (!registered().contains(form.operator_name())) register_kernel(form, writing(op, form));
  }
}

void compose_indexing();
void compose_losses();
void compose_matrices();
void compose_movement();
void compose_norms();
void compose_numbers();
void compose_optimizers();
void compose_random();
void compose_reductions();
void compose_windows();
void compose_attention();

void register_table() {
  compose_indexing();
  compose_losses();
  compose_matrices();
  compose_movement();
  compose_norms();
  compose_numbers();
  compose_optimizers();
  compose_random();
  compose_reductions();
  compose_windows();
  compose_attention();
  register_rows();
}

std::vector<std::string> unbound_rows() {
  std::vector<std::string> problems;
  for (const auto& [name, rows] : rows_by_name()) {
    const c10::OperatorHandle op = *c10::Dispatcher::singleton().findSchema(name);
    for (const Row* row : rows) {
      try {
        const std::string problem = BoundRow(*row, op.schema()).problem();
        if (!problem.empty()) problems.push_back(name_of(op) + ": " + problem);
      } catch (const Unsupported& unsupported) {
        problems.push_back(name_of(op) + ": " + unsupported.reason);
      }
    }
  }
  return problems;
}

std::vector<std::string> registered_names() {
  std::vector<std::string> names;
  for (const auto& name : registered()) {
    names.push_back(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  }
  return names;
}

}  // namespace bpt
