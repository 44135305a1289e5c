// Numbers and names the slots of every table, and replaces all of them at once.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "registry/layers/layer.hpp"

namespace bp::layers {

// memory_deallocate stands for bp_allocator_ops::deallocate. The functions of kernels come last.
enum class Slot : uint16_t {
#define BP_SLOT(table, noun, slot, presence, gone) noun##_##slot,
#include "registry/boundary/slots.def"
  kernel_supports,
  kernel_workspace_size,
  kernel_launch,
  kernel_prepare,
  kernel_plan_info,
  kernel_plan_pack,
  kernel_plan_release,
  kCount,
};

inline constexpr uint32_t kSlotCount = static_cast<uint32_t>(Slot::kCount);

// Returns text like "memory.deallocate".
std::string_view slot_name(Slot slot);

// The name of each slot of a table begins with its noun, such as "memory" for bp_allocator_ops.
template <typename Table>
constexpr std::string_view table_noun() {
#define BP_SLOT(table, noun, slot, presence, gone) \
  if constexpr (std::is_same_v<Table, table>) return #noun;
#include "registry/boundary/slots.def"
}

// Returns the names of a slot's arguments after self, as in the headers: "buffer, stream". The
// function is generated.
std::string_view slot_arguments(Slot slot);

// A slot of the side behind.
template <typename Table, auto kMember>
struct Behind {
  const Table& next;

  template <typename... Args>
  bp_status operator()(Args... args) const {
    return (next.*kMember)(next.self, args...);
  }
};

// The rest of a call. next() passes the call on as it came, and next.behind(...) with other
// arguments.
template <typename Function, typename... Args>
struct Next {
  Function behind;
  std::tuple<Args...> args;

  bp_status operator()() const { return std::apply(behind, args); }
};

// Makes `slot` call a member template of the layer:
//   template <Slot kSlot, typename Next, typename... Args>
//   bp_status around(Next next, Args... args)
template <typename L, typename Table, auto kMember, Slot kSlot, typename... Args>
void surround(bp_status (*&slot)(void*, Args...)) {
  if (slot == nullptr) return;
  slot = [](void* self, Args... args) noexcept -> bp_status {
    auto& wrapped = *static_cast<Wrapped<Table>*>(self);
    return core::guarded([&] {
      const Next<Behind<Table, kMember>, Args...> next{{wrapped.next}, {args...}};
      return static_cast<L&>(*wrapped.layer).template around<kSlot>(next, args...);
    });
  };
}

// Calls surround() for every slot of a table.
template <typename L, typename Table>
void surround_all(Wrapped<Table>& wrapped) {
#define BP_SLOT(slot_table, noun, slot, presence, gone)                             \
  if constexpr (std::is_same_v<Table, slot_table>) {                                \
    surround<L, Table, &slot_table::slot, Slot::noun##_##slot>(wrapped.table.slot); \
  }
#include "registry/boundary/slots.def"
}

// Does the same for the functions of a kernel that return a status:
//   template <Slot kSlot, typename Next, typename... Args>
//   bp_status around_kernel(const WrappedKernel& kernel, Next next, Args... args)
template <typename L, auto kMember, Slot kSlot, typename... Args>
void surround_kernel(bp_status (*&slot)(const bp_kernel*, Args...)) {
  if (slot == nullptr) return;
  slot = [](const bp_kernel* self, Args... args) noexcept -> bp_status {
    auto& wrapped = *static_cast<WrappedKernel*>(self->state);
    return core::guarded([&] {
      const auto next = [&] { return (wrapped.next->*kMember)(wrapped.next, args...); };
      return static_cast<L&>(*wrapped.layer).template around_kernel<kSlot>(wrapped, next, args...);
    });
  };
}

template <typename L>
void surround_all(WrappedKernel& wrapped) {
  bp_kernel& k = wrapped.kernel;
  surround_kernel<L, &bp_kernel::workspace_size, Slot::kernel_workspace_size>(k.workspace_size);
  surround_kernel<L, &bp_kernel::launch, Slot::kernel_launch>(k.launch);
  surround_kernel<L, &bp_kernel::prepare, Slot::kernel_prepare>(k.prepare);
  surround_kernel<L, &bp_kernel::plan_info, Slot::kernel_plan_info>(k.plan_info);
  surround_kernel<L, &bp_kernel::plan_pack, Slot::kernel_plan_pack>(k.plan_pack);
  surround_kernel<L, &bp_kernel::plan_release, Slot::kernel_plan_release>(k.plan_release);
}

}  // namespace bp::layers
