// The simulation: a queue of the times at which operations end or latencies are over, and the
// transfers, which have a queue of their own.
#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>

#include "backplane/runtime/error.hpp"
#include "runtime/simulate/followers.hpp"
#include "runtime/simulate/message_call.hpp"
#include "runtime/simulate/schedule.hpp"

namespace bp::simulate {
namespace {

constexpr double kSame = 1e-12;

// A place in the schedule: a simulated rank, and an operation of its program.
struct Place {
  uint32_t rank, operation;
};

struct OpenCall {
  Call call;
  uint32_t group = 0;
  std::vector<Place> places;      // The ranks that have come.
  std::vector<uint32_t> members;  // Their numbers in the group.
  uint32_t expected = 0;
  std::unique_ptr<MessageCall> messages;  // With kMessages, from its begin to its end.
};

// The calls that ranks have made on one group, or between two of its members.
struct Channel {
  std::vector<uint64_t> counts;  // The calls that each member has made.
  std::deque<uint32_t> open;     // Indices of calls_, from call number `first` on.
  uint64_t first = 0;
};

class Simulation {
 public:
  Simulation(const Schedule& schedule, const Network& network, Fidelity fidelity)
      : s_(schedule),
        network_(network),
        fidelity_(fidelity),
        costs_(network),
        transfers_(network.bandwidths()) {
    check_ranks();
    for (const Program& program : s_.programs) followers_.push_back(followers_of(program));
    count_expected();
    timeline_.ranks.resize(s_.ranks.size());
    for (size_t r = 0; r < s_.ranks.size(); ++r) {
      timeline_.ranks[r].resize(program_of(r).operations.size(), {-1, -1});
      waits_.push_back(followers_[s_.ranks[r].program].wait_counts);
    }
  }

  Timeline run() {
    for (uint32_t r = 0; r < s_.ranks.size(); ++r) {
      for (uint32_t i = 0; i < waits_[r].size(); ++i) {
        if (waits_[r][i] == 0) ready_.push_back({r, i});
      }
    }
    start_ready();
    std::vector<uint64_t> ended;
    while (true) {
      const double of_transfers = transfers_.next_end();
      const double time =
          events_.empty() ? of_transfers : std::min(events_.top().time, of_transfers);
      if (time == kNever) break;
      now_ = time;
      while (!events_.empty() && events_.top().time <= now_ * (1 + kSame)) take_event();
      if (of_transfers <= now_ * (1 + kSame)) {
        ended.clear();
        transfers_.end_next(ended);
        for (const uint64_t tag : ended) end_transfer(tag);
      }
      start_ready();
    }
    check_all_ended();
    timeline_.step_seconds = now_;
    return std::move(timeline_);
  }

 private:
  // An operation ends, or (with a call) a latency is over and the transfer begins.
  struct TimedEvent {
    double time;
    Place place;
    uint64_t transfer;  // kNoTransfer for the end of an operation.
    bool operator>(const TimedEvent& other) const { return time > other.time; }
  };
  static constexpr uint64_t kNoTransfer = UINT64_MAX;

  const Program& program_of(size_t rank) const { return s_.programs[s_.ranks[rank].program]; }
  const Operation& at(Place place) const {
    return program_of(place.rank).operations[place.operation];
  }
  Interval& interval(Place place) { return timeline_.ranks[place.rank][place.operation]; }

  void check_ranks() const {
    const auto check = [&](uint32_t rank) {
      if (rank < network_.rank_count()) return;
      throw Error(BP_INVALID_ARGUMENT, "the schedule has rank " + std::to_string(rank) +
                                           ", and the network has " +
                                           std::to_string(network_.rank_count()) + " ranks");
    };
    for (const SimulatedRank& rank : s_.ranks) check(rank.rank);
    for (const Group& group : s_.groups) std::ranges::for_each(group.ranks, check);
  }

  void count_expected() {
    std::vector<bool> is_simulated(network_.rank_count());
    for (const SimulatedRank& rank : s_.ranks) is_simulated[rank.rank] = true;
    for (const Group& group : s_.groups) {
      expected_.push_back(static_cast<uint32_t>(
          std::ranges::count_if(group.ranks, [&](uint32_t rank) { return is_simulated[rank]; })));
      const bool is_whole = expected_.back() == group.ranks.size() && group.beside.empty();
      if (fidelity_ == Fidelity::kMessages && !is_whole) {
        throw Error(
            BP_INVALID_ARGUMENT,
            "simulate: a group has ranks that are not simulated; allowed with kCosts alone");
      }
    }
    channels_.resize(s_.groups.size());
  }

  void start_ready() {
    while (!ready_.empty()) {
      const Place place = ready_.back();
      ready_.pop_back();
      const Operation& operation = at(place);
      if (operation.kind != OperationKind::kCompute) {
        come(place);
        continue;
      }
      interval(place).begin = now_;
      const double seconds = operation.seconds * network_.slowdown(s_.ranks[place.rank].rank);
      events_.push({now_ + seconds, place, kNoTransfer});
    }
  }

  void take_event() {
    const TimedEvent event = events_.top();
    events_.pop();
    if (event.transfer == kNoTransfer) return end(event.place);
    Transfer transfer = std::move(delayed_.at(event.transfer));
    delayed_.erase(event.transfer);
    transfers_.add(now_, std::move(transfer));
  }

  void end(Place place) {
    interval(place).end = now_;
    for (const uint32_t follower : followers_[s_.ranks[place.rank].program].of[place.operation]) {
      if (--waits_[place.rank][follower] == 0) ready_.push_back({place.rank, follower});
    }
  }

  uint32_t member_of(const Group& group, uint32_t rank) const {
    const auto place = std::ranges::lower_bound(group.ranks, rank);
    if (place == group.ranks.end() || *place != rank) {
      throw Error(BP_INVALID_ARGUMENT,
                  "rank " + std::to_string(rank) + " calls on a group without it");
    }
    return static_cast<uint32_t>(place - group.ranks.begin());
  }

  // A rank makes its side of a call.
  void come(Place place) {
    const Operation& operation = at(place);
    const uint32_t group = s_.ranks[place.rank].groups.at(operation.axis);
    const uint32_t member = member_of(s_.groups[group], s_.ranks[place.rank].rank);
    Call call{operation.call, operation.bytes, operation.peer, 0};
    Channel* channel = &channels_[group];
    uint32_t expected = expected_[group];
    if (operation.kind != OperationKind::kCall) {
      const bool is_send = operation.kind == OperationKind::kSend;
      call = {CallKind::kSend, operation.bytes, is_send ? member : operation.peer,
              is_send ? operation.peer : member};
      channel = &pairs_[{group, call.source, call.target}];
      expected = 2;
    }
    const uint32_t number = open(*channel, member, call, group, expected);
    OpenCall& opened = calls_[number];
    check_agreement(opened, call, place);
    opened.places.push_back(place);
    opened.members.push_back(member);
    if (opened.places.size() == opened.expected) begin(number);
    while (!channel->open.empty() && has_begun(channel->open.front())) {
      channel->open.pop_front();
      ++channel->first;
    }
  }

  bool has_begun(uint32_t number) const {
    return calls_[number].expected == 0 || calls_[number].places.size() == calls_[number].expected;
  }

  // Returns the number of the call that the member makes next.
  uint32_t open(Channel& channel, uint32_t member, const Call& call, uint32_t group,
                uint32_t expected) {
    channel.counts.resize(std::max(channel.counts.size(), s_.groups[group].ranks.size()));
    const uint64_t index = channel.counts[member]++ - channel.first;
    if (index < channel.open.size()) return channel.open[index];
    uint32_t number = static_cast<uint32_t>(calls_.size());
    if (free_.empty()) {
      calls_.emplace_back();
    } else {
      number = free_.back();
      free_.pop_back();
    }
    calls_[number] = {.call = call, .group = group, .expected = expected};
    channel.open.push_back(number);
    return number;
  }

  std::string describe(Place place) const {
    const uint64_t line = at(place).line;
    return "operation " + std::to_string(place.operation) + " (" + name_of(s_, at(place)) +
           (line > 0 ? ", line " + std::to_string(line) + " of the recording" : "") + ") of rank " +
           std::to_string(s_.ranks[place.rank].rank);
  }

  void check_agreement(const OpenCall& opened, const Call& call, Place place) const {
    if (opened.call.kind == call.kind && opened.call.bytes == call.bytes &&
        opened.call.source == call.source) {
      return;
    }
    const auto text = [](const Call& of) {
      return std::string(call_name(of.kind)) + " of " + std::to_string(of.bytes) + " bytes";
    };
    const std::string other = opened.places.empty() ? "" : " of " + describe(opened.places[0]);
    throw Error(BP_INVALID_ARGUMENT, "ranks do not agree: " + describe(place) + " is " +
                                         text(call) + ", and the call" + other + " is " +
                                         text(opened.call));
  }

  void begin(uint32_t number) {
    OpenCall& opened = calls_[number];
    for (const Place place : opened.places) interval(place).begin = now_;
    const Group& group = s_.groups[opened.group];
    if (fidelity_ == Fidelity::kMessages) return begin_messages(number, group);
    const CallCost& cost = cost_of(opened.call, opened.group);
    Transfer transfer{.tag = number};
    if (cost.transfer_s > 0) {
      transfer.work = 1;
      transfer.loads = cost.loads;
      transfer.weight = transfer.max_rate = 1 / cost.transfer_s;
    }
    delay(cost.latency_s, std::move(transfer));
  }

  const CallCost& cost_of(const Call& call, uint32_t group) {
    auto& known = known_costs_[{group, call.kind, call.bytes, call.source, call.target}];
    if (known == nullptr) {
      known = std::make_unique<CallCost>(costs_.cost(call, s_.groups[group]));
      keep_near_links(*known, s_.groups[group]);
    }
    return *known;
  }

  // With ranks that stand for others, only links of simulated ranks are looked at: the others have
  // the same loads.
  void keep_near_links(CallCost& cost, const Group& group) {
    if (group.beside.empty() && expected_of_all() == network_.rank_count()) return;
    const std::vector<bool>& near = near_links();
    std::erase_if(cost.loads, [&](const Load& load) { return !near[load.link]; });
  }
  size_t expected_of_all() const { return s_.ranks.size(); }

  // The links of all messages between a simulated rank and another rank of its groups.
  const std::vector<bool>& near_links() {
    if (!near_.empty()) return near_;
    near_.resize(network_.bandwidths().size());
    Route route;
    for (const SimulatedRank& rank : s_.ranks) {
      for (const uint32_t group : rank.groups) {
        for (const uint32_t other : s_.groups[group].ranks) {
          network_.route(rank.rank, other, route);
          for (const uint32_t link : route.links) near_[link] = true;
          network_.route(other, rank.rank, route);
          for (const uint32_t link : route.links) near_[link] = true;
        }
      }
    }
    return near_;
  }

  void delay(double latency_s, Transfer transfer) {
    if (latency_s <= 0) return transfers_.add(now_, std::move(transfer));
    const uint64_t number = next_delayed_++;
    delayed_.emplace(number, std::move(transfer));
    events_.push({now_ + latency_s, {}, number});
  }

  // Ends the call of a tag, or with kMessages one of its messages.
  void end_transfer(uint64_t tag) {
    const auto number = static_cast<uint32_t>(tag);
    OpenCall& opened = calls_[number];
    if (opened.messages != nullptr) return end_message(number, static_cast<uint32_t>(tag >> 32));
    for (const Place place : opened.places) end(place);
    release(number);
  }

  void release(uint32_t number) {
    calls_[number] = {};
    free_.push_back(number);
  }

  void begin_messages(uint32_t number, const Group& group) {
    OpenCall& opened = calls_[number];
    opened.messages = std::make_unique<MessageCall>(costs_.plan(opened.call, group),
                                                    static_cast<uint32_t>(group.ranks.size()));
    send_next(number);
  }

  void end_message(uint32_t number, uint32_t message) {
    calls_[number].messages->end(message);
    send_next(number);
  }

  // Sends what can be sent, and ends the operations of the members that are done.
  void send_next(uint32_t number) {
    OpenCall& opened = calls_[number];
    Route route;
    const Group& group = s_.groups[opened.group];
    for (const MessageCall::Sent& sent : opened.messages->take_sent()) {
      network_.route(group.ranks[sent.message->source], group.ranks[sent.message->target], route);
      Transfer transfer{.work = sent.message->bytes, .tag = uint64_t{sent.number} << 32 | number};
      for (const uint32_t link : route.links) transfer.loads.push_back({link, 1});
      delay(route.latency_s, std::move(transfer));
    }
    for (const uint32_t member : opened.messages->take_done()) {
      for (size_t i = 0; i < opened.members.size(); ++i) {
        if (opened.members[i] == member) end(opened.places[i]);
      }
    }
    if (opened.messages->is_done()) release(number);
  }

  void check_all_ended() const {
    for (uint32_t r = 0; r < timeline_.ranks.size(); ++r) {
      for (uint32_t i = 0; i < timeline_.ranks[r].size(); ++i) {
        if (timeline_.ranks[r][i].end >= 0) continue;
        throw Error(BP_INVALID_ARGUMENT,
                    "ranks wait for ever: " + describe({r, i}) +
                        " never ends; its stream or another rank lacks what it waits for");
      }
    }
  }

  struct PairKey {
    uint32_t group, source, target;
    auto operator<=>(const PairKey&) const = default;
  };
  struct CostKey {
    uint32_t group;
    CallKind kind;
    double bytes;
    uint32_t source, target;
    auto operator<=>(const CostKey&) const = default;
  };

  const Schedule& s_;
  const Network& network_;
  const Fidelity fidelity_;
  Costs costs_;
  Transfers transfers_;
  std::vector<Followers> followers_;          // Of each program.
  std::vector<std::vector<uint32_t>> waits_;  // Of each rank and operation.
  std::vector<uint32_t> expected_;            // Of each group: how many of its ranks are simulated.
  std::vector<Channel> channels_;             // Of each group.
  std::map<PairKey, Channel> pairs_;
  std::map<CostKey, std::unique_ptr<CallCost>> known_costs_;
  std::vector<bool> near_;
  std::deque<OpenCall> calls_;
  std::vector<uint32_t> free_;
  std::vector<Place> ready_;
  std::priority_queue<TimedEvent, std::vector<TimedEvent>, std::greater<>> events_;
  std::unordered_map<uint64_t, Transfer> delayed_;  // Transfers whose latency is not over.
  uint64_t next_delayed_ = 0;
  double now_ = 0;
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const Schedule& schedule, const Network& network, Fidelity fidelity) {
  return Simulation(schedule, network, fidelity).run();
}

}  // namespace bp::simulate
