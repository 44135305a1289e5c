#include "registry/calls/runtime_ops.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "backplane/host.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/calls/runtime_op.hpp"

namespace bp::core {
namespace {

using Infer = decltype(bp_op_desc::infer);

// One description that has an owner.
struct Owner {
  uint64_t id = 0;
  uint32_t revision = 0;
  Infer infer = nullptr;
  void* state = nullptr;
};

// One name, which keeps its number for ever.
struct Slot {
  explicit Slot(std::string_view own_name) : name(own_name) {}

  const std::string name;
  std::atomic<const RuntimeOp*> row = nullptr;  // The longest description so far.
  // All descriptions. Calls on other threads may still read one that a longer one replaced.
  std::vector<std::unique_ptr<const RuntimeOp>> rows;
  std::atomic<uint32_t> owner_count = 0;
  std::atomic<const Owner*> inferring = nullptr;  // The owner whose infer() is called.
  std::atomic<uint32_t> caller_count = 0;         // Calls of infer() that run now.
  std::vector<std::unique_ptr<Owner>> owners;     // slots_mutex guards it.
};

// A slot is written once, before the count includes it. Slots are never freed: programs hold names
// and descriptions, also while they end.
constinit std::array<std::atomic<Slot*>, kMaxRuntimeOps> slots{};
constinit std::atomic<uint32_t> slot_count = 0;
constinit std::mutex slots_mutex;  // Guards all writes.
constinit uint64_t last_owner = 0;

Slot* slot_of(uint32_t op) {
  const uint32_t i = op - kFirstRuntimeOp;
  return i < slot_count.load(std::memory_order_acquire) ? slots[i].load(std::memory_order_relaxed)
                                                        : nullptr;
}

// Chooses the owner whose infer() serves, of the newest revision the one that came last, and waits
// until no call of the one before runs.
void choose_inferring_locked(Slot& slot) {
  const Owner* best = nullptr;
  for (const auto& owner : slot.owners) {
    if (owner->infer == nullptr) continue;
    if (best == nullptr || owner->revision >= best->revision) best = owner.get();
  }
  if (slot.inferring.exchange(best) == best) return;
  while (slot.caller_count.load() != 0) std::this_thread::yield();
}

// Returns the slot of a name. If there is none, makes one, or returns NULL if all are taken.
Slot* find_or_make_locked(std::string_view name, uint32_t* out_op) {
  const uint32_t count = slot_count.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    Slot* const slot = slots[i].load(std::memory_order_relaxed);
    if (slot->name == name) return *out_op = kFirstRuntimeOp + i, slot;
  }
  if (count == kMaxRuntimeOps) return nullptr;
  auto* const slot = new Slot(name);
  slots[count].store(slot, std::memory_order_relaxed);
  *out_op = kFirstRuntimeOp + count;
  return slot;
}

// Completes what depends on the number of an op.
void number(RuntimeOp& added, uint32_t op) {
  added.op = added.desc.op = added.check.op = op;
  added.index = static_cast<uint32_t>(op_rows().size()) + op - kFirstRuntimeOp;
}

// How deeply decompositions may nest, so that the stack of a launch has a bound.
constexpr uint32_t kMaxFormulaDepth = 8;

// Returns why decompositions would nest too deeply if op number `op` had the description `added`,
// or "". The depth of a decomposition that leads back to itself grows with each round.
std::string depth_defect_locked(uint32_t op, const RuntimeOp& added) {
  if (added.formula == nullptr || added.formula->called_ops.empty()) return "";
  std::vector<uint32_t> depths(kMaxRuntimeOps);
  const uint32_t count = slot_count.load(std::memory_order_relaxed);
  for (uint32_t round = 0; round <= kMaxFormulaDepth; ++round) {
    for (uint32_t i = 0; i <= count && i < kMaxRuntimeOps; ++i) {
      const RuntimeOp* row = &added;
      if (i + kFirstRuntimeOp != op) {
        row = i == count ? nullptr : slots[i].load()->row.load(std::memory_order_relaxed);
      }
      if (row == nullptr || row->formula == nullptr) continue;
      uint32_t depth = 0;
      for (const uint32_t callee : row->formula->called_ops) {
        depth = std::max(depth, depths[callee - kFirstRuntimeOp]);
      }
      depths[i] = depth + 1;
      if (depths[i] <= kMaxFormulaDepth) continue;
      return "its decomposition leads back to itself, or decompositions nest more than " +
             std::to_string(kMaxFormulaDepth) + " deep";
    }
  }
  return "";
}

// Gives a slot its first description, or a longer one. Returns why the description is incompatible
// with the one that the slot has, or "".
std::string describe_locked(Slot& slot, uint32_t op, std::unique_ptr<RuntimeOp> added) {
  const RuntimeOp* const known = slot.row.load(std::memory_order_relaxed);
  if (known != nullptr) {
    const bool is_longer = added->revision > known->revision;
    std::string defect = extension_defect(is_longer ? *known : *added, is_longer ? *added : *known);
    if (!defect.empty() || !is_longer) return defect;
  }
  std::string defect = depth_defect_locked(op, *added);
  if (!defect.empty()) return defect;
  number(*added, op);
  slot.rows.push_back(std::move(added));
  slot.row.store(slot.rows.back().get(), std::memory_order_release);
  return "";
}

}  // namespace

const OpRow* find_runtime_op(uint32_t op) {
  if (op < kFirstRuntimeOp) return nullptr;
  const Slot* const slot = slot_of(op);
  if (slot == nullptr || slot->owner_count.load(std::memory_order_acquire) == 0) return nullptr;
  return slot->row.load(std::memory_order_acquire);
}

const RuntimeOp& runtime_op(const OpRow& row) { return static_cast<const RuntimeOp&>(row); }

uint32_t runtime_op_number(std::string_view name) {
  const uint32_t count = slot_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    if (slots[i].load(std::memory_order_relaxed)->name == name) return kFirstRuntimeOp + i;
  }
  return 0;
}

const char* runtime_op_name(uint32_t op) {
  const Slot* const slot = op < kFirstRuntimeOp ? nullptr : slot_of(op);
  return slot == nullptr ? nullptr : slot->name.c_str();
}

std::vector<const OpRow*> runtime_op_rows() {
  std::vector<const OpRow*> rows;
  const uint32_t count = slot_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    const OpRow* const row = find_runtime_op(kFirstRuntimeOp + i);
    if (row != nullptr) rows.push_back(row);
  }
  return rows;
}

const bp_op_desc& runtime_desc(const OpRow& row) { return runtime_op(row).desc; }
std::span<const FrameMember> runtime_members(const OpRow& row) { return runtime_op(row).members; }

OwnedOps& OwnedOps::operator=(OwnedOps&& other) noexcept {
  std::swap(owned_, other.owned_);
  return *this;
}

std::string OwnedOps::add(const bp_op_desc& theirs, uint32_t* out_op) {
  std::string refusal;
  std::unique_ptr<RuntimeOp> added = read_runtime_op(theirs, refusal);
  if (added == nullptr) return refusal;
  auto owner = std::make_unique<Owner>();
  owner->revision = added->revision;
  owner->infer = theirs.infer;
  owner->state = theirs.state;
  owned_.reserve(owned_.size() + 1);
  const std::lock_guard lock(slots_mutex);
  uint32_t op = 0;
  Slot* const slot = find_or_make_locked(added->name, &op);
  if (slot == nullptr) {
    return "all " + std::to_string(kMaxRuntimeOps) + " numbers of this host are handed out";
  }
  slot->owners.reserve(slot->owners.size() + 1);
  refusal = describe_locked(*slot, op, std::move(added));
  if (!refusal.empty()) {
    const uint32_t index = op - kFirstRuntimeOp;
    // A slot that was made for the refused description is not numbered yet.
    if (index == slot_count.load()) delete slots[index].exchange(nullptr);
    return refusal;
  }
  slot_count.store(std::max(slot_count.load(), op - kFirstRuntimeOp + 1),
                   std::memory_order_release);
  owner->id = ++last_owner;
  owned_.push_back({op, owner->id});
  slot->owners.push_back(std::move(owner));
  choose_inferring_locked(*slot);
  slot->owner_count.fetch_add(1, std::memory_order_release);
  *out_op = op;
  return "";
}

void OwnedOps::end() {
  if (owned_.empty()) return;
  const std::lock_guard lock(slots_mutex);
  for (const auto& [op, id] : owned_) {
    Slot& slot = *slot_of(op);
    const auto found =
        std::ranges::find_if(slot.owners, [id = id](const auto& owner) { return owner->id == id; });
    slot.owner_count.fetch_sub(1, std::memory_order_release);
    const std::unique_ptr<Owner> ended = std::move(*found);
    slot.owners.erase(found);
    choose_inferring_locked(slot);
  }
  owned_.clear();
}

bp_status add_described_ops(
    OwnedOps& owned, const DescribedOps& described, uint32_t* out_ops,
    const std::function<void(uint64_t, const std::string&, const std::string&)>& report) {
  if (described.count != 0 && described.first == nullptr) {
    return fail(BP_INVALID_ARGUMENT, "add_ops: ops is NULL");
  }
  if (described.count > 1 && described.stride_bytes < sizeof(bp_struct_header)) {
    return fail(BP_INVALID_ARGUMENT, "add_ops: stride_bytes is " +
                                         std::to_string(described.stride_bytes) +
                                         ", less than the size of a description");
  }
  for (uint64_t i = 0; i < described.count; ++i) {
    const auto& desc = *reinterpret_cast<const bp_op_desc*>(
        reinterpret_cast<const char*>(described.first) + i * described.stride_bytes);
    uint32_t op = 0;
    const std::string refusal = owned.add(desc, &op);
    const char* const name = op == 0 ? nullptr : runtime_op_name(op);
    report(i, name == nullptr ? std::to_string(i) : name, refusal);
    if (out_ops != nullptr) out_ops[i] = op;
  }
  return BP_OK;
}

bp_status call_infer(const RuntimeOp& op, const void* frame, bp_op_output* out_outputs) {
  Slot& slot = *slot_of(op.op);
  slot.caller_count.fetch_add(1);
  const Owner* const owner = slot.inferring.load();
  bp_status status = BP_NOT_FOUND;
  if (owner != nullptr) {
    static_cast<void>(take_error());  // An earlier text is not that of infer().
    status = owner->infer(owner->state, frame, op.check.output_count, out_outputs);
  }
  slot.caller_count.fetch_sub(1);
  if (owner != nullptr) {
    if (status == BP_OK || *bp_error_text() != '\0') return status;
    return fail(status, slot.name + ": the infer() of its description failed without a text");
  }
  return fail(BP_NOT_FOUND, slot.name + ": nobody who infers its shapes is loaded any more");
}

}  // namespace bp::core
