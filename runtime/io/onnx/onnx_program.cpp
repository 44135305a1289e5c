// bp-onnx runs, checks and tests models in the ONNX format.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "backplane/runtime/onnx.hpp"
#include "backplane/runtime/ops.hpp"
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/npy.hpp"
#include "runtime/io/onnx/test_folder.hpp"

namespace {

constexpr int kFailureExit = 1, kUsageExit = 2;

constexpr const char* kFooter =
    R"(Exit codes:
  0     the model ran or can run; every test passed, or is what --expect says
  1     it did not
  2     the command line is wrong)";

struct RunOptions {
  std::string model, device = "cpu";
  std::vector<std::string> inputs;
  uint64_t seed = 0;
  bool is_random = false;
  uint32_t repeat = 1;
};

struct TestOptions {
  std::vector<std::string> folders;
  std::string device = "cpu", filter, expectation;
  bool lists_unsupported = false;
  bp::onnx::Tolerances tolerances;
};

// ---- What is printed ---------------------------------------------------------------------------

std::string text_of(const bp::OnnxValueInfo& info) {
  std::string text = info.name + "  " + (info.dtype == 0 ? "?" : bp::dtype_text(info.dtype)) + " ";
  if (!info.shape) return text + "(...)";
  std::string shape = bp::to_string(bp::IntList(*info.shape));
  for (size_t place; (place = shape.find("-1")) != std::string::npos;) shape.replace(place, 2, "?");
  return text + shape + (info.is_required ? "" : "  has an initialiser");
}

void print_signature(const bp::OnnxModel& model) {
  for (const auto& info : model.inputs()) std::printf("input   %s\n", text_of(info).c_str());
  for (const auto& info : model.outputs()) std::printf("output  %s\n", text_of(info).c_str());
}

// What the nodes of one operator did.
struct OperatorRow {
  size_t nodes = 0;
  int64_t time_ns = 0;
  uint64_t native = 0, decomposed = 0, on_host = 0;
  bp::OnnxRoute route = bp::OnnxRoute::kOp;
};
using OperatorTable = std::map<std::string, OperatorRow>;

void add_run(OperatorTable& table, const bp::OnnxNodeRun& run) {
  OperatorRow& row = table[run.node.op_type];
  ++row.nodes;
  row.time_ns += run.time_ns;
  row.native += run.native_count;
  row.decomposed += run.decomposed_count;
  row.on_host += run.host_fallback_count;
  row.route = run.node.route;
}

void print_table(const OperatorTable& table) {
  std::vector<const OperatorTable::value_type*> rows;
  for (const auto& entry : table) rows.push_back(&entry);
  std::ranges::sort(rows, std::greater<>(), [](const auto* row) { return row->second.time_ns; });
  std::printf("\n%-28s %6s %12s  %-9s %7s %11s %8s\n", "operator", "nodes", "time (ms)", "route",
              "native", "decomposed", "on host");
  for (const auto* entry : rows) {
    const OperatorRow& row = entry->second;
    std::printf("%-28s %6zu %12.3f  %-9s %7llu %11llu %8llu\n", entry->first.c_str(), row.nodes,
                static_cast<double>(row.time_ns) / 1e6, bp::to_string(row.route),
                static_cast<unsigned long long>(row.native),
                static_cast<unsigned long long>(row.decomposed),
                static_cast<unsigned long long>(row.on_host));
  }
}

// ---- bp-onnx run -------------------------------------------------------------------------------

bp::Tensor load_input(const std::string& path, bp::Device device) {
  if (path.ends_with(".npy")) return bp::onnx::to_device(bp::onnx::load_npy(path), device);
  if (path.ends_with(".pb")) return bp::load_onnx_tensor(path, device);
  throw bp::Error(BP_INVALID_ARGUMENT, path + ": its name ends neither in .npy nor in .pb");
}

// Floats are uniform in [0, 1), and all else is 0. Unknown extents are 1.
bp::Tensor random_input(const bp::OnnxValueInfo& info, bp::Device device) {
  if (!info.shape || info.dtype == 0) {
    throw bp::Error(BP_INVALID_ARGUMENT, "the model does not say the shape and dtype of input '" +
                                             info.name + "'; give it with --input");
  }
  std::vector<int64_t> shape = *info.shape;
  std::ranges::replace(shape, int64_t{-1}, int64_t{1});
  if (info.dtype < BP_F16 || info.dtype > BP_F64) return bp::zeros(shape, info.dtype, device);
  return bp::uniform(shape, info.dtype, device);
}

bp::TensorMap gather_inputs(const bp::OnnxModel& model, const RunOptions& options) {
  bp::TensorMap inputs;
  for (const std::string& given : options.inputs) {
    const size_t equals = given.find('=');
    inputs[given.substr(0, equals)] = load_input(given.substr(equals + 1), model.device());
  }
  for (const bp::OnnxValueInfo& info : model.inputs()) {
    if (!info.is_required || inputs.contains(info.name)) continue;
    if (!options.is_random) {
      throw bp::Error(BP_INVALID_ARGUMENT, "input '" + info.name +
                                               "' is not given; allowed: --input " + info.name +
                                               "=FILE, or --random-seed for all of them");
    }
    inputs[info.name] = random_input(info, model.device());
  }
  return inputs;
}

int run_model(const RunOptions& options) {
  using Clock = std::chrono::steady_clock;
  const bp::Device device(options.device);
  bp::manual_seed(options.seed);
  const bp::OnnxModel model = bp::OnnxModel::load(options.model, device);
  print_signature(model);
  const bp::TensorMap inputs = gather_inputs(model, options);
  bp::TensorMap outputs = model.run(inputs);  // The first run makes kernels and caches ready.
  OperatorTable table;
  outputs = model.run(inputs, [&](const auto& run) { add_run(table, run); });
  print_table(table);
  double best_ms = 0;
  for (uint32_t i = 0; i < options.repeat; ++i) {
    const auto begin = Clock::now();
    outputs = model.run(inputs);
    bp::synchronize_stream(device);
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    best_ms = i == 0 ? ms : std::min(best_ms, ms);
  }
  std::printf("\nthe whole model: %.3f ms, the best of %u\n\n", best_ms, options.repeat);
  for (const auto& [name, tensor] : outputs) {
    // No kernel converts wide unsigned integers, which printing asks for.
    const bool is_wide = bp::onnx::is_wide_unsigned(tensor.dtype());
    const bp::Tensor shown = is_wide ? bp::onnx::converted(tensor, BP_I64) : tensor;
    std::cout << name << " = " << shown
              << (is_wide ? " from " + bp::dtype_text(tensor.dtype()) : "") << "\n";
  }
  std::cout << "\n" << device.report(true) << "\n";
  return 0;
}

// ---- bp-onnx check -----------------------------------------------------------------------------

int check_model(const RunOptions& options) {
  const bp::OnnxModel model = bp::OnnxModel::load(options.model, bp::Device(options.device), false);
  print_signature(model);
  std::map<std::string, size_t> reasons, composed;
  size_t supported = 0;
  for (const bp::OnnxNodeInfo& node : model.nodes()) {
    supported += node.is_supported ? 1 : 0;
    if (!node.is_supported) {
      ++reasons[node.op_type + " of " + (node.domain.empty() ? "the default domain" : node.domain) +
                ", opset " + std::to_string(node.opset) + ": " + node.reason];
    } else if (node.route == bp::OnnxRoute::kComposed || node.route == bp::OnnxRoute::kHost) {
      ++composed[node.op_type + " (" + bp::to_string(node.route) + ")"];
    }
  }
  std::printf("\n%zu of %zu nodes can be run\n", supported, model.nodes().size());
  for (const auto& [name, count] : composed) {
    std::printf("  %5zu  %s\n", count, name.c_str());
  }
  for (const auto& [reason, count] : reasons) {
    std::printf("  %5zu  cannot be run: %s\n", count, reason.c_str());
  }
  return reasons.empty() ? 0 : kFailureExit;
}

// ---- bp-onnx test ------------------------------------------------------------------------------

using bp::onnx::Outcome;

struct TestCounts {
  size_t passed = 0, in_shape = 0, unsupported = 0, failed = 0;

  void add(Outcome outcome) {
    passed += outcome == Outcome::kPassed ? 1 : 0;
    in_shape += outcome == Outcome::kPassedInShape ? 1 : 0;
    unsupported += outcome == Outcome::kUnsupported ? 1 : 0;
    failed += outcome == Outcome::kFailed ? 1 : 0;
  }
};

void print_counts(const std::string& name, const TestCounts& counts) {
  std::printf("%-40s %8zu %10zu %12zu %8zu\n", name.c_str(), counts.passed, counts.in_shape,
              counts.unsupported, counts.failed);
}

// Compares one result with the expectation. Returns what is wrong, or "".
std::string surprise(const bp::onnx::TestResult& result, const TestOptions& options,
                     std::map<std::string, std::string>& expectation) {
  const auto found = expectation.find(result.name);
  const bool is_expected = found != expectation.end();
  if (is_expected) expectation.erase(found);
  const bool has_passed =
      result.outcome == Outcome::kPassed || result.outcome == Outcome::kPassedInShape;
  if (has_passed) {
    return is_expected ? "it passes; take it out of " + options.expectation : "";
  }
  if (is_expected) return "";
  const bool is_unsupported = result.outcome == Outcome::kUnsupported;
  if (is_unsupported && options.expectation.empty()) return "";
  return (is_unsupported ? "unsupported: " : "") + result.reason;
}

int run_tests(const TestOptions& options) {
  const bp::Device device(options.device);
  std::map<std::string, std::string> expectation;
  if (!options.expectation.empty()) {
    expectation = bp::onnx::read_expectation(options.expectation);
  }
  std::map<std::string, std::vector<std::string>> groups;
  std::vector<std::pair<std::string, TestCounts>> table;
  TestCounts all;
  size_t surprises = 0;
  for (const std::string& folder : options.folders) {
    table.emplace_back(folder, TestCounts());
    for (const auto& test : bp::onnx::find_tests(folder)) {
      if (test.filename().string().find(options.filter) == std::string::npos) continue;
      const bp::onnx::TestResult result =
          bp::onnx::run_test_folder(test, device, options.tolerances);
      table.back().second.add(result.outcome);
      all.add(result.outcome);
      if (result.outcome == Outcome::kUnsupported) {
        groups[bp::onnx::group_of(result.reason)].push_back(result.name);
      }
      const std::string wrong = surprise(result, options, expectation);
      if (wrong.empty()) continue;
      ++surprises;
      std::printf("%s: %s\n", result.name.c_str(), wrong.c_str());
    }
  }
  if (options.lists_unsupported) {
    for (const auto& [reason, names] : groups) {
      std::printf("%4zu  %s\n", names.size(), reason.c_str());
      for (const std::string& name : names) std::printf("        %s\n", name.c_str());
    }
  }
  std::printf("%-40s %8s %10s %12s %8s\n", "folder", "passed", "in shape", "unsupported", "failed");
  for (const auto& [folder, counts] : table) print_counts(folder, counts);
  if (table.size() > 1) print_counts("all", all);
  if (surprises == 0 && !options.expectation.empty()) std::printf("all is as expected\n");
  return surprises == 0 ? 0 : kFailureExit;
}

// ---- The command line --------------------------------------------------------------------------

void add_device(CLI::App* command, std::string& device) {
  command->add_option("--device", device, "the device, such as cpu or cpu:0")
      ->capture_default_str()
      ->type_name("NAME");
}

void add_model(CLI::App* command, RunOptions& options) {
  command->add_option("MODEL", options.model, "the file of the model")->required();
  add_device(command, options.device);
}

CLI::App* add_run_command(CLI::App& app, RunOptions& options) {
  CLI::App* const run =
      app.add_subcommand("run", "Runs a model, and prints what each operator took");
  add_model(run, options);
  run->add_option("--input", options.inputs,
                  "the file of an input, which numpy.save() or ONNX wrote")
      ->type_name("NAME=FILE.npy|FILE.pb")
      ->check([](const std::string& text) {
        return text.find('=') == std::string::npos ? "'" + text + "' is not NAME=FILE" : "";
      });
  run->add_option_function<uint64_t>(
         "--random-seed",
         [&](uint64_t seed) {
           options.seed = seed;
           options.is_random = true;
         },
         "fill inputs that are not given: floats are uniform in [0, 1), the rest is 0")
      ->type_name("SEED");
  run->add_option("--repeat", options.repeat, "how often to time the whole model")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  return run;
}

CLI::App* add_test_command(CLI::App& app, TestOptions& options) {
  CLI::App* const test = app.add_subcommand(
      "test", "Runs ONNX's tests: folders with a model.onnx and test_data_set_*");
  test->add_option("FOLDER", options.folders, "a test, or a folder of tests")
      ->required()
      ->check(CLI::ExistingDirectory);
  add_device(test, options.device);
  test->add_option("--filter", options.filter, "run only tests whose names have TEXT in them")
      ->type_name("TEXT");
  test->add_option("--expect", options.expectation,
                   "a file of lines 'NAME: REASON'; all other tests must pass, and these must not")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  test->add_option("--rtol", options.tolerances.relative, "the relative tolerance of floats")
      ->capture_default_str();
  test->add_option("--atol", options.tolerances.absolute, "the absolute tolerance of floats")
      ->capture_default_str();
  test->add_flag("--list-unsupported", options.lists_unsupported,
                 "list the tests that are not supported, grouped by reason");
  return test;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs, checks and tests models in the ONNX format.", "bp-onnx");
  app.footer(kFooter);
  app.require_subcommand(1);
  RunOptions run_options;
  TestOptions test_options;
  CLI::App* const run = add_run_command(app, run_options);
  CLI::App* const check =
      app.add_subcommand("check", "Reads a model, and says which of its nodes cannot be run");
  add_model(check, run_options);
  CLI::App* const test = add_test_command(app, test_options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageExit;
  }
  try {
    if (*run) return run_model(run_options);
    if (*check) return check_model(run_options);
    if (*test) return run_tests(test_options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bp-onnx: %s\n", error.what());
  }
  return kFailureExit;
}
