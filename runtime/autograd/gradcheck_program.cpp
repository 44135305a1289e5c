// bp-gradcheck - compares the gradients of ops with central differences on a device.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>

#include "backplane/runtime/device.hpp"
#include "backplane/runtime/progress.hpp"
#include "runtime/autograd/gradient_cases.hpp"

namespace {

constexpr const char* kHelp = R"(usage: bp-gradcheck [OPTION ...] [OP ...]

Compares the gradients of the ops, and the gradients of these gradients, with central differences
in f64. Without OP, checks every op that has a gradient.

  --device NAME   the device to check, such as cpu or cpu:0 (default: cpu)
  --list          the names of the cases, one a line
  --help          this text

Exit codes: 0 all agree; 1 some do not, or could not run; 2 wrong command line.
)";

struct Options {
  std::string device = "cpu";
  bool lists = false;
  std::set<std::string> ops;
};

[[noreturn]] void usage_error(const std::string& what) {
  std::cerr << what << "\n\n" << kHelp;
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  std::set<std::string> known;
  for (const bp::GradientCase& item : bp::gradient_cases()) known.insert(item.op());
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h") {
      std::cout << kHelp;
      std::exit(0);
    } else if (word == "--list") {
      options.lists = true;
    } else if (word == "--device") {
      if (++i == argc) usage_error("--device needs a name");
      options.device = argv[i];
    } else if (word.starts_with("-")) {
      usage_error("unknown option: " + word);
    } else if (!known.contains(word)) {
      usage_error("no op '" + word + "' with a gradient; --list names them");
    } else {
      options.ops.insert(word);
    }
  }
  return options;
}

// Returns what is wrong, or "".
std::string check(const bp::GradientCase& item, bool is_second) {
  try {
    return is_second ? bp::gradgradcheck(item.function, item.leaves())
                     : bp::gradcheck(item.function, item.leaves());
  } catch (const std::exception& error) {
    return std::string("did not run: ") + error.what();
  }
}

struct Row {
  const char* name;
  std::string first, second;
  double milliseconds;
  bool is_once;
};

Row run_case(const bp::GradientCase& item) {
  const auto start = std::chrono::steady_clock::now();
  Row row{item.name, check(item, false), item.is_once ? "" : check(item, true), 0, item.is_once};
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  row.milliseconds = took.count();
  return row;
}

int run(const Options& options) {
  const bp::Device device(options.device);
  const bp::DeviceGuard guard(device);
  std::vector<const bp::GradientCase*> chosen;
  for (const bp::GradientCase& item : bp::gradient_cases()) {
    if (options.ops.empty() || options.ops.contains(item.op())) chosen.push_back(&item);
  }
  std::vector<Row> rows;
  {
    bp::ProgressBar bar(chosen.size(), "gradients");
    for (const bp::GradientCase* item : chosen) {
      rows.push_back(run_case(*item));
      bar.step(item->name);
    }
    bar.finish();
  }
  std::printf("%-44s %-8s %-8s %8s\n", device.name(), "first", "second", "ms");
  size_t failed = 0;
  for (const Row& row : rows) {
    const auto text = [](const std::string& problem) {
      return problem.empty() ? "agrees" : "WRONG";
    };
    std::printf("%-44s %-8s %-8s %8.1f\n", row.name, text(row.first),
                row.is_once ? "none" : text(row.second), row.milliseconds);
    if (!row.first.empty()) std::printf("  first order: %s\n", row.first.c_str());
    if (!row.second.empty()) std::printf("  second order: %s\n", row.second.c_str());
    failed += !row.first.empty() || !row.second.empty();
  }
  const std::vector<std::string> missing = bp::ops_without_gradient_case();
  for (const std::string& op : missing) std::printf("%s has a gradient and no case\n", op.c_str());
  std::printf("%zu cases, %zu wrong, %zu ops without a case\n", rows.size(), failed,
              missing.size());
  return failed + missing.size() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.lists) {
    for (const bp::GradientCase& item : bp::gradient_cases()) std::puts(item.name);
    return 0;
  }
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bp-gradcheck: %s\n", error.what());
    return 1;
  }
}
