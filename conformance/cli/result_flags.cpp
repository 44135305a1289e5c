// The flags of the verbs on stored results, and of stress.
#include "conformance/cli/flags.hpp"

namespace bp::conformance {

void add_report_verb(CLI::App& app, CommandLine& line) {
  CLI::App* report = app.add_subcommand(
      "report", "show the page of a stored run, and write its documents; or compare runs");
  CLI::Option* folder = report->add_option("DIR", line.folder, "folder of the run");
  report
      ->add_option("--compare", line.compared,
                   "compare the runs in these folders side by side, and write the page to --html, "
                   "or else to comparison.html in this folder")
      ->expected(2, 16)
      ->excludes(folder);
  report
      ->add_option("--perf", line.speeds,
                   "show the speeds of this perf.json; with --compare one for each run, in their "
                   "order, or - for none; default: perf.json in the folder of the run")
      ->allow_extra_args(false);
  report->add_flag("-v,--verbose", line.is_verbose, "show every cause");
  report->add_flag("-q,--quiet", line.is_quiet, "show only the verdict and the counts");
  report->add_option("--list-slowest", line.list_slowest, "list this many of the slowest cases")
      ->check(CLI::Range(0, 1000000));
  add_reports(*report, line);
}

void add_package_verbs(CLI::App& app, CommandLine& line) {
  CLI::App* package =
      app.add_subcommand("package", "put the results of a run into one file, for others to check");
  package->add_option("DIR", line.folder, "folder of the run")->required();
  package->add_option("--out", line.out, "write this file; default: <name of the folder>.tar");
  package
      ->add_option("--state", line.statements,
                   "add KEY=TEXT to the statement, such as vendor=Acme or contact=a@acme.example; "
                   "may be repeated")
      ->allow_extra_args(false);
  package->add_option("--sign", line.sign_key,
                      "sign with this SSH key, as FILE.sig (ssh-keygen -Y sign)");

  CLI::App* verify = app.add_subcommand("verify", "check a package, with or without its device");
  verify->add_option("FILE", line.folder, "the package")->required();
  CLI::Option* signers = verify->add_option(
      "--allowed-signers", line.allowed_signers,
      "accept only signatures of this list (see ssh-keygen(1), ALLOWED SIGNERS)");
  CLI::Option* signer =
      verify->add_option("--signer", line.signer, "name of the signer in that list");
  signers->needs(signer);
  signer->needs(signers);
  verify->add_option("--plugin", line.plugin,
                     "the plugin of the package: check its hash, and run cases again");
  verify->add_option("--samples", line.samples, "run this many cases again")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  verify->add_option("--seed", line.sample_seed,
                     "draw these cases by this seed; default: one that nobody knows before, which "
                     "is printed");
}

void add_stress_verb(CLI::App& app, CommandLine& line, RawOptions& raw) {
  CLI::App* stress = app.add_subcommand(
      "stress", "run cases again and again in one process, and watch what grows");
  stress->add_option("PLUGIN", line.plugin, "path or name of the backend")->required();
  stress->add_option("--hours", line.stress_hours, "run for this many hours")
      ->check(CLI::Range(0.0001, 10000.0))
      ->capture_default_str();
  stress->add_option("--temperature", line.temperature,
                     "read the temperature from this file, in thousandths of a degree, such as "
                     "/sys/class/thermal/thermal_zone0/temp");
  add_selection(*stress, line, raw);
  add_backend(*stress, line, raw);
  add_data(*stress, line, raw);
  stress->add_option("--json", line.json_file, "write the samples to this file")->group("Output");
  stress->add_flag("-q,--quiet", line.is_quiet, "show no progress")->group("Output");
}

}  // namespace bp::conformance
