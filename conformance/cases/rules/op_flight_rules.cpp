// Cases for launches beside each other: two in flight, two from other threads, and one after a
// launch of the same shapes with other attributes. Each must give its own results. There is one
// case of each kind for every op, over one plain row of each dtype.
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "conformance/cases/engine/launch_watch.hpp"
#include "conformance/cases/engine/op_engine.hpp"
#include "conformance/cases/engine/op_flight.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/rules/rules.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kOtherData = 0x9E3779B97F4A7C15u;

// Two calls of one row on other data, each on its own stream.
class Pair {
 public:
  Pair(Context& t, const OpCase& row)
      : t_(t),
        row_(row),
        flights_{std::make_unique<Flight>(t, row, CallData(row, t.seed())),
                 std::make_unique<Flight>(t, row, CallData(row, t.seed() ^ kOtherData))} {}

  bool has_kernel() const { return flights_[0]->kernel() != nullptr; }
  Flight& operator[](size_t i) { return *flights_[i]; }

  // Makes both launches use one plan, if the kernel makes one.
  void share_plan() {
    plan_ = flights_[0]->make_plan();
    for (const auto& flight : flights_) flight->use(plan_.get());
  }

  void prepare() {
    flights_[0]->prepare(Poison::kNan);
    flights_[1]->prepare(Poison::kOnes);
    for (const auto& flight : flights_) finish(t_, flight->stream());
  }

  void launch(size_t i) {
    statuses_[i] = flights_[i]->launch();
    if (statuses_[i] != BP_OK) texts_[i] = bp_error_text();
    bp_error_clear();
  }

  void land(const char* when) {
    for (size_t i = 0; i < 2; ++i) {
      const Verdict verdict = flights_[i]->land(statuses_[i], texts_[i]);
      if (verdict.is_right()) continue;
      t_.fail({row_.id() + ", " + when + ": " + verdict.message, verdict.cause, "KERNEL-8"});
    }
  }

 private:
  Context& t_;
  const OpCase& row_;
  std::unique_ptr<OwnPlan> plan_;
  std::array<std::unique_ptr<Flight>, 2> flights_;
  std::array<bp_status, 2> statuses_{};
  std::array<std::string, 2> texts_;
};

// Returns a gate, or nothing if the device has no host-signalled events.
std::unique_ptr<Gate> gate_of(Context& t) {
  return can_hold_streams(t) ? std::make_unique<Gate>(t) : nullptr;
}

int64_t largest_of(const OpCase& row) {
  int64_t largest = 0;
  for (const TensorArgument& argument : row.tensors) {
    largest = std::max(largest, element_count(argument.shape));
  }
  return largest;
}

// Returns the rows with the largest first, but those that take long at the end. Launches of a few
// elements hardly meet.
std::vector<const OpCase*> largest_first(const OpCases& rows) {
  constexpr int64_t kLong = int64_t{1} << 14;
  std::vector<const OpCase*> sorted;
  for (const OpCase& row : rows) sorted.push_back(&row);
  const auto place = [](const OpCase* row) {
    const int64_t largest = largest_of(*row);
    return largest > kLong ? kLong - largest : largest;
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const OpCase* a, const OpCase* b) { return place(a) > place(b); });
  return sorted;
}

// Calls work(pair) for one row of each dtype that a kernel of the backend takes.
template <typename Work>
void for_each_pair(Context& t, const OpCases& rows, Work work) {
  std::set<std::string> seen;
  size_t count = 0;
  for (const OpCase* const row : largest_first(rows)) {
    if (!is_listed(t, *row) || seen.count(row->dtype) != 0) continue;
    t.begin_part(row->id());
    Pair pair(t, *row);
    if (!pair.has_kernel()) continue;
    seen.insert(row->dtype);
    ++count;
    work(pair);
  }
  if (count == 0) t.not_supported("the backend has no kernel for these calls");
  t.metric("pairs", static_cast<double>(count));
}

// Both launches are submitted before the work of either begins.
void launches_in_flight_keep_apart(Context& t, const OpCases& rows) {
  for_each_pair(t, rows, [&](Pair& pair) {
    pair.share_plan();
    pair.prepare();
    const std::unique_ptr<Gate> gate = gate_of(t);
    for (size_t i = 0; i < 2 && gate != nullptr; ++i) gate->hold(pair[i].stream());
    pair.launch(0);
    pair.launch(1);
    if (gate != nullptr) gate->open();
    pair.land("with another launch in flight");
  });
}

// Neither thread is the one that loaded the backend.
void launches_from_threads_keep_apart(Context& t, const OpCases& rows) {
  for_each_pair(t, rows, [&](Pair& pair) {
    pair.prepare();
    std::atomic<int> waiting = 2;
    const auto body = [&](size_t i) {
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      pair.launch(i);
    };
    std::thread first(body, 0), second(body, 1);
    first.join();
    second.join();
    pair.land("launched from another thread");
  });
}

// ---- Other attributes -------------------------------------------------------------------------

// Returns the shapes and dtypes of the tensors of the row.
std::string shapes_of(const OpCase& row) {
  std::string text = std::to_string(row.op);
  for (const TensorArgument& argument : row.tensors) {
    text += " " + std::string(argument.name) + ":" + dtype_text(argument.dtype) + ":" +
            shape_text(argument.shape) + layout_text(argument.layout);
  }
  return text;
}

std::string attributes_of(const OpCase& row) {
  std::string text;
  for (const Attribute& attribute : row.attributes) {
    text += " " + std::string(attribute.name) + "=";
    if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
      text += std::to_string(*integer);
    } else if (const auto* number = std::get_if<double>(&attribute.value)) {
      text += std::to_string(*number);
    } else if (const auto* list = std::get_if<Shape>(&attribute.value)) {
      text += shape_text(*list);
    } else {
      text += std::to_string(scalar_value(std::get<bp_scalar>(attribute.value)).hi);
    }
  }
  return text;
}

// Returns false if the backend has no kernel for the call.
bool check_alone(Context& t, const OpCase& row, const std::string& before) {
  Flight flight(t, row, CallData(row, t.seed()));
  if (flight.kernel() == nullptr) return false;
  flight.prepare(Poison::kNan);
  const bp_status status = flight.launch();
  const Verdict verdict = flight.land(status, status == BP_OK ? "" : bp_error_text());
  if (verdict.is_right()) return true;
  t.fail({row.id() + ", attributes" + attributes_of(row) + ", after a launch with" + before + ": " +
              verdict.message,
          verdict.cause, "KERNEL-8"});
}

// The rows have the same shapes and differ in attributes. The first is launched again at the end.
void other_attributes_give_other_results(Context& t, const OpCases& rows) {
  size_t launches = 0;
  std::string last = " nothing";
  for (size_t i = 0; i <= rows.size(); ++i) {
    const OpCase& row = rows[i % rows.size()];
    if (!is_listed(t, row)) continue;
    t.begin_part(row.id());
    if (!check_alone(t, row, last)) continue;
    ++launches;
    last = attributes_of(row);
  }
  if (launches < 3) t.not_supported("the backend has no kernels for two of these calls");
  t.metric("launches", static_cast<double>(launches));
}

// Returns two rows of the largest set with the same shapes and different attributes.
OpCases with_other_attributes(const OpCases& rows) {
  std::map<std::string, std::map<std::string, const OpCase*>> groups;
  for (const OpCase& row : rows) {
    if (is_plain(row)) groups[shapes_of(row)].emplace(attributes_of(row), &row);
  }
  const std::map<std::string, const OpCase*>* largest = nullptr;
  for (const auto& [shapes, group] : groups) {
    if (group.size() > 1 && (largest == nullptr || group.size() > largest->size())) {
      largest = &group;
    }
  }
  OpCases chosen;
  if (largest == nullptr) return chosen;
  for (const auto& [attributes, row] : *largest) {
    if (chosen.size() < 2) chosen.push_back(*row);
  }
  return chosen;
}

}  // namespace

void add_flight_rules(std::vector<Case>& cases, const OpCases& rows, const char* group) {
  add_promise(
      cases, rows, group,
      {"launches_in_flight_keep_apart", {"KERNEL-8", "PLAN-1"}, launches_in_flight_keep_apart});
  add_promise(cases, rows, group,
              {"launches_from_threads_keep_apart",
               {"KERNEL-8", "ERROR-1"},
               launches_from_threads_keep_apart});
  std::map<uint32_t, OpCases> by_op;
  for (const OpCase& row : rows) by_op[row.op].push_back(row);
  for (const auto& [op, of_op] : by_op) {
    add_promise(
        cases, with_other_attributes(of_op), group,
        {"other_attributes_give_other_results", {"KERNEL-8"}, other_attributes_give_other_results});
  }
}

}  // namespace bp::conformance
