// Stubs are stamped from the signatures in the headers: one list names the slots, and the compiler
// checks that it has as many as each table.
#include "registry/tables.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "registry/error_slot.hpp"

namespace bp::core {
namespace {

// A string as a template argument.
template <size_t N>
struct Text {
  char data[N];
  // NOLINTNEXTLINE(google-explicit-constructor): string literals convert.
  constexpr Text(const char (&text)[N]) { std::copy_n(text, N, data); }
};

template <Text kText, typename... Args>
bp_status not_offered(void* /*self*/, Args... /*args*/) noexcept {
  return set_error(nullptr, BP_UNSUPPORTED, kText.data);
}

template <Text kText, typename... Args>
bp_status lost(void* /*self*/, Args... /*args*/) noexcept {
  return set_error(nullptr, BP_DEVICE_LOST, kText.data);
}

template <Text kText, typename... Args>
bp_status nothing(void* /*self*/, Args... /*args*/) noexcept {
  return BP_OK;
}

enum class Presence : uint8_t { needed, optional };

template <Text kText, typename... Args>
void fill(bp_status (*&slot)(void*, Args...), const char* name, Presence presence,
          std::string& missing) {
  if (slot != nullptr) return;
  slot = not_offered<kText, Args...>;
  if (presence == Presence::needed) missing += std::string(name) + " ";
}

template <Text kText, typename... Args>
void end_with_lost(bp_status (*&slot)(void*, Args...)) {
  slot = lost<kText, Args...>;
}

template <Text kText, typename... Args>
void end_with_nothing(bp_status (*&slot)(void*, Args...)) {
  slot = nothing<kText, Args...>;
}

template <typename Table, size_t kSlotCount>
constexpr bool lists_every_slot() {
  return sizeof(Table) == offsetof(Table, self) + sizeof(void*) * (1 + kSlotCount);
}

template <typename Table>
constexpr size_t slot_count(const char* table) {
  const auto is = [table](const char* other) {
    return std::char_traits<char>::length(table) == std::char_traits<char>::length(other) &&
           std::char_traits<char>::compare(table, other, std::char_traits<char>::length(table)) ==
               0;
  };
  size_t count = 0;
#define BP_SLOT(table, noun, slot, presence, gone) count += is(#table) ? 1 : 0;
#include "registry/slots.def"
#undef BP_SLOT
  return count;
}

static_assert(lists_every_slot<bp_device_ops, slot_count<bp_device_ops>("bp_device_ops")>());
static_assert(
    lists_every_slot<bp_allocator_ops, slot_count<bp_allocator_ops>("bp_allocator_ops")>());
static_assert(lists_every_slot<bp_stream_ops, slot_count<bp_stream_ops>("bp_stream_ops")>());
static_assert(lists_every_slot<bp_event_ops, slot_count<bp_event_ops>("bp_event_ops")>());

// Calls that do nothing unless `Table` is the table of the slot.
template <typename Table>
void fill_all(Table& ours, std::string& missing) {
#define BP_SLOT(table, noun, slot, presence, gone)                            \
  if constexpr (std::is_same_v<Table, table>) {                               \
    constexpr Text kText = #noun "." #slot " is not offered by this backend"; \
    fill<kText>(ours.slot, #noun "." #slot, Presence::presence, missing);     \
  }
#include "registry/slots.def"
#undef BP_SLOT
}

template <typename Table>
void end_all(Table& ours) {
#define BP_SLOT(table, noun, slot, presence, gone)                                           \
  if constexpr (std::is_same_v<Table, table>) {                                              \
    end_with_##gone<#noun "." #slot ": the backend of this device was unloaded">(ours.slot); \
  }
#include "registry/slots.def"
#undef BP_SLOT
}

// first_size_bytes is the end of the last member of the first release: it must not grow when the
// struct does.
template <typename Table>
std::string copy(const Table* theirs, uint32_t struct_type, size_t first_size_bytes, Table& ours,
                 std::string& missing) {
  const auto first = static_cast<uint32_t>(first_size_bytes);
  std::string defect = struct_defect(theirs, struct_type, first);
  if (!defect.empty()) return defect;
  // Cannot fail: the size was looked at.
  static_cast<void>(bp_struct_read(theirs, first, &ours, sizeof(ours), nullptr));
  fill_all(ours, missing);
  return "";
}

}  // namespace

std::string struct_defect(const void* entry, uint32_t struct_type, uint32_t first_size_bytes) {
  const auto* header = static_cast<const bp_struct_header*>(entry);
  if (header->struct_type != struct_type) {
    return "struct_type is " + std::to_string(header->struct_type) + ", expected " +
           std::to_string(struct_type);
  }
  if (header->struct_size < first_size_bytes) {
    return "struct_size is " + std::to_string(header->struct_size) + ", ABI 0.1 has " +
           std::to_string(first_size_bytes);
  }
  for (const void* link = header->next; link != nullptr;) {
    const auto* node = static_cast<const bp_struct_header*>(link);
    if ((node->struct_type & BP_STRUCT_MUST_UNDERSTAND) != 0) {
      return "it has a link of type " +
             std::to_string(node->struct_type & ~BP_STRUCT_MUST_UNDERSTAND) +
             " that must be understood, and this host does not know it";
    }
    link = node->next;
  }
  return "";
}

std::string copy_table(const bp_device_ops* theirs, bp_device_ops& ours, std::string& missing) {
  constexpr size_t kFirst = offsetof(bp_device_ops, set_option) + sizeof(void*);
  return copy(theirs, BP_STRUCT_DEVICE_OPS, kFirst, ours, missing);
}

std::string copy_table(const bp_allocator_ops* theirs, bp_allocator_ops& ours,
                       std::string& missing) {
  constexpr size_t kFirst = offsetof(bp_allocator_ops, fill) + sizeof(void*);
  return copy(theirs, BP_STRUCT_ALLOCATOR_OPS, kFirst, ours, missing);
}

std::string copy_table(const bp_stream_ops* theirs, bp_stream_ops& ours, std::string& missing) {
  constexpr size_t kFirst = offsetof(bp_stream_ops, add_callback) + sizeof(void*);
  return copy(theirs, BP_STRUCT_STREAM_OPS, kFirst, ours, missing);
}

std::string copy_table(const bp_event_ops* theirs, bp_event_ops& ours, std::string& missing) {
  constexpr size_t kFirst = offsetof(bp_event_ops, signal) + sizeof(void*);
  return copy(theirs, BP_STRUCT_EVENT_OPS, kFirst, ours, missing);
}

void end_table(bp_device_ops& table) { end_all(table); }
void end_table(bp_allocator_ops& table) { end_all(table); }
void end_table(bp_stream_ops& table) { end_all(table); }
void end_table(bp_event_ops& table) { end_all(table); }

}  // namespace bp::core
