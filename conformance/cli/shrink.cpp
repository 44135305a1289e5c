// The verb shrink: finds the smallest call that fails as a case does, and writes it as a file for
// run and as a C program.
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "conformance/cli/progress.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/json_file.hpp"
#include "conformance/report/files.hpp"
#include "conformance/shrink/candidates.hpp"
#include "conformance/shrink/changed_case.hpp"
#include "conformance/shrink/shrinker.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

namespace fs = std::filesystem;

const Case& op_case_of(const CaseList& suite, const std::string& id) {
  const Case* which = suite.find(id);
  if (which == nullptr) throw NothingMatched("--case " + id + ": there is no case of this id");
  if (which->op_case == nullptr) {
    throw UsageError("--case is '" + id +
                     "', which is not a single call of an op; allowed: the cases op.*");
  }
  return *which;
}

fs::path make_folder(const CommandLine& line) {
  fs::path folder = line.out.empty()
                        ? fs::path("bp-results") / "shrunk" / file_name_of(line.case_id)
                        : fs::path(line.out);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UsageError("--out " + folder.string() + ": " + error.message());
  return folder;
}

// Returns a text such as "a 3x17 transposed".
std::string call_text(const OpCase& call) {
  std::string text;
  for (const TensorArgument& argument : call.tensors) {
    text += "  " + std::string(argument.name) + "  " + dtype_text(argument.dtype) + "  " +
            shape_text(argument.shape) + "  " + layout_text(argument.layout) + "\n";
  }
  const nlohmann::json described = describe_call(call);
  for (const auto& [name, value] : described.at("attributes").items()) {
    text += "  " + name + "  " + json_text(value) + "\n";
  }
  return text;
}

OpCase shrink(const CommandLine& line, const Case& which, const Result& failure,
              ChangedRuns& runs) {
  size_t step = 0;
  return shrink_call(*which.op_case, line.steps, [&](const std::vector<OpCase>& calls) {
    if (!line.is_quiet) {
      std::fprintf(stderr, "step %zu: %zu runs so far, %zu simpler calls to try\n", ++step,
                   runs.run_count(), calls.size());
    }
    return runs.find_failing(calls, failure);
  });
}

void write_outputs(const CommandLine& line, const Case& which, const OpCase& call,
                   const Result& failure, const std::string& program) {
  const fs::path folder = make_folder(line);
  nlohmann::json described = describe_call(call);
  described["case"] = which.id;
  described["status"] = outcome_name(failure.outcome);
  described["message"] = failure.message;
  write_file(folder / "shrunk.json", json_text(described, 1) + "\n");
  write_file(folder / "repro.c", program);

  CommandLine repeated = line;
  repeated.shrunk = (folder / "shrunk.json").string();
  const RunHeader header{
      .plugin = line.plugin, .repro_flags = repro_flags(repeated), .seed = line.run.session.seed};
  Case changed = which;
  changed.change = "yes";  // The report names the case by its file.
  std::cout << which.id << "\n" << call_text(call) << outcome_name(failure.outcome);
  if (!failure.cause.empty()) std::cout << " (" << failure.cause << ")";
  std::cout << ": " << clean_text(failure.message, LineBreaks::kIndent)
            << "\nrepro: " << repro_line(header, {.which = &changed, .id = which.id})
            << "\nC:     " << (folder / "repro.c").string() << "\n";
  std::cout.flush();
}

}  // namespace

int shrink_verb(const CommandLine& given) {
  CommandLine line = given;
  const CaseList& suite = CaseList::whole_suite();
  const Case& which = op_case_of(suite, line.case_id);
  line.run.session.interrupt_fd = interrupt_descriptor();
  BatchReport probed;
  if (!probe(line, suite, probed)) {
    return probed.is_interrupted ? kExitInterrupted : kExitNotLoaded;
  }

  ChangedRuns runs(line.run.session, which);
  const Result first = runs.run_base();
  if (runs.is_interrupted()) return kExitInterrupted;
  if (count_of(first.outcome) != Count::kFailed) {
    throw NothingMatched(line.case_id + ": does not fail alone (" + outcome_name(first.outcome) +
                         "), so there is nothing to shrink");
  }
  if (!follows_shapes(*which.op_case)) {
    complain(
        "shrink keeps the shapes of this case, because its oracle depends on them; it simplifies "
        "only layouts and data");
  }
  const OpCase call = shrink(line, which, first, runs);
  const Result failure = runs.run(call);
  if (runs.is_interrupted()) return kExitInterrupted;
  if (!is_same_failure(first, failure)) {
    throw NothingMatched(line.case_id + ": fails in another way when it is repeated: " +
                         outcome_name(failure.outcome) + ": " + failure.message);
  }
  write_outputs(line, which, call, failure, runs.program_of(call));
  return kExitOk;
}

}  // namespace bp::conformance
