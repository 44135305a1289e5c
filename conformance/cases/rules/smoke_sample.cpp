// Few rows that show much: every layout, fill, attribute and kind of shape that the rows of an op
// and a dtype have. The choice is greedy.
//
// Each dtype has kernels of its own, or another code path, and families leave most dtypes to later
// tiers. So tier smoke has such rows of each of them. The choice begins at another row for each op
// and dtype, so the dtypes show an op from different sides.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

constexpr int64_t kMostElements = 3200;  // Of all tensors of a row, because the oracles are slow.

int64_t elements_of(const OpCase& row) {
  int64_t count = 0;
  for (const TensorArgument& argument : row.tensors) count += element_count(argument.shape);
  return count;
}

// What a row shows beside its op and dtypes, as a set of bits. The bits of names are given out as
// the names come.
class Traits {
 public:
  explicit Traits(bool has_fills) : has_fills_(has_fills) {}

  uint64_t of(const OpCase& row) {
    uint64_t all = has_fills_ ? bit("fill ", row.fill) : 0;
    if (row.fails_on_device) return all;
    for (const TensorArgument& argument : row.tensors) all |= of(row, argument);
    for (const Attribute& attribute : row.attributes) all |= of(attribute);
    return all;
  }

 private:
  uint64_t of(const OpCase& row, const TensorArgument& argument) {
    uint64_t all = bit("layout ", kind_of(argument.layout));
    if (!argument.alias.empty()) all |= bit("in place", "");
    if (op_info(row.op).member(argument.name).kind == "tensor_opt") {
      all |= bit("tensor ", argument.name);
    }
    if (argument.role == Role::kInput) return all | bit("input ", kind_of(argument.layout));
    return all | of_shape(argument.shape);
  }

  // Vector widths, tiles and blocks end in different kinds of shapes.
  uint64_t of_shape(const Shape& shape) {
    const int64_t count = element_count(shape);
    uint64_t all = count == 0 ? bit("empty", "") : 0;
    if (shape.size() >= 5) all |= bit("rank 5", "");
    if (shape.size() >= 3 && shape[0] > 1) all |= bit("batches", "");
    if (count > 256) all |= bit("block", "");
    if (count >= 1024) all |= bit("blocks", "");
    if (shape.empty()) return all;
    const int64_t columns = shape.back(), rows = columns == 0 ? 0 : count / columns;
    if (columns > 16 && columns % 16 != 0) all |= bit("tail of 16", rows > 1 ? " in rows" : "");
    if (columns > 64 && columns % 64 != 0) all |= bit("tail of 64", rows > 1 ? " in rows" : "");
    if (shape.size() >= 2 && columns > 16 && shape[shape.size() - 2] > 16) all |= bit("tiles", "");
    return all;
  }

  uint64_t of(const Attribute& attribute) {
    if (std::holds_alternative<bp_scalar>(attribute.value)) return bit("scalar ", attribute.name);
    const auto* integer = std::get_if<int64_t>(&attribute.value);
    const auto* number = std::get_if<double>(&attribute.value);
    const bool is_zero =
        (integer != nullptr && *integer == 0) || (number != nullptr && *number == 0);
    return bit(is_zero ? "zero " : "number ", attribute.name);
  }

  static std::string_view kind_of(Layout layout) {
    using enum Layout;
    if (is_broadcast(layout)) return "broadcast";
    if (layout == kDense) return "dense";
    if (layout == kOffset) return "offset";
    return layout == kNegative || layout == kReversed ? "negative" : "strided";
  }

  // Names that come after the 64th share its bit.
  uint64_t bit(const char* kind, std::string_view name) {
    std::string text = std::string(kind).append(name);
    const auto at = static_cast<size_t>(std::ranges::find(names_, text) - names_.begin());
    if (at == names_.size()) names_.push_back(std::move(text));
    return uint64_t{1} << std::min<size_t>(at, 63);
  }

  const bool has_fills_;
  std::vector<std::string> names_;
};

// Returns the op, the dtype of the id and the dtypes of the tensors.
std::string dtypes_of(const OpCase& row) {
  std::set<std::string> dtypes;
  for (const TensorArgument& argument : row.tensors) dtypes.insert(dtype_text(argument.dtype));
  std::string text = std::to_string(row.op) + " " + row.dtype;
  for (const std::string& dtype : dtypes) text += " " + dtype;
  return text;
}

struct Candidate {
  size_t row;  // Its index into the group.
  uint64_t traits;
};

// Returns the rows that show most beside `shown`, one after the other, until no row shows more.
std::vector<size_t> choose(const std::vector<Candidate>& candidates, size_t start, uint64_t shown,
                           size_t most_rows) {
  std::vector<size_t> chosen;
  while (chosen.size() < most_rows) {
    const Candidate* best = nullptr;
    int most = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const Candidate& candidate = candidates[(start + i) % candidates.size()];
      const int more = std::popcount(candidate.traits & ~shown);
      if (more > most) best = &candidate, most = more;
    }
    if (best == nullptr) break;
    chosen.push_back(best->row);
    shown |= best->traits;
  }
  return chosen;
}

}  // namespace

void add_smoke_sample(OpCases& rows) {
  constexpr int kRounds = 2;  // Each trait is shown so often.
  std::map<std::string, std::vector<OpCase*>> groups;
  for (OpCase& row : rows) groups[dtypes_of(row)].push_back(&row);
  for (const auto& [name, group] : groups) {
    Traits traits(true);
    std::vector<Candidate> candidates;
    uint64_t shown = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      OpCase& row = *group[i];
      // The oracles of f64 are slow, and few devices have fast f64.
      if (row.dtype == "f64") row.is_smoke = false;
      if (row.is_smoke) shown |= traits.of(row);
      if (row.is_smoke || !row.optional_part.empty() || elements_of(row) > kMostElements) continue;
      candidates.push_back({i, traits.of(row)});
    }
    uint64_t start = 0;
    for (const char c : name) start = start * 31 + static_cast<unsigned char>(c);
    for (int round = 0; round < kRounds; ++round) {
      for (const size_t i : choose(candidates, start, shown, SIZE_MAX)) group[i]->is_smoke = true;
      std::erase_if(candidates, [&](const Candidate& c) { return group[c.row]->is_smoke; });
    }
  }
}

std::vector<const OpCase*> most_telling(const Group& group, size_t most_rows) {
  Traits traits(false);
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < group.size(); ++i) {
    const OpCase& row = *group[i];
    const bool is_chosen = row.optional_part.empty() && !row.fails_on_device;
    if (is_chosen && elements_of(row) <= kMostElements) candidates.push_back({i, traits.of(row)});
  }
  std::vector<const OpCase*> rows;
  for (const size_t i : choose(candidates, 0, 0, most_rows)) rows.push_back(group[i]);
  return rows;
}

}  // namespace bp::conformance
