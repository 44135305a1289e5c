// The rules by which a fault is judged:
//
//   1  Each rank that lives ends within timeout and grace, and its process ends well.
//   2  No rank reports a success with wrong data. Ranks that disagree are told: one of them fails.
//   3  A wait for a rank that is gone ends with BP_TIMEOUT or BP_ABORTED as the failure of the
//      stream, and status() of the group gives a failure too ([COLLECTIVE-3]).
//   4  create() makes the group on all ranks or on none ([COLLECTIVE-6]).
//   5  After an abort every rank gets BP_ABORTED, now and later ([COLLECTIVE-10]).
//   6  A new group under another prefix works in the processes that are left.
//   7  Nothing is left behind.
//
// A text that names neither the rank nor the difference is a QualityWarning.
#include "conformance/dist/fault.hpp"

#include <algorithm>
#include <cctype>

#include "backplane/host.h"
#include "registry/boundary/number_text.hpp"

namespace bp::conformance::dist {
namespace {

constexpr FaultRow kRows[] = {
    {Fault::kLate, "late", "comes late, within the timeout", false},
    {Fault::kAbsent, "absent", "does not submit its call", true},
    {Fault::kStopped, "stopped", "is stopped before its call", true},
    {Fault::kDead, "dead", "dies before its call", true},
    {Fault::kDeadInCall, "dead_in_call", "dies in the middle of calls", true},
    {Fault::kOtherCount, "other_count", "gives another count", false},
    {Fault::kOtherDtype, "other_dtype", "gives another dtype", false},
    {Fault::kOtherReduction, "other_reduction", "gives another reduction", false},
    {Fault::kOtherKind, "other_kind", "submits another kind of call", false},
    {Fault::kOtherRoot, "other_root", "gives another root", false},
    {Fault::kOtherOrder, "other_order", "submits two calls in another order", false},
    {Fault::kOtherSize, "other_world_size", "gives create() another number of ranks", false},
    {Fault::kNeverComes, "never_comes", "does not call create()", true},
    {Fault::kAbort, "abort", "is waited for when another rank aborts", false},
};

bool is_one_of(bp_status status, std::initializer_list<bp_status> allowed) {
  return std::ranges::find(allowed, status) != allowed.end();
}

// Returns whether `text` has the word, which has no letter or digit before or behind it.
bool has_word(std::string_view text, std::string_view word) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !is_part(text[at - 1]);
    if (begins && (end == text.size() || !is_part(text[end]))) return true;
  }
  return false;
}

// The words of a difference: what differs, and its two sides by name and by number.
struct Difference {
  const char* noun;
  const char* sides[2][2];
};

const Difference* difference_of(Fault fault) {
  static constexpr Difference kCount = {"", {{"1000", "1000"}, {"999", "999"}}};
  static constexpr Difference kDtype = {"dtype", {{"f32", "14"}, {"i32", "6"}}};
  static constexpr Difference kReduction = {"reduction", {{"sum", "1"}, {"max", "4"}}};
  static constexpr Difference kKind = {"", {{"all_reduce", "kind 1"}, {"broadcast", "kind 3"}}};
  static constexpr Difference kRoot = {"root", {{"root 0", "0"}, {"root 1", "1"}}};
  switch (fault) {
    case Fault::kOtherCount:
      return &kCount;
    case Fault::kOtherDtype:
      return &kDtype;
    case Fault::kOtherReduction:
    case Fault::kOtherOrder:
      return &kReduction;
    case Fault::kOtherKind:
      return &kKind;
    case Fault::kOtherRoot:
      return &kRoot;
    default:
      return nullptr;
  }
}

bool names_difference(std::string_view text, const Difference& difference) {
  const auto names = [&](size_t form) {
    return has_word(text, difference.sides[0][form]) && has_word(text, difference.sides[1][form]);
  };
  // A number says nothing without the noun.
  const bool has_noun = *difference.noun == 0 || has_word(text, difference.noun);
  return names(0) || (has_noun && names(1));
}

class Judge {
 public:
  Judge(const FaultCase& fault, const std::vector<Story>& ranks) : case_(fault), ranks_(ranks) {}

  FaultVerdict judge() {
    for (const Story& story : ranks_) {
      if (!story.skip.empty()) return {Outcome::kNotSupported, story.skip, {}};
    }
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) judge_life(rank);
    judge_create();
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) judge_rank(rank);
    if (is_mismatch(case_.fault)) judge_mismatch();
    if (verdict_.outcome == Outcome::kPass) judge_texts();
    return std::move(verdict_);
  }

 private:
  void fail(std::string text, Outcome outcome = Outcome::kFail) {
    const bool is_first =
        verdict_.outcome == Outcome::kPass || verdict_.outcome == Outcome::kQualityWarning;
    if (is_first) {
      if (!verdict_.text.empty()) verdict_.notes.insert(verdict_.notes.begin(), verdict_.text);
      verdict_.outcome = outcome;
      verdict_.text = std::move(text);
    } else {
      verdict_.notes.push_back(std::move(text));
    }
  }

  void warn(std::string text) {
    if (verdict_.outcome == Outcome::kPass) {
      verdict_.outcome = Outcome::kQualityWarning;
      verdict_.text = std::move(text);
    } else {
      verdict_.notes.push_back(std::move(text));
    }
  }

  static std::string name_of(uint32_t rank) { return "rank " + std::to_string(rank); }
  bool is_gone(uint32_t rank) const { return rank == case_.victim && ends_victim(case_.fault); }
  double limit() const { return case_.timeout_seconds + case_.grace_seconds; }

  const Step* step(uint32_t rank, const char* name) const {
    const auto found = ranks_[rank].steps.find(name);
    return found == ranks_[rank].steps.end() ? nullptr : &found->second;
  }

  void judge_life(uint32_t rank) {
    const Story& story = ranks_[rank];
    if (is_gone(rank)) return;
    if (story.is_killed) {
      fail(name_of(rank) + " did not end: " + story.end, Outcome::kTimeout);
    } else if (!story.is_done) {
      fail(name_of(rank) + ": " + story.end, Outcome::kCrash);
    }
    for (const auto& [name, s] : story.steps) {
      // Ranks reach the group before the fault at different times.
      if (name == "warm" || s.seconds <= limit() + 0.5) continue;
      fail(name_of(rank) + " ended '" + name + "' after " + fixed_text(s.seconds, 1) +
           " s; the timeout is " + short_text(case_.timeout_seconds) + " s, with " +
           short_text(case_.grace_seconds) + " s of grace");
    }
    for (const std::string& left : story.left) {
      fail(name_of(rank) + " holds more behind destroy() than before create(): " + left);
    }
  }

  bool has_failing_create() const {
    return case_.fault == Fault::kOtherSize || case_.fault == Fault::kNeverComes;
  }

  void judge_create() {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const Step* const create = step(rank, "create");
      if (create == nullptr) continue;
      if (!has_failing_create()) {
        if (create->status != BP_OK) fail(name_of(rank) + ": create: " + create->text);
        continue;
      }
      if (create->status == BP_OK) {
        fail("create() made a group on " + name_of(rank) + ", although " + what());
      } else if (!is_one_of(create->status, {BP_TIMEOUT, BP_ABORTED, BP_INVALID_ARGUMENT})) {
        fail(name_of(rank) + ": create: " + create->text +
             "; allowed: BP_TIMEOUT, BP_ABORTED or BP_INVALID_ARGUMENT");
      }
    }
  }

  std::string what() const {
    const auto row = std::ranges::find(kRows, case_.fault, &FaultRow::fault);
    return name_of(case_.victim) + " " + row->what;
  }

  void judge_rank(uint32_t rank) {
    if (is_gone(rank)) return;
    const Step *const submit = step(rank, "submit"), *const stream = step(rank, "stream"),
                      *const data = step(rank, "data"), *const again = step(rank, "again");
    if (data != nullptr && !data->is_right) {
      fail(name_of(rank) + " reports success with wrong data: " + data->text);
    }
    if (again != nullptr && again->status != BP_OK) {
      fail(name_of(rank) + ": a new group behind the fault: " + again->text);
    }
    if (const Step* const destroy = step(rank, "destroy"); destroy && destroy->status != BP_OK) {
      fail(name_of(rank) + ": destroy: " + destroy->text);
    }
    if (submit == nullptr) return;
    const bool is_refused = submit->status != BP_OK;
    const Step* const end = is_refused ? submit : stream;
    if (end == nullptr) return;
    if (case_.fault == Fault::kLate) {
      if (end->status != BP_OK) fail(name_of(rank) + " of a late rank's group: " + end->text);
      return;
    }
    if (case_.fault == Fault::kAbort) return judge_abort(rank, *end);
    if (is_mismatch(case_.fault)) {
      if (is_one_of(end->status, {BP_INTERNAL, BP_DEVICE_LOST, BP_OUT_OF_MEMORY})) {
        fail(name_of(rank) + ", where " + what() + ": " + end->text);
      }
      return;
    }
    if (rank == case_.victim) return;
    judge_wait(rank, *end);
  }

  // Rule 3.
  void judge_wait(uint32_t rank, const Step& end) {
    if (end.status == BP_OK) {
      fail(name_of(rank) + " reports success, although " + what());
    } else if (!is_one_of(end.status, {BP_TIMEOUT, BP_ABORTED})) {
      fail(name_of(rank) + ", where " + what() + ": " + end.text +
           "; allowed: BP_TIMEOUT or BP_ABORTED");
    }
    const Step* const status = step(rank, "status");
    if (status != nullptr && status->status == BP_OK && end.status != BP_OK) {
      fail(name_of(rank) + ": status() of the group is BP_OK after the failure of the stream");
    }
  }

  // Rule 5.
  void judge_abort(uint32_t rank, const Step& end) {
    const auto expect = [&](const Step* s, const char* what) {
      if (s == nullptr || s->status == BP_ABORTED) return;
      fail(name_of(rank) + ": " + what + " after an abort: " +
           (s->status == BP_OK ? "BP_OK" : s->text) + "; allowed: BP_ABORTED");
    };
    expect(&end, "the call");
    expect(step(rank, "status"), "status()");
    expect(step(rank, "later"), "a later call");
    const Step* const abort = step(rank, "abort");
    if (abort == nullptr) return;
    if (abort->status != BP_OK) fail(name_of(rank) + ": abort: " + abort->text);
    if (abort->seconds > 1) {
      warn(name_of(rank) + ": abort() took " + fixed_text(abort->seconds, 1) +
           " s; it never waits");
    }
  }

  // Rule 2.
  void judge_mismatch() {
    size_t succeeded = 0;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const Step *const submit = step(rank, "submit"), *const stream = step(rank, "stream");
      succeeded += submit != nullptr && submit->status == BP_OK && stream != nullptr &&
                   stream->status == BP_OK;
    }
    if (succeeded == ranks_.size()) fail("all ranks report success, although " + what());
  }

  // Returns all texts of failures of a rank.
  std::string texts_of(uint32_t rank) const {
    std::string texts;
    for (const char* name : {"create", "submit", "stream", "status"}) {
      const Step* const s = step(rank, name);
      if (s != nullptr && s->status != BP_OK) texts += s->text + "\n";
    }
    return texts;
  }

  void judge_texts() {
    if (case_.fault == Fault::kLate || case_.fault == Fault::kAbort) return;
    const Difference* const difference = difference_of(case_.fault);
    bool is_any_named = false;
    std::string sample;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::string texts = texts_of(rank);
      if (texts.empty() || rank == case_.victim) continue;
      sample = texts.substr(0, texts.find('\n'));
      if (difference != nullptr) {
        is_any_named |= names_difference(texts, *difference);
      } else if (case_.fault == Fault::kOtherSize) {
        is_any_named |= has_word(texts, std::to_string(case_.world_size + 1));
      } else if (!names_rank(texts, case_.victim)) {
        warn("the text on " + name_of(rank) + " does not name " + name_of(case_.victim) + ": " +
             sample);
      }
    }
    const bool wants_difference = difference != nullptr || case_.fault == Fault::kOtherSize;
    if (!wants_difference || is_any_named) return;
    const std::string victims = texts_of(case_.victim);
    if (difference != nullptr && names_difference(victims, *difference)) return;
    if (sample.empty()) sample = victims.substr(0, victims.find('\n'));
    if (!sample.empty()) warn("no text names the difference: " + sample);
  }

  const FaultCase& case_;
  const std::vector<Story>& ranks_;
  FaultVerdict verdict_;
};

}  // namespace

std::span<const FaultRow> fault_rows() { return kRows; }

const FaultRow* find_fault(std::string_view name) {
  const auto* const found =
      std::ranges::find_if(kRows, [&](const FaultRow& row) { return name == row.name; });
  return found == std::end(kRows) ? nullptr : found;
}

bool is_mismatch(Fault fault) { return fault >= Fault::kOtherCount && fault <= Fault::kOtherOrder; }

bool ends_victim(Fault fault) { return fault == Fault::kDead || fault == Fault::kDeadInCall; }

bool names_rank(std::string_view text, uint32_t rank) {
  const bool has_noun = has_word(text, "rank") || has_word(text, "ranks");
  return has_noun && has_word(text, std::to_string(rank));
}

FaultVerdict judge_fault(const FaultCase& fault, const std::vector<Story>& ranks) {
  return Judge(fault, ranks).judge();
}

}  // namespace bp::conformance::dist
