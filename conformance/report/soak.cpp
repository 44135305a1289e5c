#include "conformance/report/soak.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "conformance/report/speed.hpp"
#include "conformance/usage_error.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance {
namespace {

constexpr double kLeastGrowth = 4 << 20;  // Allocators keep some memory.
constexpr double kLeastShare = 0.02;
constexpr double kSlower = 1.5;

// Returns the number behind `key` in a file of /proc: "Threads:  12".
std::optional<uint64_t> number_in(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(key)) return std::strtoull(line.c_str() + key.size(), nullptr, 10);
  }
  return std::nullopt;
}

// The smallest and largest value of a figure in each quarter of the samples.
struct Quarters {
  std::array<double, 4> least, most;

  // Returns whether the figure rises from the second quarter to the fourth, without a pause.
  bool rise() const { return least[1] < least[2] && least[2] < least[3] && most[1] < most[3]; }
};

Quarters quarters_of(const std::vector<SoakSample>& samples,
                     const std::function<double(const SoakSample&)>& figure) {
  Quarters q{};
  for (size_t i = 0; i < 4; ++i) {
    const size_t first = samples.size() * i / 4, last = samples.size() * (i + 1) / 4;
    q.least[i] = q.most[i] = figure(samples[first]);
    for (size_t k = first; k < last; ++k) {
      q.least[i] = std::min(q.least[i], figure(samples[k]));
      q.most[i] = std::max(q.most[i], figure(samples[k]));
    }
  }
  return q;
}

double device_bytes_of(const SoakSample& s) { return static_cast<double>(*s.device_bytes); }

std::string growth_text(const char* name, const std::string& from, const std::string& to) {
  return std::string(name) + " grow from " + from + " after the warm-up to " + to +
         " in the last quarter";
}

}  // namespace

std::optional<SoakSample> look_at_process(int pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::optional<uint64_t> resident = number_in(folder + "/status", "VmRSS:");
  const std::optional<uint64_t> threads = number_in(folder + "/status", "Threads:");
  std::error_code error;
  const std::filesystem::directory_iterator descriptors(folder + "/fd", error);
  if (!resident || !threads || error) return std::nullopt;
  SoakSample sample;
  sample.resident_bytes = *resident * 1024;
  sample.threads = *threads;
  sample.descriptors = static_cast<uint64_t>(std::distance(begin(descriptors), end(descriptors)));
  return sample;
}

double read_degrees(const std::string& file) {
  std::ifstream in(file);
  std::string text;
  std::getline(in, text);
  const std::optional<double> thousandths = parse_double(text);
  if (!thousandths) {
    throw UsageError("--temperature: " + file +
                     " holds no number; needed are thousandths of a degree, such as 42000");
  }
  return *thousandths / 1000;
}

void Soak::add(const SoakSample& sample) {
  if (seen_++ % step_ != 0) return;
  if (samples_.size() == kMostSamples) {
    for (size_t i = 0; i < kMostSamples / 2; ++i) samples_[i] = samples_[2 * i];
    samples_.resize(kMostSamples / 2);
    step_ *= 2;
    if ((seen_ - 1) % step_ != 0) return;
  }
  samples_.push_back(sample);
}

bool Soak::tells_device_memory() const {
  return std::ranges::all_of(samples_,
                             [](const SoakSample& s) { return s.device_bytes.has_value(); });
}

std::vector<std::string> Soak::findings() const {
  std::vector<std::string> found;
  if (!is_enough()) return found;
  const auto check_bytes = [&](const char* name,
                               const std::function<double(const SoakSample&)>& bytes) {
    const Quarters q = quarters_of(samples_, bytes);
    const double growth = q.least[3] - q.least[1];
    if (!q.rise() || growth <= std::max(kLeastGrowth, kLeastShare * q.least[1])) return;
    found.push_back(growth_text(name, bytes_text(q.least[1]), bytes_text(q.least[3])));
  };
  check_bytes("bytes of memory of the process",
              [](const SoakSample& s) { return static_cast<double>(s.resident_bytes); });
  if (tells_device_memory()) {
    check_bytes("bytes of memory in use on the device", device_bytes_of);
  }
  const auto check_count = [&](const char* name, uint64_t SoakSample::*member) {
    const Quarters q = quarters_of(
        samples_, [member](const SoakSample& s) { return static_cast<double>(s.*member); });
    if (!q.rise()) return;
    found.push_back(growth_text(name, short_text(q.least[1]), short_text(q.least[3])));
  };
  check_count("threads", &SoakSample::threads);
  check_count("open descriptors", &SoakSample::descriptors);
  const Quarters rounds =
      quarters_of(samples_, [](const SoakSample& s) { return s.round_seconds; });
  if (rounds.rise() && rounds.least[3] > kSlower * rounds.least[1]) {
    found.push_back("the fastest round takes " + duration_text(rounds.least[3]) +
                    " in the last quarter, and took " + duration_text(rounds.least[1]) +
                    " after the warm-up");
  }
  return found;
}

std::string Soak::text() const {
  if (samples_.empty()) return "no sample was taken\n";
  const auto line = [&](const char* name, const auto& value) {
    return std::string(name) + value(samples_.front()) + " at the beginning, " +
           value(samples_.back()) + " at the end\n";
  };
  std::string text =
      line("memory         ",
           [](const SoakSample& s) { return bytes_text(static_cast<double>(s.resident_bytes)); }) +
      (tells_device_memory()
           ? line("device memory  ",
                  [](const SoakSample& s) { return bytes_text(device_bytes_of(s)); })
           : "device memory  not told\n") +
      line("threads        ", [](const SoakSample& s) { return std::to_string(s.threads); }) +
      line("descriptors    ", [](const SoakSample& s) { return std::to_string(s.descriptors); }) +
      line("a round        ", [](const SoakSample& s) { return duration_text(s.round_seconds); });
  if (!samples_.front().degrees || !samples_.back().degrees) return text;
  double hottest = *samples_.front().degrees;
  for (const SoakSample& s : samples_) hottest = std::max(hottest, s.degrees.value_or(hottest));
  return text +
         line("temperature    ",
              [](const SoakSample& s) { return fixed_text(s.degrees.value_or(0), 1) + " C"; }) +
         "               " + fixed_text(hottest, 1) + " C at most\n";
}

nlohmann::json Soak::json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const SoakSample& s : samples_) {
    nlohmann::json entry = {{"seconds", s.seconds},
                            {"resident_bytes", s.resident_bytes},
                            {"threads", s.threads},
                            {"descriptors", s.descriptors},
                            {"round_seconds", s.round_seconds}};
    if (s.device_bytes) entry["device_bytes"] = *s.device_bytes;
    if (s.degrees) entry["degrees"] = *s.degrees;
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace bp::conformance
