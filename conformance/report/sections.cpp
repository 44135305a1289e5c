#include "conformance/report/sections.hpp"

#include "conformance/report/html.hpp"

namespace bp::conformance {

const char* class_of(Outcome outcome) {
  const Count count = count_of(outcome);
  return count == Count::kPassed ? "good" : count == Count::kFailed ? "bad" : "other";
}

const char* class_of(const ServedCounts& counts) {
  const Served worst = worst_of(counts);
  if (worst == Served::kNative) return counts[0] == total_of(counts) ? "good" : "part";
  if (worst == Served::kFallback) return "other";
  return worst <= Served::kRefused ? "none" : "bad";
}

const char* class_of(const ProfileStanding& profile) {
  const std::string_view state = profile.state();
  if (state == "holds") return "good";
  if (state == "fails") return "bad";
  return state == "not complete" ? "other" : "none";
}

const char* class_of(const Badge& badge) {
  if (badge.is_given) return "good";
  if (badge.shown.wrong > 0) return "bad";
  return badge.shown.right == 0 ? "none" : "other";
}

std::string words_of(const ServedCounts& counts) {
  std::string text;
  for (size_t i = 0; i < kServedCount; ++i) {
    if (counts[i] == 0) continue;
    std::string name = served_name(static_cast<Served>(i));
    if (name == "not_run") name = "not run";
    text += (text.empty() ? "" : ", ") + std::to_string(counts[i]) + " " + name;
  }
  return text;
}

std::string heat_key() {
  const auto key = [](const char* css_class, const char* sign, const char* words) {
    return std::string("<span class=\"key ") + css_class + "\">" + sign + "</span>" + words +
           "<br>";
  };
  return "<p class=\"keys\">" + key("good", "12", "all 12 calls are right, on kernels") +
         key("part", "9/12", "9 are right; the backend does not claim the other calls") +
         key("other", "F3/12", "3 are right only by the host or by a decomposition") +
         key("none", "-", "the backend claims no call; ?: did not run") +
         key("bad", "W1/12", "1 is wrong; M: missing, U: works and is not claimed, C: crashed") +
         "</p>\n";
}

std::string standing_text(const ProfileStanding& profile) {
  std::string text = std::string(profile.state());
  const char* separator = ": ";
  const auto add = [&](size_t count, const char* word) {
    if (count == 0) return;
    text += separator + std::to_string(count) + " " + word;
    separator = ", ";
  };
  add(profile.shown.right, "right");
  add(profile.shown.wrong, "wrong");
  add(profile.shown.served, "by the host or decomposed");
  add(profile.shown.refused, "not claimed");
  add(profile.shown.waived, "waived");
  add(profile.shown.not_run, "not run");
  return text;
}

const nlohmann::json* target_of(const nlohmann::json& hello) {
  if (!hello.is_object() || !hello.contains("targets")) return nullptr;
  const size_t at = hello.value("target", size_t{0});
  return at < hello.at("targets").size() ? &hello.at("targets").at(at) : nullptr;
}

std::string device_name(const nlohmann::json& hello) {
  const nlohmann::json* target = target_of(hello);
  if (target == nullptr) return "unknown device";
  return target->value("name", "") + ": " + target->value("device", "");
}

std::string memory_text(const nlohmann::json& hello) {
  const nlohmann::json* target = target_of(hello);
  if (target == nullptr) return "unknown";
  std::string text;
  for (const nlohmann::json& heap : target->at("heaps")) {
    text += (text.empty() ? "" : "; ") + bytes_text(heap.at("size_bytes").get<double>());
    std::string flags;
    for (const nlohmann::json& flag : heap.value("flags", nlohmann::json::array())) {
      std::string name = flag.get<std::string>();
      for (char& c : name) c = c == '_' ? ' ' : c;
      flags += (flags.empty() ? " (" : ", ") + name;
    }
    if (!flags.empty()) text += flags + ")";
  }
  return text.empty() ? "no heap" : text;
}

}  // namespace bp::conformance
