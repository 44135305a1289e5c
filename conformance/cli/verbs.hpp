// The verbs of bp-conformance. Each function returns the exit code.
#pragma once

#include "conformance/cli/command_line.hpp"
#include "conformance/report/files.hpp"
#include "conformance/report/speed.hpp"
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
int package_verb(const CommandLine& line);
int verify_verb(const CommandLine& line);
int stress_verb(const CommandLine& line);
int dist_verb(const CommandLine& line);
int explain_verb(const CommandLine& line);
int selftest_verb(const CommandLine& line);
int new_verb(const CommandLine& line);

// Loads the plugin in a worker that runs no case. If it does not load, it prints one line and
// returns false; the exit code is then kExitNotLoaded, or kExitInterrupted.
bool probe(const CommandLine& line, const CaseList& cases, BatchReport& out_report);

// Writes the documents that the command line asks for. `speed` is for the HTML page; NULL if
// nothing was measured.
void write_documents(const CommandLine& line, const RunHeader& header, const RunReport& report,
                     const Summary& summary, Outputs& outputs, const Speed* speed = nullptr);

// Prints on standard error which files could not be written. Returns the exit code of a run that
// would have ended with `exit_code`.
int with_outputs_checked(int exit_code, const Outputs& outputs);

// Returns whether standard output may have colors.
bool has_color(const CommandLine& line);

// Returns the flags that change results and do not have their default value, for lines that repeat
// a failure.
std::vector<std::string> repro_flags(const CommandLine& line);

// Returns whether the device claims what a case needs: a kernel for its op and dtype. A case
// without an op belongs to the tables that every backend has.
bool is_claimed(const Case& which, const nlohmann::json& target);

// Runs the probes of the kernels' declarations. Returns kExitDeclaration if one is false.
ExitCode probe_declarations(const CommandLine& line, const BatchReport& probed,
                            nlohmann::json& out_probes);
void print_declarations(const nlohmann::json& probes);

// Returns the descriptor that becomes readable when the process gets SIGINT, SIGTERM or SIGHUP.
// Before the first call these signals end the process.
int interrupt_descriptor();

// Prints one line for people on standard error.
void complain(const std::string& text);

}  // namespace bp::conformance
