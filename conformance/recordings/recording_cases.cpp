#include "conformance/recordings/recording_cases.hpp"

#include <cstdio>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>

#include "conformance/recordings/player.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

// The state that the cases of one process share.
struct Playback {
  explicit Playback(const RecordingSource& source) : recording(source) {}

  Recording recording;
  std::unique_ptr<Player> player;
  std::string refusal;  // The reason why there is no player, once a case has reported it.
};

// Returns "replay.launch.00017.softmax", "replay.read.00003" or, for the last line, "replay.end";
// "" if the line is no case.
std::string case_id(const Recording& recording, size_t index) {
  const json& line = recording.lines()[index];
  if (!recording.is_judged(index)) return index + 1 < recording.lines().size() ? "" : "replay.end";
  const bool is_launch = line.at("call") == "kernel.launch";
  char text[64];
  std::snprintf(text, sizeof(text), is_launch ? "replay.launch.%05llu." : "replay.read.%05llu",
                line.at(is_launch ? "launch" : "read").get<unsigned long long>());
  return is_launch ? text + line.at("op").get<std::string>() : text;
}

void run_line(Context& t, Playback& playback, size_t line) {
  t.progress("replay");
  if (!playback.refusal.empty()) t.skip("not reached: " + playback.refusal);
  if (playback.player == nullptr) {
    try {
      playback.player = std::make_unique<Player>(playback.recording, t.target());
    } catch (const std::runtime_error& e) {
      playback.refusal = e.what();
      t.fail({playback.refusal, "devices", ""});
    }
  }
  const LineResult& result = playback.player->result_of(line);
  if (!result.kernel.empty()) t.detail("kernel", result.kernel);
  if (!result.checked.empty()) t.detail("checked", result.checked);
  if (!result.source.empty()) t.fallback(result.source);
  if (!result.why_fallback.empty()) t.detail(kWhyFallback, result.why_fallback);
  if (result.outcome == Outcome::kPass) return;
  if (result.outcome == Outcome::kSkip) t.skip(result.finding.message);
  if (result.outcome == Outcome::kMissing) t.missing(result.finding.message);
  t.fail(result.finding);
}

}  // namespace

CaseList recording_cases(const RecordingSource& source) {
  const auto playback = std::make_shared<Playback>(source);
  std::vector<Case> cases;
  std::set<std::string> ids;
  for (size_t i = 0; i < playback->recording.lines().size(); ++i) {
    Case made;
    made.id = case_id(playback->recording, i);
    if (made.id.empty()) continue;
    if (!ids.insert(made.id).second) {
      throw UsageError(playback->recording.place(i) + ": has the number of an earlier line");
    }
    made.group = "replay";
    made.run = [playback, i](Context& t) { run_line(t, *playback, i); };
    cases.push_back(std::move(made));
  }
  if (cases.empty() || cases.front().id == "replay.end") {
    throw UsageError(source.path + ": has no launch and no copy to the host that could be judged");
  }
  return CaseList(std::move(cases));
}

}  // namespace bp::conformance
