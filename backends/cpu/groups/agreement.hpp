// What each rank tells all others of its call, so that ranks which call different things are told.
#pragma once

#include "backends/cpu/groups/exchange.hpp"
#include "backends/cpu/groups/job.hpp"

namespace bp::cpu {

// The descriptions of one call. Functions throw StatusError.
//
// Each description has room for some data. It goes with every call, whatever it is, since Gloo
// delivers no message whose size its receiver did not expect. An all_reduce that has no more data
// takes one message to each rank.
class Agreement {
 public:
  // Begins to send the description of the call. The job must live as long as the agreement.
  explicit Agreement(const Job& job);

  // Waits for the descriptions of the others. Throws StatusError of BP_INVALID_ARGUMENT if one of
  // them calls something else.
  void settle();

  // Settles, and waits until the others can read the description of this rank.
  void finish();

  // Returns whether all data of a call goes with the descriptions.
  static bool has_all_data(const RankCall& call);

  // Settles, and reduces the data that came with the descriptions.
  void reduce();

 private:
  std::vector<std::byte> descriptions() const;

  const Job& job_;
  const size_t item_bytes_;
  Exchange exchange_;
  bool is_settled_ = false;
};

}  // namespace bp::cpu
