#include "conformance/report/speed.hpp"

#include <array>
#include <cmath>
#include <filesystem>

#include "conformance/case.hpp"
#include "conformance/json_file.hpp"
#include "conformance/runner/setup.hpp"
#include "conformance/usage_error.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::conformance {
namespace {

constexpr std::string_view kPrefix = "perf.";

struct Unit {
  double size;
  const char* name;
};

// Returns the value in the largest unit that it reaches, with three digits.
template <size_t kCount>
std::string with_unit(double value, const std::array<Unit, kCount>& units) {
  size_t at = 0;
  while (at + 1 < kCount && value < units[at].size) ++at;
  const double share = value / units[at].size;
  return fixed_text(share, share < 10 ? 2 : share < 100 ? 1 : 0) + " " + units[at].name;
}

double optional_number(const JsonObject& object, const char* key) {
  if (!object.has(key) || object.member(key).is_null()) return 0;
  return object.number(key, 0, HUGE_VAL);
}

SpeedRow row_of(const JsonObject& entry, const std::string& id) {
  SpeedRow row;
  row.id = id.starts_with(kPrefix) ? id.substr(kPrefix.size()) : id;
  row.grade = clean_text(entry.text("grade", "none"), LineBreaks::kEscape);
  row.median_s = entry.number("median_s", 0, kMostSeconds);
  row.fraction = optional_number(entry, "fraction");
  row.bytes_per_s = optional_number(entry, "bytes_per_s");
  row.flops_per_s = optional_number(entry, "flops_per_s");
  row.is_flops_bound = entry.text("bound", "") == "flops";
  return row;
}

void read_rows(const JsonObject& document, Speed& speed) {
  const nlohmann::json& cases = document.list("cases");
  for (size_t i = 0; i < cases.size(); ++i) {
    const JsonObject entry(cases[i], document.name() + ": cases[" + std::to_string(i) + "]");
    const std::string id = clean_text(entry.text("id"), LineBreaks::kEscape);
    Outcome outcome = Outcome::kPass;
    if (!outcome_from_name(entry.text("status"), outcome)) {
      entry.refuse("status", "\"" + entry.text("status") + "\"", "the name of a status");
    }
    const bool is_measured = entry.has("median_s") && !entry.member("median_s").is_null();
    if (count_of(outcome) == Count::kFailed) {
      ++speed.failed;
    } else if (count_of(outcome) == Count::kSkipped) {
      ++speed.not_run;
    } else if (is_measured) {
      speed.rows.push_back(row_of(entry, id));
    }
  }
}

void read_ceilings(const JsonObject& document, Speed& speed) {
  if (!document.has("ceilings")) return;
  const JsonObject ceilings = document.object("ceilings");
  speed.copy_bytes_per_s = optional_number(ceilings, "copy_bytes_per_s");
  speed.read_bytes_per_s = optional_number(ceilings, "read_bytes_per_s");
  speed.write_bytes_per_s = optional_number(ceilings, "write_bytes_per_s");
  speed.launch_s = optional_number(ceilings, "launch_s");
  if (!ceilings.has("flops_per_s")) return;
  const JsonObject peaks = ceilings.object("flops_per_s");
  for (const auto& [dtype, value] : ceilings.member("flops_per_s").items()) {
    speed.flops_per_s[clean_text(dtype, LineBreaks::kEscape)] =
        peaks.number(dtype.c_str(), 0, HUGE_VAL);
  }
}

}  // namespace

Speed speed_of(const nlohmann::json& parsed, const std::string& name) {
  const JsonObject document(parsed, name);
  if (!document.has("schema") || !document.has("cases")) {
    throw UsageError(name + ": was not written by perf: it has no " +
                     (document.has("schema") ? "cases" : "schema"));
  }
  Speed speed;
  if (document.has("device")) {
    speed.device = clean_text(document.object("device").text("name", ""), LineBreaks::kEscape);
  }
  if (document.has("plugin")) {
    speed.sha256 = clean_text(document.object("plugin").text("sha256", ""), LineBreaks::kEscape);
  }
  read_ceilings(document, speed);
  read_rows(document, speed);
  return speed;
}

Speed read_speed(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string file =
      fs::is_directory(path, error) ? (fs::path(path) / "perf.json").string() : path;
  return speed_of(read_json_file(file), file);
}

std::string bytes_rate_text(double per_second) {
  constexpr std::array<Unit, 3> kUnits = {{{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}}};
  return with_unit(per_second, kUnits);
}

std::string flops_rate_text(double per_second) {
  constexpr std::array<Unit, 3> kUnits = {{{1e12, "TFLOP/s"}, {1e9, "GFLOP/s"}, {1e6, "MFLOP/s"}}};
  return with_unit(per_second, kUnits);
}

std::string duration_text(double seconds) {
  constexpr std::array<Unit, 4> kUnits = {{{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}, {1e-9, "ns"}}};
  return with_unit(seconds, kUnits);
}

std::string bytes_text(double bytes) {
  constexpr std::array<Unit, 4> kUnits = {{{double(1u << 30), "GiB"},
                                           {double(1 << 20), "MiB"},
                                           {double(1 << 10), "KiB"},
                                           {1, "bytes"}}};
  return with_unit(bytes, kUnits);
}

}  // namespace bp::conformance
