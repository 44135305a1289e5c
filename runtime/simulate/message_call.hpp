// A call as messages: which of them can leave, and which members are done.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "simulation/plans.hpp"

namespace bp::simulate {

class MessageCall {
 public:
  struct Sent {
    const Message* message;  // Of the plan.
    uint32_t number;
  };

  // `plan` must live as long as this object.
  MessageCall(const Plan& plan, uint32_t member_count);

  // Notes that a message has come.
  void end(uint32_t number);

  // Return the messages that leave now, and the members that have become done.
  std::vector<Sent> take_sent() { return std::exchange(sent_, {}); }
  std::vector<uint32_t> take_done() { return std::exchange(done_, {}); }
  bool is_done() const { return done_count_ == members_.size(); }

 private:
  struct Member {
    uint32_t round = 0;                     // Of all rounds, with repeats.
    uint32_t sending = 0;                   // Messages of this round that have not come.
    std::map<uint32_t, uint32_t> received;  // By round: a neighbour can be ahead.
  };
  struct Part {  // What a member does in a round of the plan.
    std::vector<const Message*> sends;
    uint32_t receive_count = 0;
  };
  struct Flight {
    uint32_t source, target, round;
  };

  void enter(uint32_t member);
  void leave_if_complete(uint32_t member);
  const Part& part(uint32_t member, uint32_t round) const {
    return parts_[round_of_plan_[round]][member];
  }

  std::vector<uint32_t> round_of_plan_;   // Of each round.
  std::vector<std::vector<Part>> parts_;  // Of each round of the plan and member.
  std::vector<Member> members_;
  std::vector<Flight> flights_;
  std::vector<Sent> sent_;
  std::vector<uint32_t> done_;
  size_t done_count_ = 0;
};

}  // namespace bp::simulate
