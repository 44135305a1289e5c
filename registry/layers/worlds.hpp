// Finds which bytes the calls of process groups touch, and what they order: a rank continues after
// the ranks that it hears from. The known ranks are those of one call of create(), split() or
// shrink(). Their order with ranks elsewhere is not seen.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "backplane/collective.h"
#include "registry/layers/hazards.hpp"

namespace bp::layers {

// Not thread-safe.
class Worlds {
 public:
  void create(const bp_process_group_desc& desc, bp_process_group* const* groups);
  // Adds the groups that split() and shrink() made of others. Ranks after a split are known if all
  // ranks are in this process, because only then are all colors known.
  void split(uint32_t count, bp_process_group* const* from, const uint32_t* colors,
             const uint32_t* keys, bp_process_group* const* groups);
  void shrink(uint32_t count, bp_process_group* const* from, uint32_t gone_count,
              const uint32_t* gone_ranks, bp_process_group* const* groups);
  void remove(bp_process_group* group) { members_.erase(group); }

  std::vector<Access> accesses(const bp_collective_call& call) const;

  // Notes that the call was submitted. `before` is one mark, like an event recorded on its stream
  // in front of it.
  void order(const bp_collective_call& call, std::list<char> before, Hazards& hazards);

 private:
  // The calls of ranks that belong together, until all ranks of this process have called.
  struct Round {
    std::list<char> marks;  // One for each sender; its address stands for an event.
    std::vector<bp_stream*> receivers;
    uint32_t call_count = 0;
  };
  // A send and its receive: from, to, and the number of the send.
  using Letter = std::tuple<uint32_t, uint32_t, uint64_t>;
  struct World {
    uint32_t local_count = 0;
    std::map<uint64_t, Round> rounds;  // Keyed by number.
    std::map<Letter, Round> letters;
    // The numbers of sends and receives, by from and to.
    std::map<std::pair<uint32_t, uint32_t>, std::array<uint64_t, 2>> letter_counts;
  };
  struct Member {
    std::shared_ptr<World> world;
    uint32_t rank, world_size;  // kUnknown if they are not known.
    uint64_t round_count = 0;
  };
  static constexpr uint32_t kUnknown = UINT32_MAX;

  // The sides that a call has.
  struct Sides {
    bool sends, receives;
  };
  static Sides sides_of(const bp_collective_call& call, const Member& member);
  // Returns true when `most` calls have come and the round is over.
  static bool join(Round& round, const bp_collective_call& call, Sides sides,
                   std::list<char>& before, uint32_t most, Hazards& hazards);
  static void order_letter(World& world, const Member& member, const bp_collective_call& call,
                           std::list<char>& before, Hazards& hazards);

  std::map<bp_process_group*, Member> members_;
};

}  // namespace bp::layers
