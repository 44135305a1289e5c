// What each verb of bp-conformance does. Each returns the exit code.
#pragma once

#include "conformance/cli/command_line.hpp"
#include "conformance/report/files.hpp"
#include "conformance/report/summary.hpp"

namespace bp::conformance {

int run_verb(const CommandLine& line);
int list_verb(const CommandLine& line);
int info_verb(const CommandLine& line);
int coverage_verb(const CommandLine& line);
int perf_verb(const CommandLine& line);
int shrink_verb(const CommandLine& line);
int repro_verb(const CommandLine& line);
int diff_verb(const CommandLine& line);
int report_verb(const CommandLine& line);
int explain_verb(const CommandLine& line);
int selftest_verb(const CommandLine& line);
int new_verb(const CommandLine& line);

// Loads the plugin in a worker that runs nothing. Prints one line and returns false if it does not
// load; then the exit code is kExitNotLoaded, or kExitInterrupted.
bool probe(const CommandLine& line, const CaseList& cases, BatchReport& out_report);

// The documents that were asked for on the command line.
void write_documents(const CommandLine& line, const RunHeader& header, const RunReport& report,
                     const Summary& summary, Outputs& outputs);

// Says what could not be written, on standard error. The exit code of a run that would have ended
// with `exit_code`.
int with_outputs_checked(int exit_code, const Outputs& outputs);

// Whether what goes to standard output may have colors.
bool has_color(const CommandLine& line);

// The flags that change results and are not at their default, for lines that repeat a failure.
std::vector<std::string> repro_flags(const CommandLine& line);

// Whether the device claims what a case needs: a kernel of its op and dtype. What is no op belongs
// to the tables that every backend has.
bool is_claimed(const Case& which, const nlohmann::json& target);

// Runs the probes of what the kernels of the device declare. kExitDeclaration where one is false.
ExitCode probe_declarations(const CommandLine& line, const BatchReport& probed,
                            nlohmann::json& out_probes);
void print_declarations(const nlohmann::json& probes);

// The descriptor that becomes readable when the process gets SIGINT, SIGTERM or SIGHUP. Before the
// first call these signals end the process.
int interrupt_descriptor();

// One line for people, on standard error.
void complain(const std::string& text);

}  // namespace bp::conformance
