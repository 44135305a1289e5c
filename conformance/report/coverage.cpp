#include "conformance/report/coverage.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kHeadWidth = 34, kCellWidth = 8;
constexpr const char* kLayouts[] = {"dense",   "permute", "bcast", "gaps",
                                    "strided", "offset",  "empty", "alias"};
constexpr const char* kRanks[] = {"rank 0", "rank 1", "rank 2", "rank 3", "rank 4", "rank 5+"};

struct ServedName {
  const char* name;
  char letter;  // 0 if the cell shows only the number.
};
constexpr ServedName kNames[] = {{"native", 0},    {"fallback", 'F'}, {"not_run", '?'},
                                 {"refused", '-'}, {"missing", 'M'},  {"unclaimed", 'U'},
                                 {"wrong", 'W'},   {"crash", 'C'}};
static_assert(std::size(kNames) == kServedCount);

// Returns the class of bp_layout_flags that the strides have.
size_t layout_index(const TensorArgument& argument) {
  if (element_count(argument.shape) == 0) return 6;
  if (!argument.alias.empty()) return 7;
  if (argument.layout == Layout::kOffset) return 5;
  const Shape strides = place(argument.layout, argument.shape).strides;
  std::vector<std::pair<int64_t, int64_t>> axes;  // Stride and extent of each axis; axes of extent
                                                  // 1 never count.
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    if (argument.shape[axis] != 1) axes.emplace_back(strides[axis], argument.shape[axis]);
  }
  if (std::ranges::any_of(axes, [](const auto& axis) { return axis.first == 0; })) return 2;
  const auto is_packed = [&] {
    int64_t next = 1;
    for (size_t i = axes.size(); i-- > 0; next *= axes[i].second) {
      if (axes[i].first != next) return false;
    }
    return true;
  };
  if (is_packed()) return 0;
  const bool is_inner_dense = axes.back().first == 1;
  std::ranges::sort(axes, std::ranges::greater());
  if (is_packed()) return 1;
  return is_inner_dense ? 3 : 4;
}

// The order of preference when a case has several classes: the first one names the case.
constexpr size_t kUsual[] = {0, 2, 4, 3, 5, 1, 7, 6};

std::string right_aligned(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

void write_line(std::ostream& out, const std::string& head, const std::vector<std::string>& cells) {
  out << head << std::string(kHeadWidth - std::min(kHeadWidth, head.size()), ' ');
  for (const std::string& cell : cells) out << right_aligned(cell, kCellWidth);
  out << "\n";
}

// The dtypes of an op that have the same cells.
struct AlikeDtypes {
  std::vector<std::string> cells;
  std::string names;
};

// Writes the lines of an op. Its name stands once: before the dtypes of its first line or, if it
// does not fit there, above them.
void write_op(std::ostream& out, const std::string& op, const std::vector<AlikeDtypes>& lines) {
  std::string head = op;
  for (const AlikeDtypes& line : lines) {
    if (head.size() + 1 + line.names.size() > kHeadWidth) {
      if (head != " ") out << head << "\n";
      head = " ";
    }
    if (head.size() + 1 + line.names.size() > kHeadWidth) {
      out << "  " << line.names << "\n";
      write_line(out, "", line.cells);
    } else {
      write_line(out, head + " " + line.names, line.cells);
    }
    head = " ";
  }
}

std::vector<std::string> columns_of(bool by_rank) {
  if (by_rank) return {std::begin(kRanks), std::end(kRanks)};
  return {std::begin(kLayouts), std::end(kLayouts)};
}

nlohmann::json counts_json(const Coverage::Counts& counts) {
  nlohmann::json object = nlohmann::json::object();
  for (size_t i = 0; i < kServedCount; ++i) {
    if (counts[i] > 0) object[kNames[i].name] = counts[i];
  }
  return object;
}

}  // namespace

size_t total_of(const ServedCounts& counts) {
  size_t total = 0;
  for (const size_t count : counts) total += count;
  return total;
}

Served worst_of(const ServedCounts& counts) {
  size_t worst = 0;
  for (size_t i = 0; i < kServedCount; ++i) {
    if (counts[i] > 0) worst = i;
  }
  // If no call works, there is no claim that refusals could narrow.
  if (worst <= static_cast<size_t>(Served::kRefused) && counts[0] > 0) worst = 0;
  return static_cast<Served>(worst);
}

std::string cell_text(const ServedCounts& counts) {
  const size_t total = total_of(counts);
  if (total == 0) return ".";
  const auto worst = static_cast<size_t>(worst_of(counts));
  if (counts[worst] == total && kNames[worst].letter == '-') return "-";
  const std::string count = std::to_string(counts[worst]);
  const std::string text = kNames[worst].letter == 0 ? count : kNames[worst].letter + count;
  return counts[worst] == total ? text : text + "/" + std::to_string(total);
}

const char* served_name(Served served) { return kNames[static_cast<size_t>(served)].name; }

Served served_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
    case Outcome::kQualityWarning:
    case Outcome::kCompatWarning:
      return Served::kNative;
    case Outcome::kFallback:
      return Served::kFallback;
    case Outcome::kNotSupported:
      return Served::kRefused;
    case Outcome::kMissing:
      return Served::kMissing;
    case Outcome::kUnclaimed:
      return Served::kUnclaimed;
    case Outcome::kCrash:
    case Outcome::kTimeout:
    case Outcome::kDeviceLost:
      return Served::kCrash;
    case Outcome::kFail:
    case Outcome::kResourceError:
    case Outcome::kFlake:
    case Outcome::kWaived:  // A waived case fails as predicted.
      return Served::kWrong;
    case Outcome::kXPass:
      return Served::kNative;
    case Outcome::kSkip:
    case Outcome::kMistrusted:
    case Outcome::kHarnessError:
      break;
  }
  return Served::kNotRun;
}

std::string layout_class_of(const Case& which) {
  if (which.op_case == nullptr) return "";
  size_t least_usual = 0;
  for (const TensorArgument& argument : which.op_case->tensors) {
    const size_t index = layout_index(argument);
    if (kUsual[index] > kUsual[least_usual]) least_usual = index;
  }
  return kLayouts[least_usual];
}

size_t rank_of(const Case& which) {
  size_t rank = 0;
  if (which.op_case == nullptr) return rank;
  for (const TensorArgument& argument : which.op_case->tensors) {
    rank = std::max(rank, argument.shape.size());
  }
  return rank;
}

Coverage::Coverage(const Summary& summary) {
  for (const Judged& judged : summary.judged) {
    if (judged.which == nullptr || judged.which->op_case == nullptr) continue;
    const Case& which = *judged.which;
    const Key key{bp_op_name(which.op), which.dtype, layout_class_of(which), rank_of(which)};
    const auto served = static_cast<size_t>(served_of(judged.result.outcome));
    ++cells_[key][served];
    ++total_[served];
    auto op = std::ranges::find(ops_, key.op, &decltype(ops_)::value_type::first);
    if (op == ops_.end()) op = ops_.insert(op, {key.op, {}});
    if (std::ranges::find(op->second, key.dtype) == op->second.end()) {
      op->second.push_back(key.dtype);
    }
  }
}

std::string Coverage::column_of(const Key& key, bool by_rank) {
  return by_rank ? kRanks[std::min(key.rank, std::size(kRanks) - 1)] : key.layout;
}

Coverage::Row Coverage::row_of(const std::string& op, const std::string& dtype,
                               bool by_rank) const {
  Row row;
  for (const auto& [key, counts] : cells_) {
    if (key.op != op || key.dtype != dtype) continue;
    Counts& sum = row[column_of(key, by_rank)];
    for (size_t i = 0; i < kServedCount; ++i) sum[i] += counts[i];
  }
  return row;
}

std::string Coverage::text(bool by_rank) const {
  const std::vector<std::string> columns = columns_of(by_rank);
  std::ostringstream out;
  write_line(out, "op", columns);
  Row sums;
  for (const auto& [op, dtypes] : ops_) {
    std::vector<AlikeDtypes> lines;
    for (const std::string& dtype : dtypes) {
      Row row = row_of(op, dtype, by_rank);
      std::vector<std::string> cells;
      for (const std::string& column : columns) {
        cells.push_back(cell_text(row[column]));
        for (size_t i = 0; i < kServedCount; ++i) sums[column][i] += row[column][i];
      }
      const auto same = std::ranges::find(lines, cells, &AlikeDtypes::cells);
      if (same == lines.end()) {
        lines.push_back({std::move(cells), dtype});
      } else {
        same->names += " " + dtype;
      }
    }
    write_op(out, op, lines);
  }
  std::vector<std::string> native, all;
  for (const std::string& column : columns) {
    native.push_back(std::to_string(sums[column][0]));
    all.push_back(std::to_string(total_of(sums[column])));
  }
  write_line(out, "native", native);
  write_line(out, "of", all);
  return out.str();
}

std::vector<Coverage::OpRow> Coverage::by_dtype() const {
  std::vector<OpRow> rows;
  for (const auto& [op, dtypes] : ops_) rows.push_back({op, {}});
  for (const auto& [key, counts] : cells_) {
    Counts& sum = std::ranges::find(rows, key.op, &OpRow::op)->dtypes[key.dtype];
    for (size_t i = 0; i < kServedCount; ++i) sum[i] += counts[i];
  }
  return rows;
}

std::vector<std::string> Coverage::dtypes() const {
  std::vector<std::string> names;
  for (const auto& [op, dtypes] : ops_) {
    for (const std::string& dtype : dtypes) {
      if (std::ranges::find(names, dtype) == names.end()) names.push_back(dtype);
    }
  }
  std::ranges::stable_sort(
      names, {}, [](const std::string& name) { return bp_dtype_from_name(name.c_str()); });
  return names;
}

std::string Coverage::totals_text() const {
  std::ostringstream out;
  out << total_of(total_) << " cases";
  const char* separator = ": ";
  for (size_t i = 0; i < kServedCount; ++i) {
    if (total_[i] == 0) continue;
    out << separator << total_[i] << " " << kNames[i].name;
    separator = ", ";
  }
  out << "\n";
  return out.str();
}

nlohmann::json Coverage::json() const {
  nlohmann::json cells = nlohmann::json::array();
  for (const auto& [key, counts] : cells_) {
    nlohmann::json cell = counts_json(counts);
    cell["op"] = key.op;
    cell["dtype"] = key.dtype;
    cell["layout"] = key.layout;
    cell["rank"] = key.rank;
    cells.push_back(std::move(cell));
  }
  return {{"cells", std::move(cells)}, {"total", counts_json(total_)}};
}

}  // namespace bp::conformance
