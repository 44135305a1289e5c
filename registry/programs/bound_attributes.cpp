#include "registry/programs/bound_attributes.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "registry/calls/frame_words.hpp"

namespace bp::core {
namespace {

std::optional<int64_t> number_of_range(const bp_program_extent& range, Moment moment) {
  if (moment == Moment::preferred) return range.preferred;
  return moment == Moment::least ? range.min : range.max;
}

std::optional<int64_t> combined(bp_extent_kind kind, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (kind) {
    case BP_EXTENT_SUM:
      if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
      return result;
    case BP_EXTENT_PRODUCT:
      if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
      return result;
    case BP_EXTENT_QUOTIENT:
      if (b <= 0 || a % b != 0) return std::nullopt;
      return a / b;
    case BP_EXTENT_MAXIMUM:
      return std::max(a, b);
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> number_of_formula(const bp_program_extent& formula,
                                         const std::vector<int64_t>& earlier) {
  if (formula.terms == nullptr) return std::nullopt;
  std::optional<int64_t> result;
  for (uint64_t i = 0; i < formula.term_count; ++i) {
    int64_t term = formula.terms[i];
    if (term < 0) {
      const auto index = static_cast<uint64_t>(-(term + 1));
      if (index >= earlier.size()) return std::nullopt;
      term = earlier[index];
    }
    result = i == 0 ? term : combined(formula.kind, *result, term);
    if (!result) return std::nullopt;
  }
  return result;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string_view trimmed_end(std::string_view text) {
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string_view trimmed_begin(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

// Whether `before` ends with "attribute=", and not with a comparison.
bool ends_with_attribute(std::string_view before) {
  before = trimmed_end(before);
  if (before.empty() || before.back() != '=') return false;
  before = trimmed_end(before.substr(0, before.size() - 1));
  return !before.empty() && is_word(before.back());
}

bool is_integer(const FrameMember& member) {
  return member.kind == Kind::i32 || member.kind == Kind::i64 || member.kind == Kind::u64 ||
         member.kind == Kind::i64_list;
}

bool is_same_tensor(const bp_tensor* a, const bp_tensor* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->dtype == b->dtype && a->ndim == b->ndim && a->byte_offset == b->byte_offset &&
         std::equal(a->shape, a->shape + a->ndim, b->shape) &&
         std::equal(a->strides, a->strides + a->ndim, b->strides);
}

// Returns the integers of a member: those of a list, or one.
std::vector<int64_t> integers_of(const void* args, const FrameMember& found) {
  if (found.kind == Kind::i64_list) {
    const auto* const list = *static_cast<const int64_t* const*>(member(args, found.offset));
    const auto count = *static_cast<const uint64_t*>(member(args, found.offset - 8));
    return {list, list + count};
  }
  if (found.kind == Kind::i32) return {*static_cast<const int32_t*>(member(args, found.offset))};
  return {*static_cast<const int64_t*>(member(args, found.offset))};
}

// Returns whether the two frames have the same inline scalar.
bool is_same_scalar(const void* a, const void* b, const FrameMember& found) {
  if (found.kind != Kind::operand && found.kind != Kind::scalar_tensor) return true;
  const uint32_t offset = found.offset + 8;
  return std::memcmp(member(a, offset), member(b, offset), sizeof(bp_scalar)) == 0;
}

// Returns the bytes of an attribute that is no integer.
uint64_t bytes_of(const void* args, const FrameMember& found) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, member(args, found.offset), found.kind == Kind::f64 ? 8 : 4);
  return bytes;
}

// Compares two runs node by node.
class Differences {
 public:
  Differences(std::span<const bp_extent_binding> bindings, const std::vector<int64_t>& at_first,
              const std::vector<int64_t>& at_second)
      : bindings_(bindings), at_first_(at_first), at_second_(at_second) {}

  std::string bind(MadeNode& first, const MadeNode& second) const {
    const OpRow& row = first.frame->row();
    if (&row != &second.frame->row() || first.values != second.values) return kOtherNodes;
    const auto& ours = first.frame->tensors();
    if (!std::ranges::equal(ours, second.frame->tensors(), is_same_tensor)) return kOtherNodes;
    const void *const a = first.frame->data(), *const b = second.frame->data();
    for (const FrameMember& found : frame_members(row)) {
      const std::string name = std::string(row.name) + "." + found.name;
      const bool is_same = found.is_tensor
                               ? is_same_scalar(a, b, found)
                               : is_integer(found) || bytes_of(a, found) == bytes_of(b, found);
      if (!is_same) return name + " depends on an extent, and is no integer attribute";
      if (!is_integer(found)) continue;
      std::string defect = bind_integers(first, second, found, name);
      if (!defect.empty()) return defect;
    }
    return "";
  }

  static constexpr const char* kOtherNodes =
      "its decomposition has other nodes or shapes for another number";

 private:
  std::string bind_integers(MadeNode& first, const MadeNode& second, const FrameMember& found,
                            const std::string& name) const {
    const std::vector<int64_t> a = integers_of(first.frame->data(), found);
    const std::vector<int64_t> b = integers_of(second.frame->data(), found);
    if (a.size() != b.size()) return name + " has another length for another number";
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i]) continue;
      const std::optional<uint32_t> extent = extent_of(a[i], b[i]);
      if (!extent) return name + " is not the number of one extent alone";
      first.bindings.push_back({.member_offset = found.offset, .extent = *extent, .element = i});
    }
    return "";
  }

  // Returns the extent that has these numbers at the two moments, if there is exactly one.
  std::optional<uint32_t> extent_of(int64_t first, int64_t second) const {
    std::optional<uint32_t> found;
    for (const bp_extent_binding& binding : bindings_) {
      if (at_first_[binding.extent] != first || at_second_[binding.extent] != second) continue;
      if (found && *found != binding.extent) return std::nullopt;
      found = binding.extent;
    }
    return found;
  }

  std::span<const bp_extent_binding> bindings_;
  const std::vector<int64_t>& at_first_;
  const std::vector<int64_t>& at_second_;
};

}  // namespace

bool is_constant(std::span<const bp_program_extent> extents, uint32_t extent) {
  const bp_program_extent& its = extents[extent];
  if (its.kind == BP_EXTENT_RANGE) return its.min == its.max;
  return std::all_of(its.terms, its.terms + its.term_count, [&](int64_t term) {
    // An extent names earlier ones alone.
    return term >= 0 || is_constant(extents, static_cast<uint32_t>(-(term + 1)));
  });
}

std::optional<std::vector<int64_t>> extents_at(std::span<const bp_program_extent> extents,
                                               Moment moment) {
  std::vector<int64_t> numbers;
  for (const bp_program_extent& extent : extents) {
    const std::optional<int64_t> number = extent.kind == BP_EXTENT_RANGE
                                              ? number_of_range(extent, moment)
                                              : number_of_formula(extent, numbers);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

bool only_hands_on(std::string_view formula, std::string_view name) {
  for (size_t at = formula.find(name); at != formula.npos; at = formula.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool is_whole =
        (at == 0 || !is_word(formula[at - 1])) && (end == formula.size() || !is_word(formula[end]));
    if (!is_whole) continue;
    const std::string_view before = formula.substr(0, at);
    const std::string_view after = trimmed_begin(formula.substr(end));
    // The name of an attribute of the called op, as the first word in "axis=axis".
    if (after.size() > 1 && after[0] == '=' && after[1] != '=') continue;
    const bool is_ended = !after.empty() && (after[0] == ',' || after[0] == ')');
    if (!is_ended || !ends_with_attribute(before)) return false;
  }
  return true;
}

std::string bind_differences(std::span<const bp_extent_binding> bindings,
                             const std::vector<int64_t>& at_first,
                             const std::vector<int64_t>& at_second, std::vector<MadeNode>& first,
                             const std::vector<MadeNode>& second) {
  if (first.size() != second.size()) return Differences::kOtherNodes;
  const Differences differences(bindings, at_first, at_second);
  for (size_t i = 0; i < first.size(); ++i) {
    std::string defect = differences.bind(first[i], second[i]);
    if (!defect.empty()) return defect;
  }
  return "";
}

}  // namespace bp::core
