#include "registry/calls/claims.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "backplane/host.h"
#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/tables.hpp"
#include "registry/calls/frame_words.hpp"
#include "registry/calls/own_layouts.hpp"
#include "registry/calls/qualifiers.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/tensors/scalar.hpp"

namespace bp::core {
namespace {

// Returns text like "contiguous, broadcast" for these bits.
std::string layout_names(bp_layout_flags layouts) {
  std::string names;
  for (bp_layout_flags bit = 1; bit <= BP_LAYOUT_ANY; bit <<= 1) {
    if ((layouts & bit) == 0) continue;
    names += (names.empty() ? "" : ", ") + std::string(layout_name(bit));
  }
  return names;
}

// Returns the refusal of a member that the kernel does not know.
std::string later_text(const char* name, const bp_kernel& kernel) {
  return std::string(name) + " is given; the kernel was written for revision " +
         std::to_string(kernel.spec_revision);
}

// Returns whether an argument that was appended to the frame is neither a tensor nor a scalar.
bool is_absent(const TensorArgument& argument, Fact fact) {
  return !is_given(fact) && !(argument.has_scalar() && is_inline(fact));
}

// Returns the facts of argument i as `kernel` sees them. An inline scalar may reach the kernel as a
// tensor.
Fact seen(const OpRow& row, const bp_kernel& kernel, const Key& key, uint32_t i) {
  const TensorArgument& argument = row.tensors[i];
  const Fact fact = key.fact(i);
  const bool becomes_tensor =
      argument.has_scalar() && is_inline(fact) && (kernel.flags & BP_KERNEL_TAKES_SCALAR) == 0;
  if (!becomes_tensor) return fact;
  const Fact one = kHasOneElement | kMaxAlignmentLog2 << kAlignmentShift;
  if (argument.kind == Kind::scalar_tensor) {
    const bp_dtype dtype = argument.is_free ? argument.dtype : 0;
    return one | dtype | BP_LAYOUT_CONTIGUOUS << kClassShift;
  }
  const Fact like = key.fact(argument.like);
  const bool is_single = (like & kHasOneElement) != 0;
  const bp_dtype x = dtype_of(like), dtype = takes_acc_operand(kernel) ? acc_dtype(x) : x;
  return one | dtype | rank_of(like) << kRankShift |
         bp_layout_flags{is_single ? BP_LAYOUT_CONTIGUOUS : BP_LAYOUT_BROADCAST} << kClassShift;
}

// Returns why the kernel does not take an argument. If the argument `is_converted`, the kernel sees
// it neither by strides nor where it lies.
std::string tensor_refusal(const bp_kernel& kernel, const TensorArgument& argument, Fact fact,
                           bool is_converted) {
  const std::string name = argument.name;
  const bp_layout_flags classes = classes_of(fact);
  // Claims say nothing about layouts of the backend's own. own_layouts.hpp decides about them.
  const bp_layout_flags others = classes & ~(kernel.layouts | kOpaqueClass);
  if ((kernel.layouts & BP_LAYOUT_ANY) == 0 && others != 0 && !is_converted) {
    return name + ": layout " + layout_names(others) + " is not claimed, only " +
           layout_names(kernel.layouts);
  }
  if (kernel.max_rank != 0 && rank_of(fact) > kernel.max_rank) {
    return name + ": rank " + std::to_string(rank_of(fact)) + " is above " +
           std::to_string(kernel.max_rank);
  }
  if (alignment_of(fact) < kernel.min_byte_alignment_bytes && !is_converted) {
    return name + ": its byte offset is no multiple of " +
           std::to_string(kernel.min_byte_alignment_bytes);
  }
  if ((fact & kDiffers) != 0) return name + ": its tensors have several dtypes";
  return "";
}

// Returns the refusal of an operand that is a tensor in acc(x), or "".
std::string operand_dtype_refusal(const OpRow& row, const bp_kernel& kernel, const Key& key,
                                  uint32_t i) {
  const TensorArgument& argument = row.tensors[i];
  if (argument.kind != Kind::operand || is_inline(key.fact(i))) return "";
  const bp_dtype own = dtype_of(key.fact(i)), x = dtype_of(key.fact(argument.like));
  if (own == x || own != acc_dtype(x) || takes_acc_operand(kernel)) return "";
  return std::string(argument.name) + ": dtype " + dtype_text(own) + " is not claimed beside " +
         dtype_text(x);
}

std::string dtypes_refusal(const OpRow& row, const bp_kernel& kernel, const Key& key) {
  if (kernel.dtype_rows == nullptr) return "";
  bp_dtype given[kMaxTensors];
  uint32_t count = 0;
  std::string names;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    if (!row.tensors[i].is_free || row.tensors[i].offset >= kernel.args_size_bytes) continue;
    const Fact fact = seen(row, kernel, key, i);
    given[count++] = dtype_of(fact);
    if (!is_given(fact)) continue;
    names += (names.empty() ? "" : ", ") + std::string(row.tensors[i].name) + " " +
             dtype_text(dtype_of(fact));
  }
  for (uint32_t i = 0; i < kernel.dtype_row_count; ++i) {
    const bp_dtype* claimed = kernel.dtype_rows + size_t{i} * kernel.dtype_count;
    const bool fits = std::equal(given, given + count, claimed, [](bp_dtype its, bp_dtype theirs) {
      return its == 0 || its == theirs;  // An absent argument has no dtype.
    });
    if (fits) return "";
  }
  return "dtypes are not claimed: " + names;
}

std::string flags_refusal(const bp_kernel& kernel, const Key& key) {
  if ((key.flags() & BP_LAUNCH_DETERMINISTIC) != 0 &&
      (kernel.flags & BP_KERNEL_DETERMINISTIC) == 0) {
    return "it is not deterministic, and the launch flags ask for that";
  }
  if ((key.flags() & BP_LAUNCH_STRICT_F32) != 0 && kernel.numerics != nullptr &&
      kernel.numerics->products != BP_PRODUCTS_NATIVE) {
    return "it multiplies in reduced precision, and the launch flags ask for strict f32";
  }
  if (key.is_in_place() && (kernel.flags & BP_KERNEL_IN_PLACE) == 0) {
    return "an output is the memory of an input, and the kernel does not work in place";
  }
  return "";
}

// Returns why a declaration cannot be used, or "" if it can. The host cannot judge a kernel by a
// value that it does not know.
std::string numerics_defect(const bp_numerics& n) {
  constexpr uint32_t kFirst = offsetof(bp_numerics, tie) + sizeof(bp_numerics::tie);
  std::string defect = struct_defect(&n, BP_STRUCT_NUMERICS, kFirst);
  if (!defect.empty()) return "numerics: " + defect;
  const struct {
    const char* name;
    uint32_t value, last;
  } members[] = {{"products", n.products, BP_PRODUCTS_BF16X3},
                 {"rounding", n.rounding, BP_ROUNDING_FAITHFUL},
                 {"overflow", n.overflow, BP_OVERFLOW_NAN},
                 {"math", n.math, BP_MATH_RELAXED},
                 {"tie", n.tie, BP_TIE_ANY}};
  for (const auto& [name, value, last] : members) {
    if (value <= last) continue;
    return "numerics: " + std::string(name) + " is " + std::to_string(value) +
           ", which this host does not know";
  }
  if (n.accumulator == 0 || is_known_dtype(n.accumulator)) return "";
  return "numerics: accumulator is dtype " + std::to_string(n.accumulator) +
         ", which this host does not know";
}

// Returns why the rows of dtypes cannot be used, or "" if one of them can. A number that the host
// could hand out to somebody else later must not stay in a row.
std::string rows_defect(const bp_kernel& kernel) {
  if (kernel.dtype_rows == nullptr || kernel.dtype_row_count == 0) return "";
  const bp_dtype* const end =
      kernel.dtype_rows + size_t{kernel.dtype_row_count} * kernel.dtype_count;
  const bp_dtype* const loose = std::find_if(kernel.dtype_rows, end, [](bp_dtype dtype) {
    return dtype >= BP_DTYPE_VENDOR_FIRST && dtype <= BP_DTYPE_VENDOR_LAST &&
           !is_known_dtype(dtype);
  });
  if (loose != end) {
    return "its rows have dtype " + std::to_string(*loose) + ", which add_dtype() did not give";
  }
  const std::vector<std::string> rejected = rejected_rows(kernel);
  return rejected.size() == kernel.dtype_row_count ? rejected.front() : "";
}

// Returns why the kernel cannot be one of its op, or "" if it can. A kernel may name an op that
// nobody has described yet.
std::string op_defect(const bp_kernel& kernel) {
  if (kernel.op >= kFirstRuntimeOp) {
    return "op is " + std::to_string(kernel.op) +
           ", a number of one host; give 0, and the name as op_name";
  }
  const OpRow* const row = find_op(op_of(kernel));
  if (row != nullptr) return revision_defect(*row, kernel);
  if (!names_its_op(kernel))
    return "op " + std::to_string(kernel.op) + " is not known to this host";
  if (is_vendor_name(kernel.op_name)) return "";
  return "its op_name is " + clean_name(kernel.op_name) +
         ", not vendor.name with both in [a-z0-9_]+";
}

}  // namespace

std::vector<std::string> rejected_rows(const bp_kernel& kernel) {
  std::vector<std::string> lines;
  if (kernel.dtype_rows == nullptr) return lines;
  for (uint32_t row = 0; row < kernel.dtype_row_count; ++row) {
    const bp_dtype* const first = kernel.dtype_rows + size_t{row} * kernel.dtype_count;
    const bp_dtype* const unknown =
        std::find_if(first, first + kernel.dtype_count,
                     [](bp_dtype dtype) { return dtype != 0 && !is_known_dtype(dtype); });
    if (unknown == first + kernel.dtype_count) continue;
    lines.push_back("dtype row " + std::to_string(row) + ": dtype " + std::to_string(*unknown) +
                    " is not known to this host");
  }
  return lines;
}

std::string revision_defect(const OpRow& row, const bp_kernel& kernel) {
  const std::string name = row.name;
  const uint32_t revision = kernel.spec_revision, size_bytes = kernel.args_size_bytes;
  if (revision < row.sizes[0].revision) {
    return "spec_revision is " + std::to_string(revision) + ", and revision " +
           std::to_string(row.sizes[0].revision) + " brought " + name;
  }
  // A newer kernel may know a longer frame.
  const bool is_newer = revision > row.revision;
  const uint32_t expected = row.size_in(revision);
  if (size_bytes < expected || size_bytes > (is_newer ? kMaxFrameBytes : expected)) {
    return "args_size_bytes is " + std::to_string(size_bytes) + ", and the frame of " + name +
           " has " + (is_newer ? "at least " : "") + std::to_string(expected) +
           " bytes in revision " + std::to_string(revision);
  }
  uint32_t free_count = 0;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    free_count += row.tensors[i].is_free && row.tensors[i].offset < size_bytes;
  }
  const bool fits = is_newer ? kernel.dtype_count >= free_count : kernel.dtype_count == free_count;
  if (kernel.dtype_rows != nullptr && !fits) {
    return "dtype_count is " + std::to_string(kernel.dtype_count) + ", " + name + " has " +
           (is_newer ? "at least " : "") + std::to_string(free_count) + " free dtypes";
  }
  return "";
}

bool knows_all_values(const OpRow& row, const bp_kernel& kernel) {
  return std::ranges::all_of(row.later_values, [&](const LaterValue& later) {
    return later.revision <= kernel.spec_revision;
  });
}

std::string later_value_refusal(const OpRow& row, const bp_kernel& kernel, const void* frame) {
  for (const LaterValue& later : row.later_values) {
    if (later.revision <= kernel.spec_revision || later.offset >= kernel.args_size_bytes) continue;
    if (*static_cast<const uint32_t*>(member(frame, later.offset)) != later.value) continue;
    return std::string(later.member) + " is " + later.name + ", which revision " +
           std::to_string(later.revision) + " brought; the kernel was written for revision " +
           std::to_string(kernel.spec_revision);
  }
  return "";
}

std::string later_member_refusal(const OpRow& row, const bp_kernel& kernel, uint32_t offset) {
  const char* name = nullptr;
  for (const FrameMember& m : frame_members(row)) {
    if (first_byte(m) <= offset) name = m.name;
  }
  if (name == nullptr || offset >= row.frame_size_bytes) {
    return "byte " + std::to_string(offset) +
           " of the frame is not zero, and this host is too old " + "to know it";
  }
  return later_text(name, kernel);
}

std::string kernel_defect(const bp_kernel& kernel) {
  if (kernel.name == nullptr || kernel.launch == nullptr) return "name or launch is NULL";
  if (clean_name(kernel.name) !=
      std::string_view(kernel.name, strnlen(kernel.name, kMaxPluginName + 1))) {
    return "its name has control characters, is no UTF-8, or has more than " +
           std::to_string(kMaxPluginName) + " bytes";
  }
  const std::string defect = op_defect(kernel);
  if (!defect.empty()) return defect;
  const std::string rows = rows_defect(kernel);
  if (!rows.empty()) return rows;
  const std::string numerics = kernel.numerics == nullptr ? "" : numerics_defect(*kernel.numerics);
  if (!numerics.empty()) return numerics;
  if ((kernel.layouts & (2 * BP_LAYOUT_ANY - 1)) == 0) return "claims no layout";
  const uint64_t alignment = kernel.min_byte_alignment_bytes;
  if (alignment > 4096 || (alignment != 0 && !std::has_single_bit(alignment))) {
    return "min_byte_alignment_bytes is " + std::to_string(alignment) +
           ", allowed is a power of two up to 4096";
  }
  const std::string qualifiers = qualifiers_defect(kernel);
  if (!qualifiers.empty()) return qualifiers;
  const std::string layout_claims = layout_claims_defect(kernel);
  if (!layout_claims.empty()) return layout_claims;
  if (knows_plans(kernel)) {
    const int given = (kernel.prepare != nullptr) + (kernel.plan_info != nullptr) +
                      (kernel.plan_pack != nullptr) + (kernel.plan_release != nullptr);
    if (given != 0 && given != 4) {
      return "it has only some of prepare, plan_info, plan_pack and plan_release; give all of them "
             "or none";
    }
  }
  return "";
}

std::string lent_kernel_defect(const bp_kernel* kernel) {
  if (kernel == nullptr) return "the kernel is NULL";
  const std::string defect = struct_defect(kernel, BP_STRUCT_KERNEL, kFirstKernel);
  if (!defect.empty()) return "the kernel: " + defect;
  const bool is_whole = kernel->name != nullptr && kernel->launch != nullptr;
  return is_whole ? "" : "the kernel: name or launch is NULL";
}

bool needs_scalar_tensors(const OpRow& row, const bp_kernel& kernel, const Key& key) {
  if ((kernel.flags & BP_KERNEL_TAKES_SCALAR) != 0) return false;
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    if (row.tensors[i].has_scalar() && is_inline(key.fact(i))) return true;
  }
  return false;
}

bool has_narrow_operand(const OpRow& row, const Key& key) {
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (argument.kind != Kind::operand || !is_inline(key.fact(i))) continue;
    if (is_narrow(dtype_of(key.fact(argument.like)))) return true;
  }
  return false;
}

std::string operand_value_refusal(const OpRow& row, const bp_kernel& kernel, const void* frame) {
  if (!rounds_operands(kernel)) return "";
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (argument.kind != Kind::operand || !has_member(frame, argument.offset)) continue;
    if (!has_inline_scalar(argument, frame)) continue;
    const bp_dtype x = tensor_at(frame, row.tensors[argument.like])->dtype;
    if (!is_narrow(x) || holds_scalar(scalar_at(frame, argument), x)) continue;
    return std::string(argument.name) + ": " + dtype_text(x) +
           " does not hold the scalar, and the kernel takes no operand in f32";
  }
  return "";
}

std::string claims_refusal(const OpRow& row, const bp_kernel& kernel, const Key& key) {
  std::string refusal = flags_refusal(kernel, key);
  for (uint32_t i = 0; refusal.empty() && i < row.tensor_count; ++i) {
    const Fact fact = seen(row, kernel, key, i);
    if (row.tensors[i].offset >= kernel.args_size_bytes) {
      if (!is_absent(row.tensors[i], fact)) {
        refusal = later_text(row.tensors[i].name, kernel);
      }
      continue;
    }
    if (is_given(fact)) {
      const bool is_converted =
          (classes_of(fact) & kOpaqueClass) == 0 && required_claim(kernel, i) != nullptr;
      refusal = tensor_refusal(kernel, row.tensors[i], fact, is_converted);
    }
    if (refusal.empty()) refusal = operand_dtype_refusal(row, kernel, key, i);
  }
  return refusal.empty() ? dtypes_refusal(row, kernel, key) : refusal;
}

}  // namespace bp::core
