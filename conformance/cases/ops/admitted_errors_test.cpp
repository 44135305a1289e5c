// How wrong a result may be and still pass. docs/admitted_errors.md has the table by op and region,
// which a person reviews: a change of a bound must change the table too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/cases/ops/op_families.hpp"
#include "conformance/numerics/accept.hpp"
#include "conformance/reference/elementwise.hpp"

namespace bp::conformance {
namespace {

constexpr double kUlp = 0x1p-23;  // That of f32 at 1.

// The errors that pass at the points of a region, in ulps of f32.
struct Admitted {
  std::vector<double> ulps;
  bool takes_anything = false;  // At some point a result passes that has nothing to do with it.

  double worst() const { return *std::ranges::max_element(ulps); }
  double median() const {
    std::vector<double> sorted = ulps;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

// Adds the error with which an element passes, relative to `scale`.
void add_element(const Expected& expected, int64_t index, double scale, Admitted& admitted) {
  const Exact exact = exact_at(expected, index);
  const double r = exact.value.hi;
  if (!std::isfinite(r) || !(scale > 0x1p-100) || std::fabs(r) > 0x1p126) return;
  const Interval interval = accepted_interval(BP_F32, exact, Numerics{});
  admitted.ulps.push_back(std::max(interval.high - r, r - interval.low) / scale / kUlp);
  const DoubleDouble other(1.5 * r + 1);
  if (expected.also_right && expected.also_right(index, other)) admitted.takes_anything = true;
}

using Table = std::map<std::string, Admitted>;

// ---- Element-wise ops ------------------------------------------------------------------------ //

struct Region {
  const char* name;
  double low, high;
};
constexpr Region kRegions[] = {{"below 2^-20", 0x1p-40, 0x1p-20},
                               {"to 1", 0x1p-20, 1},
                               {"to 10", 1, 10},
                               {"to 80", 10, 80},
                               {"to 1000", 80, 1000},
                               {"to 2^100", 1000, 0x1p100}};

std::vector<DoubleDouble> arguments(const Region& region, bool is_negative) {
  constexpr int kPoints = 200;
  std::vector<DoubleDouble> points;
  for (int i = 0; i < kPoints; ++i) {
    const double x = region.low * std::pow(region.high / region.low, (i + 0.37) / kPoints);
    points.emplace_back(round_to(BP_F32, is_negative ? -x : x));
  }
  return points;
}

bool is_of_elements(uint32_t op) {
  return op == BP_OP_GELU || op == BP_OP_GELU_BACKWARD ||
         std::ranges::find(elementwise::kRows, op, &elementwise::Row::op) !=
             std::end(elementwise::kRows);
}

std::string name_of(const OpCase& row) {
  const bool is_tanh = row.detail.find("_tanh") != std::string::npos;
  return std::string(op_info(row.op).name) + (is_tanh ? " (tanh)" : "");
}

// Lets the last input, which is the argument of the function, run through a region.
void add_region(const OpCase& model, const Region& region, bool is_negative, Table& table) {
  OpCase row = model;
  const std::vector<DoubleDouble> points = arguments(region, is_negative);
  for (TensorArgument& tensor : row.tensors) tensor.shape = {std::ssize(points)};
  CallData data(row, 7);
  data.tensors()[row.tensors.size() - 2].data = points;
  if (row.derive) row.derive(data);  // Results of tanh and sigmoid stay below 1.
  const Expected expected = row.reference(data, Numerics{}).at(0);
  Admitted admitted;
  for (int64_t i = 0; i < std::ssize(points); ++i) {
    const double r = std::fabs(expected.value[static_cast<size_t>(i)].hi);
    add_element(expected, i, r, admitted);
  }
  if (admitted.ulps.empty()) return;
  const std::string sign = is_negative ? "-" : "+";
  table[name_of(row) + " | " + sign + " " + region.name] = std::move(admitted);
}

// ---- Other ops ------------------------------------------------------------------------------- //

// The largest result of a tensor, or the sum of the magnitudes of terms, is the scale.
void add_row(const OpCase& row, Table& table) {
  const CallData data(row, 7);
  const std::vector<Expected> all = row.reference(data, Numerics{});
  size_t output = 0;
  for (const HostTensor& tensor : data.tensors()) {
    if (tensor.role == Role::kInput) continue;
    const Expected& expected = all.at(output++);
    if (tensor.dtype != BP_F32) continue;
    double largest = 0;
    for (const DoubleDouble& r : expected.value) largest = std::fmax(largest, std::fabs(r.hi));
    Admitted& admitted =
        table[name_of(row) + "." + std::string(tensor.name) + " | " + row.detail + " " + row.fill];
    for (int64_t i = 0; i < std::ssize(expected.value); ++i) {
      const double sum =
          expected.magnitude.empty() ? 0 : expected.magnitude[static_cast<size_t>(i)];
      add_element(expected, i, sum > 0 ? sum : largest, admitted);
    }
  }
}

// Rows of a few elements cancel more than others, and say little.
bool is_small_row(const OpCase& row) {
  constexpr int64_t kFewest = 16, kMost = 1200;
  int64_t largest = 0;
  for (const TensorArgument& tensor : row.tensors) {
    largest = std::max(largest, element_count(tensor.shape));
  }
  return largest >= kFewest && largest <= kMost && row.dtype == "f32" && row.layout == "dense" &&
         row.fill == "random" && !row.fails_on_device && row.optional_part.empty() && !row.is_exact;
}

// Of the rows of an output, the table has the one with the largest error.
Table worst_rows(const Table& rows) {
  std::map<std::string, Table::const_iterator> worst;
  for (auto at = rows.begin(); at != rows.end(); ++at) {
    if (at->second.ulps.empty()) continue;
    const std::string output = at->first.substr(0, at->first.find(" | "));
    const auto found = worst.try_emplace(output, at).first;
    if (at->second.worst() > found->second->second.worst()) found->second = at;
  }
  Table chosen;
  for (const auto& [output, at] : worst) chosen.insert(*at);
  return chosen;
}

Table admitted_errors() {
  Table elements, rows;
  std::set<std::string> seen;
  for (const OpFamily& family : op_families()) {
    OpCases all;
    family.add(all);
    for (const OpCase& row : all) {
      if (!is_small_row(row)) continue;
      if (!is_of_elements(row.op)) {
        add_row(row, rows);
      } else if (is_float(row.tensors.back().dtype) && seen.insert(name_of(row)).second) {
        for (const Region& region : kRegions) {
          for (const bool is_negative : {true, false}) {
            add_region(row, region, is_negative, elements);
          }
        }
      }
    }
  }
  elements.merge(worst_rows(rows));
  // The correctly rounded result is within one ulp.
  std::erase_if(elements, [](const auto& entry) {
    return entry.second.worst() <= 1 && !entry.second.takes_anything;
  });
  return elements;
}

std::string line_of(const std::string& name, const Admitted& admitted) {
  char numbers[64];
  std::snprintf(numbers, sizeof(numbers), "%.2g | %.2g", admitted.median(), admitted.worst());
  return "| " + name + " | " + numbers + (admitted.takes_anything ? " | anything |" : " | |");
}

// ---- The table ------------------------------------------------------------------------------- //

struct Reviewed {
  double median = 0, worst = 0;
  bool takes_anything = false;
};

std::map<std::string, Reviewed> reviewed_errors() {
  std::map<std::string, Reviewed> all;
  std::ifstream file(ADMITTED_ERRORS);
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells;
    std::istringstream text(line);
    for (std::string cell; std::getline(text, cell, '|');) cells.push_back(cell);
    if (cells.size() != 6 || cells[3].find_first_of("0123456789") == std::string::npos) continue;
    const auto trimmed = [](const std::string& cell) { return cell.substr(1, cell.size() - 2); };
    all[trimmed(cells[1]) + " | " + trimmed(cells[2])] = {std::stod(cells[3]), std::stod(cells[4]),
                                                          cells[5].find("any") == 1};
  }
  return all;
}

// Libraries of other platforms may differ in the last bits of the exact values.
bool is_near(double a, double b) { return a <= 1.15 * b && b <= 1.15 * a; }

TEST(AdmittedErrors, AreThoseOfTheReviewedTable) {
  const Table now = admitted_errors();
  std::map<std::string, Reviewed> reviewed = reviewed_errors();
  const std::string path = testing::TempDir() + "admitted_errors.txt";
  std::ofstream file(path);
  for (const auto& [name, admitted] : now) file << line_of(name, admitted) << "\n";
  const std::string advice =
      "; the table of today is " + path + "; if the change is right, put it into " ADMITTED_ERRORS;
  for (const auto& [name, admitted] : now) {
    const auto found = reviewed.find(name);
    ASSERT_NE(found, reviewed.end()) << "no line for " << name << advice;
    EXPECT_TRUE(is_near(admitted.median(), found->second.median) &&
                is_near(admitted.worst(), found->second.worst) &&
                admitted.takes_anything == found->second.takes_anything)
        << "now " << line_of(name, admitted) << advice;
    reviewed.erase(found);
  }
  for (const auto& [name, line] : reviewed) {
    ADD_FAILURE() << "the table has a line for " << name << ", which admits nothing" << advice;
  }
}

}  // namespace
}  // namespace bp::conformance
