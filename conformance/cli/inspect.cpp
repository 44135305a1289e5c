// The verbs that run no case: list and info.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "conformance/cli/verbs.hpp"
#include "conformance/json_file.hpp"
#include "conformance/report/summary.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

const json* chosen_target(const BatchReport& report) {
  if (!report.hello.is_object() || !report.hello.contains("targets")) return nullptr;
  return &report.hello.at("targets").at(report.hello.value("target", size_t{0}));
}

void print_tree(const CaseList& cases, const std::vector<size_t>& selection) {
  // Counts of the ids below each prefix that ends at a dot.
  std::map<std::string, size_t> counts;
  for (const size_t index : selection) {
    const std::string& id = cases[index].id;
    for (size_t dot = id.find('.'); dot != std::string::npos; dot = id.find('.', dot + 1)) {
      ++counts[id.substr(0, dot)];
    }
  }
  for (const auto& [prefix, count] : counts) {
    const auto depth = static_cast<size_t>(std::count(prefix.begin(), prefix.end(), '.'));
    if (depth > 2) continue;
    std::cout << std::string(2 * depth, ' ') << prefix.substr(prefix.rfind('.') + 1) << "  "
              << count << "\n";
  }
}

json case_json(const Case& which) {
  json described = {{"id", which.id},
                    {"tags", which.tags},
                    {"tier", tier_name(which.tier)},
                    {"group", which.group}};
  if (which.op != 0) {
    const char* name = bp_op_name(which.op);
    described["op"] = name == nullptr ? "" : name;
  }
  if (!which.dtype.empty()) described["dtype"] = which.dtype;
  return described;
}

constexpr size_t kNameWidth = 28, kDtypesWidth = 60;

// Joins `row` to the row before if the two differ in the last argument alone. Returns whether it
// did.
bool join_row(std::vector<std::string>& before, const std::vector<std::string>& row) {
  if (before.size() != row.size() || row.size() < 2) return false;
  if (!std::equal(row.begin(), row.end() - 1, before.begin()) || before.back() == row.back()) {
    return false;
  }
  before.back().append("|").append(row.back());
  return true;
}

// Joins rows of dtypes that differ in one argument alone: f32/i32 and f32/i64 become f32/i32|i64.
std::vector<std::string> folded_rows(const json& rows) {
  std::vector<std::vector<std::string>> folded;
  for (const json& given : rows) {
    std::vector<std::string> row;
    for (const json& name : given) row.push_back(name.get<std::string>());
    if (folded.empty() || !join_row(folded.back(), row)) folded.push_back(std::move(row));
  }
  std::vector<std::string> texts;
  for (const std::vector<std::string>& row : folded) {
    std::string text;
    for (const std::string& name : row) text += (text.empty() ? "" : "/") + name;
    texts.push_back(std::move(text));
  }
  return texts;
}

std::string joined(const json& names, const char* separator = " ") {
  std::string text;
  for (const json& name : names) text += (text.empty() ? "" : separator) + name.get<std::string>();
  return text;
}

void print_manifests(const json& hello) {
  const json manifests = hello.value("manifests", json::array());
  if (manifests.empty()) std::cout << "no manifest was found in the search path\n";
  for (const json& manifest : manifests) {
    std::string name = manifest.value("name", "");
    if (name.empty()) name = "(unreadable)";
    std::cout << name << "  " << manifest.value("library", "") << "  from "
              << manifest.value("file", "") << "\n";
    const std::string problem = manifest.value("problem", "");
    if (!problem.empty()) std::cout << "  problem: " << problem << "\n";
  }
}

// Returns the rows of dtypes that a kernel claims, in lines of at most kDtypesWidth characters.
// Rows that differ in one argument stand together: "f32/f32/i64|i32".
std::vector<std::string> dtype_lines(const json& kernel) {
  if (kernel.at("claims_every_dtype")) return {"every dtype"};
  std::vector<std::string> lines = {""};
  for (const std::string& row : folded_rows(kernel.at("dtype_rows"))) {
    std::string& line = lines.back();
    if (line.empty()) {
      line = row;
    } else if (line.size() + 1 + row.size() <= kDtypesWidth) {
      line += " " + row;
    } else {
      lines.push_back(row);
    }
  }
  return lines;
}

// Returns the differences from the strictest numerics; "" if there are none.
std::string numerics_text(const json& numerics) {
  constexpr std::pair<const char*, const char*> kStrictest[] = {
      {"accumulator", "default"}, {"products", "native"}, {"rounding", "nearest_even"},
      {"overflow", "ieee"},       {"math", "strict"},     {"tie", "first"}};
  std::string text;
  for (const auto& [key, usual] : kStrictest) {
    const std::string value = numerics.value(key, "");
    if (value != usual) text += std::string(" ") + key + "=" + value;
  }
  if (numerics.value("accumulator_bits", 0) != 0) {
    text += " accumulator_bits=" + std::to_string(numerics.value("accumulator_bits", 0));
  }
  if (!numerics.at("flush").empty()) text += " flush=" + joined(numerics.at("flush"), "+");
  return text;
}

std::string column(std::string text, size_t width) {
  text.append(width - std::min(width, text.size()), ' ');
  return text + "  ";
}

// Prints a row of the table of kernels. More dtypes than fit stand in the lines below.
void print_kernel(const json& kernel) {
  const std::vector<std::string> dtypes = dtype_lines(kernel);
  const std::string layouts = joined(kernel.at("layouts"), "|");
  std::cout << "    " << column(kernel.value("name", ""), kNameWidth)
            << column(dtypes.front(), kDtypesWidth) << (layouts.empty() ? "no layout" : layouts);
  if (kernel.value("max_rank", 0) != 0) std::cout << "  rank<=" << kernel.value("max_rank", 0);
  if (!kernel.at("flags").empty()) std::cout << "  " << joined(kernel.at("flags"), "|");
  if (kernel.value("refuses_some", false)) std::cout << "  refuses some";
  std::cout << numerics_text(kernel.at("numerics")) << "\n";
  for (size_t i = 1; i < dtypes.size(); ++i) {
    std::cout << "    " << column("", kNameWidth) << dtypes[i] << "\n";
  }
}

void print_target(const json& target) {
  std::cout << "\ndevice " << target.value("name", "") << ": " << target.value("device", "")
            << "\n  class " << target.value("class", "") << "   compute units "
            << target.value("compute_unit_count", 0) << "   subgroup "
            << target.value("subgroup_size", 0) << "   rank up to " << target.value("max_rank", 0)
            << "\n  dtypes " << joined(target.at("dtypes")) << "\n";
  if (!target.at("profiles").empty()) {
    std::cout << "  profiles " << joined(target.at("profiles")) << "\n";
  }
  size_t number = 0;
  for (const json& heap : target.at("heaps")) {
    std::cout << "  heap " << number++ << ": " << heap.value("size_bytes", uint64_t{0})
              << " bytes, at most " << heap.value("max_allocation_bytes", uint64_t{0})
              << " at once, tensor offsets by "
              << heap.value("tensor_offset_alignment_bytes", uint64_t{0}) << "; "
              << joined(heap.at("flags")) << "\n";
  }
  std::cout << "  kernels " << target.at("kernels").size() << "\n";
  if (target.at("kernels").empty()) return;
  std::cout << "    " << column("name", kNameWidth) << column("dtypes", kDtypesWidth)
            << "layouts, flags, numerics that differ from the strictest\n";
  for (const json& kernel : target.at("kernels")) print_kernel(kernel);
}

// Returns a suggestion for a name that was not found; "" if the plugin was given as a path.
std::string hint_for(const CommandLine& line) {
  const std::string& name = line.plugin;
  if (name.find('/') != std::string::npos || name.ends_with(".so")) return "";
  std::error_code error;
  if (std::filesystem::is_regular_file(name, error))
    return "; for the file of this name, ./" + name;
  const bool is_bare = line.words.front() == name;
  return is_bare ? "; the verbs are " + verb_names() : "";
}

}  // namespace

bool is_claimed(const Case& which, const json& target) {
  if (which.op == 0) return true;
  const char* name = bp_op_name(which.op);
  for (const json& kernel : target.at("kernels")) {
    if (name == nullptr || kernel.at("op") != name) continue;
    if (kernel.at("claims_every_dtype") || which.dtype.empty()) return true;
    for (const json& row : kernel.at("dtype_rows")) {
      for (const json& dtype : row) {
        if (dtype == which.dtype) return true;
      }
    }
  }
  return false;
}

bool probe(const CommandLine& line, const CaseList& cases, BatchReport& out_report) {
  SessionOptions session = line.run.session;
  session.interrupt_fd = interrupt_descriptor();
  out_report = run_batch(session, cases, {}, 1, [](const Attempt&) { return true; });
  if (out_report.is_interrupted) {
    complain("interrupted");
    return false;
  }
  if (!out_report.load_failure) return true;
  std::string text = line.plugin + ": " + out_report.load_failure->message;
  for (const std::string& note : out_report.load_failure->notes) text += "; " + note;
  complain(text.find("not found") == std::string::npos ? text : text + hint_for(line));
  return false;
}

int list_verb(const CommandLine& line) {
  const SharedCases made = cases_for(line.selection);
  const CaseList& cases = *made;
  const std::vector<size_t> selection = select_cases(cases, line.selection);
  BatchReport report;
  if (!line.plugin.empty() && !probe(line, cases, report)) {
    return report.is_interrupted ? kExitInterrupted : kExitNotLoaded;
  }
  const json* target = chosen_target(report);
  if (line.as_count) {
    std::cout << selection.size() << "\n";
  } else if (line.as_tree) {
    print_tree(cases, selection);
  } else if (line.as_json) {
    json all = json::array();
    for (const size_t index : selection) {
      all.push_back(case_json(cases[index]));
      if (target != nullptr) all.back()["is_claimed"] = is_claimed(cases[index], *target);
    }
    std::cout << json_text(all, 1) << "\n";
  } else {
    for (const size_t index : selection) {
      if (target != nullptr) std::cout << (is_claimed(cases[index], *target) ? "+ " : "- ");
      std::cout << cases[index].id << "\n";
    }
  }
  return kExitOk;
}

int info_verb(const CommandLine& line) {
  const CaseList none({});
  BatchReport report;
  if (!probe(line, none, report)) {
    return report.is_interrupted ? kExitInterrupted : kExitNotLoaded;
  }
  json& hello = report.hello;
  ExitCode exit_code = kExitOk;
  if (line.wants_probes && !line.plugin.empty()) {
    exit_code = probe_declarations(line, report, hello["probes"]);
  }
  if (line.as_json) {
    std::cout << json_text(hello, 2) << "\n";
    return exit_code;
  }
  if (line.plugin.empty()) {
    print_manifests(hello);
    return kExitOk;
  }
  const json& plugin = hello.at("plugin");
  std::cout << "plugin " << plugin.value("name", "") << " " << plugin.value("version", "")
            << "   abi " << plugin.value("abi", "") << " (host " << hello.value("host_abi", "")
            << ")\n  " << plugin.value("path", "") << "\n";
  const std::string layers = plugin.value("layers", "");
  std::cout << "  layers " << (layers.empty() ? "none" : layers) << "\n";
  for (const json& warning : hello.value("log", json::array())) {
    std::cout << "  warning: " << warning.get<std::string>() << "\n";
  }
  const std::string refusals = plugin.value("refusals", "");
  if (!refusals.empty()) {
    std::cout << "  not taken:\n    " << clean_text(refusals, LineBreaks::kIndent) << "\n";
  }
  for (const json& finding : hello.value("findings", json::array())) {
    std::cout << "  finding: while loading, " << finding.get<std::string>() << "\n";
  }
  for (const json& target : hello.at("targets")) print_target(target);
  print_declarations(hello.value("probes", json::array()));
  if (report.unload_failure) {
    std::cout << "  finding: " << clean_text(report.unload_failure->message, LineBreaks::kIndent)
              << "\n";
  }
  return exit_code;
}

}  // namespace bp::conformance
