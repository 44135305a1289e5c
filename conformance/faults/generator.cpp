#include "conformance/faults/generator.hpp"

#include <algorithm>

#include "conformance/faults/entries.hpp"
#include "conformance/faults/ops.hpp"

namespace bp::faults {
namespace {

constexpr std::string_view kTables = "tables.";

bool is_float(std::string_view dtype) { return dtype.find('f') != dtype.npos; }
bool is_half(std::string_view dtype) { return dtype == "f16" || dtype == "bf16"; }

template <typename Row>
const Row& pick(std::span<const Row> rows, uint64_t number) {
  return rows[number % rows.size()];
}

}  // namespace

std::string family_of(const Fault& fault) {
  const KindOfFault* kind = kind_of(fault);
  if (kind == nullptr) return "";
  return (fault.is_of_table() ? std::string(kTables) : "") + std::string(kind->family);
}

std::vector<std::string> families() {
  std::vector<std::string> all;
  const auto add = [&](const std::string& family) {
    if (std::ranges::find(all, family) == all.end()) all.push_back(family);
  };
  for (const KindOfFault& kind : kernel_kinds()) add(std::string(kind.family));
  for (const KindOfFault& kind : entry_kinds()) {
    add(std::string(kTables) + std::string(kind.family));
  }
  return all;
}

Generator::Generator(uint64_t seed, std::vector<Subject> subjects, std::string wanted)
    : seed_(seed), subjects_(std::move(subjects)), wanted_(std::move(wanted)) {}

std::optional<Fault> Generator::next() {
  constexpr int kPatience = 100000;
  for (int i = 0; i < kPatience; ++i) {
    Fault fault = draw();
    if (!can_be(fault)) continue;
    if (!wanted_.empty() && family_of(fault) != wanted_) continue;
    Fault same = fault;
    same.number = 0;
    if (known_.insert(text_of(same)).second) return fault;
  }
  return std::nullopt;
}

uint64_t Generator::below(uint64_t count) { return mixed(seed_, drawn_++) % count; }

// One fault of five is one of a table.
Fault Generator::draw() {
  constexpr uint64_t kShare = 5;
  const bool is_entry = subjects_.empty() || below(kShare) == 0;
  return is_entry ? draw_entry_fault() : draw_kernel_fault();
}

// Two conditions of five are that there is none.
Fault Generator::draw_kernel_fault() {
  constexpr uint64_t kNumbers = 1 << 20;
  const Subject& subject = pick(std::span<const Subject>(subjects_), below(UINT32_MAX));
  const KindOfFault& kind = pick(kernel_kinds(), below(UINT32_MAX));
  Fault fault;
  fault.subject = subject.op;
  fault.kind = kind.name;
  if (!subject.dtypes.empty()) fault.dtype = subject.dtypes[below(subject.dtypes.size())];
  if (kind.has_place) fault.place = pick(places(), below(UINT32_MAX)).name;
  if (below(5) >= 2) fault.when = pick(kernel_conditions(), below(UINT32_MAX)).name;
  fault.number = below(kNumbers);
  return fault;
}

Fault Generator::draw_entry_fault() {
  constexpr uint64_t kNumbers = 1 << 20;
  const Entry& entry = pick(entries(), below(UINT32_MAX));
  Fault fault;
  fault.subject = std::string(entry.table) + "." + std::string(entry.name);
  fault.kind = pick(entry_kinds(), below(UINT32_MAX)).name;
  if (below(5) >= 2) fault.when = pick(entry_conditions(), below(UINT32_MAX)).name;
  fault.number = below(kNumbers);
  return fault;
}

bool Generator::can_be(const Fault& fault) const {
  const KindOfFault& kind = *kind_of(fault);
  if (fault.is_of_table()) {
    const auto entry = std::ranges::find_if(entries(), [&](const Entry& e) {
      return std::string(e.table) + "." + std::string(e.name) == fault.subject;
    });
    const bool needs_range =
        fault.when.starts_with("large") || fault.when == "offset" || fault.when == "odd";
    return entry->can_have(kind.name) && (!needs_range || entry->signature.has_range);
  }
  const Op* op = find_op(fault.subject);
  if (op == nullptr || !op->can_have(kind) || !op->can_meet(fault.when)) return false;
  // Such an input has no order of its own in memory.
  if (kind.name == "strides_dropped" && fault.when == "broadcast") return false;
  if (kind.needs == Needs::kFloat && !is_float(fault.dtype)) return false;
  return kind.needs != Needs::kHalf || is_half(fault.dtype);
}

}  // namespace bp::faults
