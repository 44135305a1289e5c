#include "conformance/cases/rules/rules.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>

#include "conformance/cases/engine/host_call.hpp"

namespace bp::conformance {
namespace {

constexpr int64_t kMostElements = 4000;  // The limit for the largest tensor, because the oracles
                                         // are slow.
constexpr size_t kRowsPerDtype = 8;      // The rows of an op for one promise.

int64_t largest(const OpCase& row) {
  int64_t most = 0;
  for (const TensorArgument& argument : row.tensors) {
    most = std::max(most, element_count(argument.shape));
  }
  return most;
}

size_t rank_of(const OpCase& row) {
  size_t rank = 0;
  for (const TensorArgument& argument : row.tensors) rank = std::max(rank, argument.shape.size());
  return rank;
}

bool is_telling(const Fill& fill) {
  return fill.kind == FillKind::kCoord || fill.kind == FillKind::kExactDense;
}

// Returns a higher number for rows that show more: exact data, all optional tensors, more elements.
int64_t worth(const OpCase& row) {
  const bool tells = row.is_exact || std::ranges::any_of(row.tensors, is_telling,
                                                         [](const auto& t) { return t.fill; });
  return (tells ? 1'000'000 : 0) + static_cast<int64_t>(row.tensors.size()) * 10'000 + largest(row);
}

// Returns the op and the dtypes of its tensors.
std::string signature(const OpCase& row) {
  std::string text = std::to_string(row.op);
  std::string_view last;
  for (const TensorArgument& argument : row.tensors) {
    if (argument.name == last) continue;  // The length of a list does not count.
    text += " " + std::string(argument.name) + ":" + dtype_text(argument.dtype);
    last = argument.name;
  }
  return text;
}

// Returns whether an element of an input reaches results at other places, as in attention. The
// oracle shows it.
bool spreads(const OpCase& row) {
  if (!has_class(row, {"P"})) return false;
  const CallData before(row, 1);
  const std::vector<Expected> results = row.reference(before, Numerics{});
  for (size_t i = 0; i < row.tensors.size(); ++i) {
    if (!holds_numbers(row.tensors[i])) continue;
    CallData after = before;
    after.tensors()[i].data.front() = after.tensors()[i].data.front() * DoubleDouble(0.75);
    const std::vector<Expected> others = row.reference(after, Numerics{});
    for (size_t k = 0; k < others.size(); ++k) {
      const auto& a = results[k].value;
      const auto& b = others[k].value;
      if (!std::equal(a.begin() + 1, a.end(), b.begin() + 1)) return true;
    }
  }
  return false;
}

}  // namespace

RowList::RowList(const OpCases& given) {
  for (const OpCase& row : given) ids_.insert(row.id());
}

void RowList::add(OpCase row) {
  if (HostCall(row).is_legal()) add_unchecked(std::move(row));
}

void RowList::add_unchecked(OpCase row) {
  if (ids_.insert(row.id()).second) rows_.push_back(std::move(row));
}

bool is_plain(const OpCase& row) {
  if (row.layout != "dense" || row.fails_on_device || largest(row) > kMostElements) return false;
  for (const TensorArgument& argument : row.tensors) {
    if (element_count(argument.shape) == 0 || !argument.alias.empty()) return false;
    const FillKind kind = argument.fill.kind;
    if (kind == FillKind::kSpecial || kind == FillKind::kSpecialSlow) return false;
  }
  constexpr std::string_view kExtremes[] = {"range", "masked", "overflows", "wraps", "nan_lanes"};
  return std::ranges::find(kExtremes, row.fill) == std::end(kExtremes);
}

std::vector<const OpCase*> rows_by_rank(const Group& group, size_t most) {
  std::map<size_t, const OpCase*, std::greater<>> best;
  for (const OpCase* row : group) {
    if (!is_plain(*row)) continue;
    const OpCase*& chosen = best[rank_of(*row)];
    if (chosen == nullptr || worth(*row) > worth(*chosen)) chosen = row;
  }
  std::vector<const OpCase*> rows;
  for (const auto& [rank, row] : best) {
    if (rows.size() < most) rows.push_back(row);
  }
  return rows;
}

const OpCase* widest(const Group& group) {
  const std::vector<const OpCase*> rows = rows_by_rank(group, 1);
  return rows.empty() ? nullptr : rows.front();
}

bool is_elementwise(const OpCase& row) {
  if (row.tensors.empty() || !has_class(row, {"E", "X", "P"})) return false;
  for (const FrameMember& member : op_info(row.op).members) {
    if (member.is_list() || member.kind == "i32" || member.kind == "i64") return false;
  }
  return std::ranges::all_of(row.tensors,
                             [&](const TensorArgument& argument) {
                               return argument.shape == row.tensors.front().shape;
                             }) &&
         !spreads(row);
}

std::vector<Group> groups_of(const OpCases& rows) {
  std::map<std::string, Group> by_signature;
  for (const OpCase& row : rows) by_signature[signature(row)].push_back(&row);
  std::vector<Group> groups;
  for (auto& [name, group] : by_signature) groups.push_back(std::move(group));
  return groups;
}

std::vector<const OpCase*> widest_of_each_op(const OpCases& rows) {
  std::set<uint32_t> seen;
  std::vector<const OpCase*> chosen;
  for (const Group& group : groups_of(rows)) {
    const OpCase* row = widest(group);
    if (row != nullptr && seen.insert(row->op).second) chosen.push_back(row);
  }
  return chosen;
}

std::string attributes_key(const OpCase& row) {
  std::string text;
  for (const Attribute& attribute : row.attributes) {
    text += std::string(attribute.name) + "=";
    if (const auto* scalar = std::get_if<bp_scalar>(&attribute.value)) {
      text += std::to_string(scalar->dtype) + ":" + std::to_string(scalar->bits);
    } else if (const auto* number = std::get_if<double>(&attribute.value)) {
      text += std::to_string(std::bit_cast<uint64_t>(*number));
    } else if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
      text += std::to_string(*integer);
    } else {
      text += shape_text(std::get<Shape>(attribute.value));
    }
    text += ";";
  }
  return text;
}

void add_rows_by_rule(OpCases& rows) {
  RowList added(rows);
  for (const Group& group : groups_of(rows)) {
    add_layout_rows(added, group);
    add_alias_rows(added, group);
    add_shape_rows(added, group);
    add_fill_rows(added, group);
    add_index_rows(added, group);
  }
  OpCases more = added.take();
  std::ranges::move(more, std::back_inserter(rows));
}

void add_promise(std::vector<Case>& cases, const OpCases& rows, const char* group,
                 const Promise& promise) {
  std::map<uint32_t, OpCases> by_op;
  std::map<std::string, size_t> taken;
  for (const OpCase& row : rows) {
    if (!is_plain(row)) continue;
    if (++taken[std::to_string(row.op) + " " + row.dtype] > kRowsPerDtype) continue;
    by_op[row.op].push_back(row);
  }
  for (auto& [op, chosen] : by_op) add_promise_case(cases, std::move(chosen), group, promise);
}

void add_promise_case(std::vector<Case>& cases, OpCases rows, const char* group,
                      const Promise& promise) {
  const uint32_t op = rows.front().op;
  Case entry;
  entry.id = "kernel." + std::string(promise.sentence) + "." + std::string(op_info(op).name);
  entry.tags = promise.tags;
  entry.tier = promise.tier;
  entry.group = group;
  entry.op = op;
  entry.dtype = rows.front().dtype;
  const auto shared = std::make_shared<const OpCases>(std::move(rows));
  entry.run = [shared, check = promise.check](Context& t) { check(t, *shared); };
  cases.push_back(std::move(entry));
}

}  // namespace bp::conformance
