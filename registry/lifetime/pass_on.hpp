// Lets the host put functions of its own in front of single functions of a backend's table. All
// other functions of the table pass their calls on.
#pragma once

#include <type_traits>

#include "registry/state/state.hpp"

namespace bp::core {

inline Target& target_of(void* self) { return *static_cast<Target*>(self); }

// Makes `slot` call the same slot of kNext, the table of the target that is `self`.
template <auto kNext, auto kSlot, typename... Args>
void pass_on(bp_status (*&slot)(void*, Args...)) {
  slot = [](void* self, Args... args) -> bp_status {
    const auto& next = target_of(self).*kNext;
    return (next.*kSlot)(next.self, args...);
  };
}

// Moves `table`, a table of `target`, to kNext, and makes every slot of `table` pass its calls on.
template <auto kNext, typename Table>
void pass_all_on(Target& target, Table& table) {
  target.*kNext = table;
  table.self = &target;
#define BP_SLOT(slot_table, noun, slot, presence, gone) \
  if constexpr (std::is_same_v<Table, slot_table>) pass_on<kNext, &slot_table::slot>(table.slot);
#include "registry/boundary/slots.def"
}

}  // namespace bp::core
