// The second half of info: the kernels' declarations about their arithmetic, and the results of
// probes.
#include <iostream>
#include <map>

#include "conformance/cli/progress.hpp"
#include "conformance/cli/verbs.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

// The form of an id is "info.declaration.<field>.<op>.<dtypes>".
constexpr std::string_view kProbes = "info.declaration.";

std::vector<size_t> select_probes(const CaseList& cases, const json& target) {
  std::vector<size_t> selection;
  for (size_t i = 0; i < cases.size(); ++i) {
    const bool is_probe = cases[i].id.starts_with(kProbes) && cases[i].tier == Tier::kSmoke;
    if (is_probe && is_claimed(cases[i], target)) selection.push_back(i);
  }
  return selection;
}

struct ProbeLine {
  std::string subject, field;  // The members hold "matmul.f32" and "acc", for example.
};

ProbeLine parts_of(const std::string& id) {
  const std::string rest = id.substr(kProbes.size());
  const size_t dot = rest.find('.');
  return {rest.substr(dot + 1), rest.substr(0, dot)};
}

std::string detail_of(const Result& result, const char* name) {
  const auto found = result.details.find(name);
  return found == result.details.end() ? "" : found->second;
}

json probe_json(const Judged& judged) {
  const auto [subject, field] = parts_of(judged.id);
  return {{"kernel_of", subject},
          {"field", field},
          {"declared", detail_of(judged.result, "declared")},
          {"probed", detail_of(judged.result, "probed")},
          {"status", outcome_name(judged.result.outcome)},
          {"message", judged.result.message}};
}

}  // namespace

ExitCode probe_declarations(const CommandLine& given, const BatchReport& probed, json& out_probes) {
  CommandLine line = given;
  line.run.session.interrupt_fd = interrupt_descriptor();
  line.run.retries = 0;
  const json& target = probed.hello.at("targets").at(probed.hello.value("target", size_t{0}));
  const CaseList& cases = CaseList::whole_suite();
  const std::vector<size_t> selection = select_probes(cases, target);
  out_probes = json::array();
  if (selection.empty()) return kExitOk;

  Progress progress(false, true);
  Supervisor supervisor(line.run, cases, [&](const Attempt& attempt, const Position& position) {
    progress.update({.done = position.done,
                     .total = position.total,
                     .what = attempt.index < cases.size() ? cases[attempt.index].id : ""});
  });
  const RunReport report = supervisor.run(selection, probed);
  progress.clear();
  const Summary summary =
      summarize({.plugin = line.plugin, .is_whole_tier = false}, cases, report, Waivers());
  for (const Judged& judged : summary.judged) {
    if (judged.which != nullptr) out_probes.push_back(probe_json(judged));
  }
  return summary.exit_code;
}

void print_declarations(const json& probes) {
  std::map<std::string, std::string> lines;  // The lines by the kernel's name.
  std::string findings;
  for (const json& probe : probes) {
    Outcome outcome = Outcome::kPass;
    outcome_from_name(probe.value("status", ""), outcome);
    const std::string declared = probe.value("declared", "");
    if (!declared.empty()) {
      std::string& text = lines[probe.value("kernel_of", "")];
      text += "  " + probe.value("field", "") + "=" + declared;
      const std::string found = probe.value("probed", "");
      if (found != declared) text += " (probed " + found + ")";
    }
    if (count_of(outcome) == Count::kFailed) {
      findings += "  finding: " + probe.value("kernel_of", "") + ": " +
                  clean_text(probe.value("message", ""), LineBreaks::kIndent) + "\n";
    }
  }
  if (lines.empty() && findings.empty()) return;
  std::cout << "\ndeclared numerics, as probed\n";
  for (const auto& [kernel, text] : lines) std::cout << "  " << kernel << text << "\n";
  std::cout << findings;
}

}  // namespace bp::conformance
