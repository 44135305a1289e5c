#include "runtime/simulate/message_call.hpp"

namespace bp::simulate {

MessageCall::MessageCall(const Plan& plan, uint32_t member_count) : members_(member_count) {
  for (const Round& round : plan.rounds) {
    std::vector<Part> parts(member_count);
    for (const Message& message : round.messages) {
      parts[message.source].sends.push_back(&message);
      ++parts[message.target].receive_count;
    }
    round_of_plan_.insert(round_of_plan_.end(), round.repeat, static_cast<uint32_t>(parts_.size()));
    parts_.push_back(std::move(parts));
  }
  for (uint32_t member = 0; member < member_count; ++member) enter(member);
}

// Sends the messages of the member's round, or ends the member. A round in which it does nothing
// is left at once.
void MessageCall::enter(uint32_t member) {
  Member& state = members_[member];
  if (state.round == round_of_plan_.size()) {
    done_.push_back(member);
    ++done_count_;
    return;
  }
  for (const Message* message : part(member, state.round).sends) {
    sent_.push_back({message, static_cast<uint32_t>(flights_.size())});
    flights_.push_back({message->source, message->target, state.round});
    ++state.sending;
  }
  leave_if_complete(member);
}

void MessageCall::leave_if_complete(uint32_t member) {
  Member& state = members_[member];
  if (state.round == round_of_plan_.size() || state.sending > 0) return;
  if (state.received[state.round] < part(member, state.round).receive_count) return;
  state.received.erase(state.round);
  ++state.round;
  enter(member);
}

void MessageCall::end(uint32_t number) {
  const Flight flight = flights_[number];
  --members_[flight.source].sending;
  ++members_[flight.target].received[flight.round];
  leave_if_complete(flight.source);
  leave_if_complete(flight.target);
}

}  // namespace bp::simulate
