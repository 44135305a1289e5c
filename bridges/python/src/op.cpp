// Reads descriptions: kinds, defaults, axes, and the signature.
#include "op.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace bp::python {
namespace {

bool is_attribute(bp_argument_kind kind) { return kind >= BP_ARGUMENT_I32; }

std::string_view text_of(const char* text) { return text == nullptr ? "" : text; }

// Reads "x.ndim" and "max(x.ndim, 1)", which bound an axis of x.
void find_axis(Argument& a, const std::vector<Argument>& arguments) {
  std::string_view bound = text_of(a.desc->below);
  const bool is_integer =
      a.kind == BP_ARGUMENT_I32 || a.kind == BP_ARGUMENT_I64 || a.kind == BP_ARGUMENT_I64_LIST;
  if (!is_integer || text_of(a.desc->at_least) != "0") return;
  constexpr std::string_view kBegin = "max(", kEnd = ".ndim, 1)", kNdim = ".ndim";
  a.has_axis_0 = bound.starts_with(kBegin) && bound.ends_with(kEnd);
  if (a.has_axis_0) {
    bound = bound.substr(kBegin.size(), bound.size() - kBegin.size() - kEnd.size());
  } else if (bound.ends_with(kNdim)) {
    bound.remove_suffix(kNdim.size());
  } else {
    return;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name == bound) a.axis_of = static_cast<int32_t>(i);
  }
}

// Descriptions do not say which numbers of ops of the library may be absent; ops.def does.
bool may_be_absent(std::string_view op, std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kRows[] = {
#define BP_OP(id, name, since, profile, kind, numerics)
#define BP_ARG(op, member, kind, dtype)
#define BP_MAY_BE_ABSENT(op, member) {#op, #member},
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
  };
  return std::find(std::begin(kRows), std::end(kRows), std::pair(op, name)) != std::end(kRows);
}

bool has_default(const Argument& a) {
  if (a.is_optional || a.desc->default_text != nullptr) return true;
  return a.kind == BP_ARGUMENT_I64_LIST && a.axis_of >= 0;
}

bool is_flag(const Argument& a) {
  return a.kind == BP_ARGUMENT_I32 && text_of(a.desc->at_least) == "0" &&
         text_of(a.desc->at_most) == "1";
}

std::string default_text(const Argument& a) {
  if (a.desc->default_text == nullptr || a.kind == BP_ARGUMENT_I64_LIST) return "None";
  std::string text(text_of(a.desc->default_text));
  if (a.kind == BP_ARGUMENT_ENUM) return "'" + text + "'";
  if (is_flag(a)) return text == "0" ? "False" : "True";
  return text;
}

const char* type_of(const Argument& a) {
  if (a.is_tensor) {
    if (a.is_list) return "list of Tensor";
    return a.has_scalar ? "Tensor or number" : "Tensor";
  }
  if (is_flag(a)) return "bool";
  switch (a.kind) {
    case BP_ARGUMENT_F64:
      return "float";
    case BP_ARGUMENT_I64_LIST:
      return "int, or list of int";
    case BP_ARGUMENT_DTYPE:
      return "DType";
    case BP_ARGUMENT_ENUM:
      return "str";
    default:
      return "int";
  }
}

// Returns the line of an argument in the text of the function.
std::string line_of(const Argument& a) {
  const bp_op_argument& d = *a.desc;
  std::string line = "    " + a.name + ": " + type_of(a);
  if (d.dtype_rule != nullptr) line += ", " + std::string(d.dtype_rule);
  if (d.shape_rule != nullptr) line += ", shape " + std::string(d.shape_rule);
  if (d.default_text != nullptr) line += ", default " + std::string(d.default_text);
  for (uint32_t v = 0; v < d.value_count; ++v) {
    line += (v == 0 ? ", one of '" : ", '") + std::string(d.value_names[v]) + "'";
  }
  if (d.doc != nullptr) line += ". " + std::string(d.doc);
  return line + "\n";
}

}  // namespace

std::string place(const Op& op, const Argument& argument) {
  return std::string(op.desc.name) + ": " + argument.name;
}

Op::Op(const bp_op_desc& described) : desc(described) {
  read_arguments();
  find_group();
  add_parameters();
  write_signature();
  write_doc();
}

void Op::read_arguments() {
  const auto* at = reinterpret_cast<const char*>(desc.arguments);
  for (uint64_t i = 0; i < desc.argument_count; ++i, at += desc.argument_stride_bytes) {
    read_argument(*reinterpret_cast<const bp_op_argument*>(at));
  }
  if (arguments.size() > kMaxArguments) {
    throw Error(BP_UNSUPPORTED,
                std::string(desc.name) + " has " + std::to_string(arguments.size()) +
                    " arguments; this binding takes " + std::to_string(kMaxArguments));
  }
  for (Argument& a : arguments) find_axis(a, arguments);
}

void Op::read_argument(const bp_op_argument& d) {
  const bp_argument_kind k = d.kind;
  Argument a{.desc = &d, .name = d.name, .kind = k, .offset = d.offset_bytes};
  a.is_tensor = !is_attribute(k);
  a.is_output = k == BP_ARGUMENT_OUT || k == BP_ARGUMENT_OPTIONAL_OUT || k == BP_ARGUMENT_OUT_LIST;
  a.is_written = k == BP_ARGUMENT_INOUT || k == BP_ARGUMENT_INOUT_LIST;
  a.is_list =
      k == BP_ARGUMENT_TENSOR_LIST || k == BP_ARGUMENT_OUT_LIST || k == BP_ARGUMENT_INOUT_LIST;
  a.has_scalar = k == BP_ARGUMENT_OPERAND || k == BP_ARGUMENT_SCALAR_TENSOR;
  // What a later revision appended may be absent.
  a.is_optional = k == BP_ARGUMENT_OPTIONAL_TENSOR || k == BP_ARGUMENT_OPTIONAL_OUT ||
                  (d.since > desc.since && !a.is_output) || may_be_absent(desc.name, d.name);
  a.is_given_shape = a.is_output && text_of(d.shape_rule) == "given";
  a.is_free = a.is_output && (d.dtype_count > 1 || a.is_given_shape);
  if (a.is_output) outputs.push_back(static_cast<uint32_t>(arguments.size()));
  if (a.is_written) written |= uint64_t{1} << arguments.size();
  arguments.push_back(std::move(a));
}

// In an op with an operand, the tensors whose shapes depend on each other are broadcast to one
// shape, and those whose dtypes do are cast to one dtype.
void Op::find_group() {
  const auto operand = std::find_if(arguments.begin(), arguments.end(), [](const Argument& a) {
    return a.kind == BP_ARGUMENT_OPERAND;
  });
  if (operand == arguments.end()) return;
  has_operand = true;
  const std::string like(text_of(operand->desc->dtype_rule));
  for (Argument& a : arguments) {
    if (!a.is_tensor || a.is_output || a.is_list) continue;
    a.is_broadcast = a.kind == BP_ARGUMENT_TENSOR || a.kind == BP_ARGUMENT_OPERAND;
    if (a.is_broadcast) group.push_back(static_cast<uint32_t>(&a - arguments.data()));
    a.is_cast = a.desc->dtype_rule == like || "like(" + a.name + ")" == like;
    if (!a.is_cast || a.desc->dtype_count == 0) continue;
    takes_floats_alone =
        std::all_of(a.desc->dtypes, a.desc->dtypes + a.desc->dtype_count,
                    [](bp_dtype d) { return (d >= BP_F16 && d <= BP_F64) || (d >= BP_F8E4M3FN); });
  }
}

void Op::add_parameters() {
  const auto add = [&](const std::string& name, Parameter::Role role, size_t i, bool required) {
    parameters.push_back(
        {PyUnicode_InternFromString(name.c_str()), role, static_cast<uint32_t>(i), required});
  };
  for (const bool is_required : {true, false}) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const Argument& a = arguments[i];
      if (a.is_output || has_default(a) == is_required) continue;
      add(a.name, Parameter::Role::kArgument, i, is_required);
    }
  }
  positional_count = parameters.size();
  bool is_given = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& a = arguments[i];
    if (!a.is_output) continue;
    add(a.name, Parameter::Role::kOutput, i, false);
    if (a.is_given_shape && !is_given) {
      add("shape", Parameter::Role::kShape, i, false);
      add("device", Parameter::Role::kDevice, i, false);
      is_given = true;
    }
    if (a.is_free)
      add(a.is_optional ? a.name + "_dtype" : "dtype", Parameter::Role::kDtype, i, false);
  }
  if (parameters.size() > kMaxParameters) {
    throw Error(BP_UNSUPPORTED, std::string(desc.name) + " has too many parameters");
  }
}

void Op::write_signature() {
  std::string inner;
  const auto add = [&](const std::string& text) { inner += (inner.empty() ? "" : ", ") + text; };
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    const Argument& a = arguments[p.argument];
    const std::string name(PyUnicode_AsUTF8(p.name));
    if (i == positional_count) add("*");
    if (i < positional_count) {
      add(name + (p.is_required ? "" : "=" + default_text(a)));
    } else {
      add(name + (p.role == Parameter::Role::kOutput && a.is_optional ? "=False" : "=None"));
    }
  }
  signature = "(" + inner + ")";
}

void Op::write_doc() {
  doc = std::string(text_of(desc.doc)) + "\n\n";
  for (size_t i = 0; i < positional_count; ++i) doc += line_of(arguments[parameters[i].argument]);
  doc += "\nReturns ";
  for (const uint32_t i : outputs) {
    const Argument& a = arguments[i];
    doc +=
        (i == outputs[0] ? "" : ", and ") + a.name + (a.is_optional ? " if it is asked for" : "");
  }
  doc += outputs.empty() ? "nothing: it writes its arguments." : ".";
}

}  // namespace bp::python
