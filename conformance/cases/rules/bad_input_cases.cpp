// Cases for calls with one fault, for every op: bp_op_check() must refuse each with a sentence that
// names the op and the argument, and no call may end the process.
//
// The cases change a legal call of the op, so a new op gets all of them with its first row.
#include "conformance/cases/rules/bad_input_cases.hpp"

#include <algorithm>
#include <limits>
#include <memory>

#include "backplane/host.h"
#include "conformance/cases/engine/host_call.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::conformance {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

const FrameMember& member_of(const OpCase& row, size_t index) {
  return op_info(row.op).member(row.tensors[index].name);
}

bool is_output(const OpCase& row, size_t index) { return row.tensors[index].role != Role::kInput; }

bool names(const std::string& text, std::string_view word) {
  return text.find(word) != std::string::npos;
}

// Requires that the call is refused with a text that names the op and `argument`.
void expect_refused(Context& t, HostCall& call, const OpCase& row, std::string_view argument,
                    const std::string& what) {
  std::string text;
  const bp_status status = call.check(&text);
  const std::string at = std::string(argument) + ": " + what;
  t.expect_eq(status, BP_INVALID_ARGUMENT, at);
  if (status != BP_INVALID_ARGUMENT) return;
  const std::string_view op = op_info(row.op).name;
  t.expect(names(text, op), at + ": the sentence does not name the op: " + text);
  t.expect(names(text, argument), at + ": the sentence does not name the argument: " + text);
}

// The call may be legal or not. If it is refused, the text must name the op and the argument.
void expect_sound(Context& t, HostCall& call, const OpCase& row, std::string_view argument,
                  const std::string& what) {
  std::string text;
  const bp_status status = call.check(&text);
  if (status == BP_OK) return;
  const std::string at = std::string(argument) + ": " + what;
  t.expect_eq(status, BP_INVALID_ARGUMENT, at);
  t.expect(names(text, op_info(row.op).name), at + ": the sentence does not name the op: " + text);
}

// ---- Tensors ----------------------------------------------------------------------------------

void missing_tensor(Context& t, const OpCase& row) {
  for (size_t i = 0; i < row.tensors.size(); ++i) {
    const std::string_view kind = member_of(row, i).kind;
    if (kind != "tensor" && kind != "out" && kind != "inout") continue;
    HostCall call(row);
    call.frame().set_tensor(row.tensors[i].name, nullptr);
    expect_refused(t, call, row, row.tensors[i].name, "NULL");
  }
}

// Calls bend(call, index) for each tensor, each time on a call of its own. The call must then be
// refused.
template <typename Bend>
void refuse_each(Context& t, const OpCase& row, const std::string& what, Bend bend) {
  for (size_t i = 0; i < row.tensors.size(); ++i) {
    HostCall call(row);
    if (!bend(call, i)) continue;
    expect_refused(t, call, row, row.tensors[i].name, what);
  }
}

void unknown_dtype(Context& t, const OpCase& row) {
  refuse_each(t, row, "dtype 77", [](HostCall& call, size_t i) {
    call.tensor(i).dtype = 77;
    return true;
  });
}

void rank_beyond_the_limit(Context& t, const OpCase& row) {
  refuse_each(t, row, "rank 9", [](HostCall& call, size_t i) {
    call.shape(i) = Shape(BP_MAX_RANK + 1, 1);
    call.strides(i) = call.shape(i);
    call.refresh();
    return true;
  });
}

void negative_extent(Context& t, const OpCase& row) {
  refuse_each(t, row, "an extent of -1", [](HostCall& call, size_t i) {
    if (call.shape(i).empty()) return false;
    call.shape(i).back() = -1;
    return true;
  });
}

void size_that_overflows(Context& t, const OpCase& row) {
  refuse_each(t, row, "2^120 elements", [&](HostCall& call, size_t i) {
    call.shape(i) = Shape{int64_t{1} << 60, int64_t{1} << 60};
    call.strides(i) = Shape{int64_t{1} << 60, 1};
    call.refresh();
    return true;
  });
}

void strides_that_overflow(Context& t, const OpCase& row) {
  for (const int64_t stride : {kLeast, kMost}) {
    refuse_each(t, row, "an axis whose end cannot be counted", [stride](HostCall& call, size_t i) {
      const auto axis = std::ranges::find_if(call.shape(i), [](int64_t n) { return n > 1; });
      if (axis == call.shape(i).end()) return false;
      // In bytes, the end of so many packed elements can be counted.
      if (bp_dtype_bits(call.tensor(i).dtype) < 8) return false;
      call.strides(i)[static_cast<size_t>(axis - call.shape(i).begin())] = stride;
      return true;
    });
  }
}

void offset_that_overflows(Context& t, const OpCase& row) {
  for (const uint64_t offset : {uint64_t{1} << 63, ~uint64_t{0} - 63, (uint64_t{1} << 63) - 64}) {
    refuse_each(t, row, "byte " + std::to_string(offset), [offset](HostCall& call, size_t i) {
      // With the last offset, an element ends at byte 2^63, which is one byte too far.
      const bool is_last = offset == (uint64_t{1} << 63) - 64;
      const uint64_t size = element_size(call.tensor(i).dtype);
      call.tensor(i).byte_offset = is_last ? offset + 64 - size : offset;
      return true;
    });
  }
}

void shape_without_memory(Context& t, const OpCase& row) {
  refuse_each(t, row, "a shape that is NULL", [](HostCall& call, size_t i) {
    if (call.shape(i).empty()) return false;
    call.tensor(i).shape = nullptr;
    return true;
  });
  refuse_each(t, row, "strides that are NULL", [](HostCall& call, size_t i) {
    if (call.shape(i).empty()) return false;
    call.tensor(i).strides = nullptr;
    return true;
  });
}

// ---- Outputs ----------------------------------------------------------------------------------

// Returns whether the shape of the outputs follows from inputs.
bool has_inputs(const OpCase& row) {
  return std::ranges::any_of(row.tensors, [](const TensorArgument& argument) {
    return argument.role != Role::kOutput && !argument.shape.empty();
  });
}

void wrong_output_shape(Context& t, const OpCase& row) {
  if (!has_inputs(row)) t.not_supported("the shape of its outputs is the caller's choice");
  refuse_each(t, row, "one element more", [&](HostCall& call, size_t i) {
    if (row.tensors[i].role != Role::kOutput || call.shape(i).empty()) return false;
    call.shape(i).front() += 1;
    return true;
  });
  refuse_each(t, row, "one axis more", [&](HostCall& call, size_t i) {
    if (row.tensors[i].role != Role::kOutput || call.shape(i).size() == BP_MAX_RANK) return false;
    call.shape(i).push_back(2);
    call.strides(i).push_back(1);
    call.refresh();
    return true;
  });
}

void output_over_itself(Context& t, const OpCase& row) {
  refuse_each(t, row, "a stride of 0", [&](HostCall& call, size_t i) {
    if (!is_output(row, i)) return false;
    const auto axis = std::ranges::find_if(call.shape(i), [](int64_t n) { return n > 1; });
    if (axis == call.shape(i).end()) return false;
    call.strides(i)[static_cast<size_t>(axis - call.shape(i).begin())] = 0;
    return true;
  });
}

// The output begins one element behind an input, in its memory. That is never legal, even if the op
// may work in place.
void output_over_part_of_an_input(Context& t, const OpCase& row) {
  for (size_t i = 0; i < row.tensors.size(); ++i) {
    if (!is_output(row, i) || element_count(row.tensors[i].shape) < 2) continue;
    for (size_t k = 0; k < row.tensors.size(); ++k) {
      if (k == i || element_count(row.tensors[k].shape) < 2) continue;
      const uint64_t shift =
          std::max(element_size(row.tensors[i].dtype), element_size(row.tensors[k].dtype));
      // A few packed elements end before the second element of the output begins.
      const auto count = static_cast<uint64_t>(element_count(row.tensors[k].shape));
      if (count * dtype_bits(row.tensors[k].dtype) <= 8 * shift) continue;
      HostCall call(row);
      call.tensor(i).buffer = call.tensor(k).buffer;
      call.tensor(i).byte_offset = call.tensor(k).byte_offset + shift;
      expect_refused(t, call, row, row.tensors[i].name,
                     "in the memory of " + std::string(row.tensors[k].name));
    }
  }
}

// The output lies in the memory of an input, from its end to its beginning. That is never legal.
void output_over_an_input_reversed(Context& t, const OpCase& row) {
  for (size_t i = 0; i < row.tensors.size(); ++i) {
    if (!is_output(row, i)) continue;
    const Shape& shape = row.tensors[i].shape;
    const auto axis = std::ranges::find_if(shape, [](int64_t extent) { return extent > 1; });
    if (axis == shape.end()) continue;
    for (size_t k = 0; k < row.tensors.size(); ++k) {
      if (k == i) continue;
      HostCall call(row);
      int64_t& stride = call.strides(i)[static_cast<size_t>(axis - shape.begin())];
      call.tensor(i).buffer = call.tensor(k).buffer;
      call.tensor(i).byte_offset =
          tensors::packed_bytes(static_cast<uint64_t>((*axis - 1) * stride),
                                static_cast<uint32_t>(dtype_bits(row.tensors[i].dtype)));
      stride = -stride;
      expect_refused(t, call, row, row.tensors[i].name,
                     "reversed in the memory of " + std::string(row.tensors[k].name));
    }
  }
}

// ---- Attributes -------------------------------------------------------------------------------

void integer_beyond_bounds(Context& t, const OpCase& row) {
  for (const FrameMember& member : op_info(row.op).members) {
    if (member.kind != "i32" && member.kind != "i64") continue;
    for (const int64_t value : {kLeast, int64_t{-1}, int64_t{1} << 31, kMost}) {
      HostCall call(row);
      call.frame().set_integer(member.name, value);
      expect_sound(t, call, row, member.name, std::to_string(value));
    }
  }
}

// Returns the description of a member of the frame.
const bp_op_argument& description(Context& t, const OpCase& row, const FrameMember& member) {
  const bp_op_desc* op = nullptr;
  t.require_ok(bp_op_describe(row.op, &op), "bp_op_describe");
  const auto* at = reinterpret_cast<const std::byte*>(op->arguments);
  while (reinterpret_cast<const bp_op_argument*>(at)->offset_bytes != member.offset) {
    at += op->argument_stride_bytes;
  }
  return *reinterpret_cast<const bp_op_argument*>(at);
}

void unknown_enumeration(Context& t, const OpCase& row) {
  for (const FrameMember& member : op_info(row.op).members) {
    if (member.kind != "enumeration") continue;
    const bp_op_argument& known = description(t, row, member);
    const int64_t first = known.first_value, count = known.value_count;
    for (const int64_t value : {first - 1, first + count, int64_t{99}, int64_t{-1}}) {
      HostCall call(row);
      call.frame().set_integer(member.name, value);
      expect_refused(t, call, row, member.name, "the value " + std::to_string(value));
    }
  }
}

void number_beyond_bounds(Context& t, const OpCase& row) {
  for (const FrameMember& member : op_info(row.op).members) {
    if (member.kind != "f64") continue;
    for (const double value : {-HUGE_VAL, HUGE_VAL, std::nan(""), -1e300}) {
      HostCall call(row);
      call.frame().set_number(member.name, value);
      expect_sound(t, call, row, member.name, std::to_string(value));
    }
  }
}

void list_without_memory(Context& t, const OpCase& row) {
  for (const Attribute& attribute : row.attributes) {
    if (!std::holds_alternative<Shape>(attribute.value)) continue;
    HostCall call(row);
    call.frame().set_list(attribute.name, nullptr, 1);
    expect_refused(t, call, row, attribute.name, "one element at NULL");
  }
}

void list_beyond_bounds(Context& t, const OpCase& row) {
  for (const Attribute& attribute : row.attributes) {
    const auto* list = std::get_if<Shape>(&attribute.value);
    if (list == nullptr) continue;
    for (const int64_t value : {kLeast, int64_t{-1}, kMost}) {
      Shape values = *list;
      std::ranges::fill(values, value);
      values.resize(std::max<size_t>(values.size(), 1), value);
      HostCall call(row);
      call.frame().set_list(attribute.name, values);
      expect_sound(t, call, row, attribute.name, std::to_string(value));
      values.assign(100, 1);
      call.frame().set_list(attribute.name, values);
      expect_refused(t, call, row, attribute.name, "100 elements");
    }
  }
}

void scalar_of_unknown_dtype(Context& t, const OpCase& row) {
  for (const FrameMember& member : op_info(row.op).members) {
    if (!member.has_scalar()) continue;
    for (const bp_scalar& scalar :
         {bp_scalar{}, bp_scalar{77, 0, 1}, bp_scalar{BP_BOOL, 0, 2}, bp_scalar{BP_I64, 0, 1, 1}}) {
      if (scalar.dtype == 0 && member.may_be_absent) continue;  // The value is 0.
      HostCall call(row);
      call.frame().set_scalar(member.name, scalar);
      expect_refused(t, call, row, member.name,
                     "a scalar of dtype " + std::to_string(scalar.dtype));
    }
  }
}

struct Rule {
  const char* sentence;
  void (*run)(Context&, const OpCase&);
  bool (*applies)(const OpCase&);
};

bool always(const OpCase&) { return true; }
template <typename Test>
bool any_member(const OpCase& row, Test test) {
  return std::ranges::any_of(op_info(row.op).members, test);
}
bool has_long_axis(const OpCase& row) {
  return std::ranges::any_of(row.tensors, [](const TensorArgument& argument) {
    return std::ranges::any_of(argument.shape, [](int64_t extent) { return extent > 1; });
  });
}
bool has_list(const OpCase& row) {
  return std::ranges::any_of(row.attributes, [](const Attribute& attribute) {
    return std::holds_alternative<Shape>(attribute.value);
  });
}

const Rule kRules[] = {
    {"missing_tensor", missing_tensor, always},
    {"unknown_dtype", unknown_dtype, always},
    {"rank_beyond_the_limit", rank_beyond_the_limit, always},
    {"negative_extent", negative_extent, always},
    {"size_that_overflows", size_that_overflows, always},
    {"strides_that_overflow", strides_that_overflow, has_long_axis},
    {"offset_that_overflows", offset_that_overflows, always},
    {"shape_without_memory", shape_without_memory, always},
    {"wrong_output_shape", wrong_output_shape, has_inputs},
    {"output_over_itself", output_over_itself, always},
    {"output_over_part_of_an_input", output_over_part_of_an_input, has_inputs},
    {"output_over_an_input_reversed", output_over_an_input_reversed, has_inputs},
    {"integer_beyond_bounds", integer_beyond_bounds,
     [](const OpCase& row) {
       return any_member(row, [](const auto& m) { return m.kind == "i32" || m.kind == "i64"; });
     }},
    {"unknown_enumeration", unknown_enumeration,
     [](const OpCase& row) {
       return any_member(row, [](const auto& m) { return m.kind == "enumeration"; });
     }},
    {"number_beyond_bounds", number_beyond_bounds,
     [](const OpCase& row) {
       return any_member(row, [](const auto& m) { return m.kind == "f64"; });
     }},
    {"list_without_memory", list_without_memory, has_list},
    {"list_beyond_bounds", list_beyond_bounds, has_list},
    {"scalar_of_unknown_dtype", scalar_of_unknown_dtype,
     [](const OpCase& row) {
       return any_member(row, [](const auto& m) { return m.has_scalar(); });
     }},
};

}  // namespace

void add_bad_input_cases(std::vector<Case>& cases, const OpCases& rows) {
  for (const OpCase* base : widest_of_each_op(rows)) {
    const auto shared = std::make_shared<const OpCase>(*base);
    for (const Rule& rule : kRules) {
      if (!rule.applies(*base)) continue;
      Case entry;
      entry.id =
          std::string("bad_input.") + rule.sentence + "." + std::string(op_info(base->op).name);
      entry.tags = {"ERROR-1"};
      if (rule.run == scalar_of_unknown_dtype) entry.tags.emplace_back("TENSOR-7");
      entry.group = "bad input";
      entry.op = base->op;
      entry.run = [shared, &rule](Context& t) { rule.run(t, *shared); };
      cases.push_back(std::move(entry));
    }
  }
}

}  // namespace bp::conformance
