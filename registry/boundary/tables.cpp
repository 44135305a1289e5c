// Stubs are made from the signatures in the headers. One list names the slots, and the compiler
// checks that it has as many slots as each table.
#include "registry/boundary/tables.hpp"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/boundary/prefix.hpp"

namespace bp::core {
namespace {

// A string that can be a template argument.
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

template <typename Table>
concept IsNamed = requires(Table table) {
  table.name;
};

// A name is in front of the slots.
template <typename Table, size_t kSlotCount>
constexpr bool lists_every_slot() {
  const size_t before = IsNamed<Table> ? 2 : 1;
  return sizeof(Table) == offsetof(Table, self) + sizeof(void*) * (before + kSlotCount);
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
#include "registry/boundary/slots.def"
  return count;
}

#define BP_TABLE(table, struct_type, last, member) \
  static_assert(lists_every_slot<table, slot_count<table>(#table)>());
#include "registry/boundary/slots.def"

// Does nothing unless `Table` is the table of the slot.
template <typename Table>
void fill_all(Table& ours, std::string& missing) {
#define BP_SLOT(table, noun, slot, presence, gone)                            \
  if constexpr (std::is_same_v<Table, table>) {                               \
    constexpr Text kText = #noun "." #slot " is not offered by this backend"; \
    fill<kText>(ours.slot, #noun "." #slot, Presence::presence, missing);     \
  }
#include "registry/boundary/slots.def"
}

template <typename Table>
void end_all(Table& ours) {
  ours.next = nullptr;  // Links are the backend's own.
#define BP_SLOT(table, noun, slot, presence, gone)                                           \
  if constexpr (std::is_same_v<Table, table>) {                                              \
    end_with_##gone<#noun "." #slot ": the backend of this device was unloaded">(ours.slot); \
  }
#include "registry/boundary/slots.def"
}

struct Release {
  uint32_t struct_type;
  size_t first_size_bytes;
};

// The size of the first release of `Table`.
template <typename Table>
constexpr Release release_of() {
  Release release{};
#define BP_TABLE(table, type, last, member)                        \
  if constexpr (std::is_same_v<Table, table>) {                    \
    release = {type, offsetof(table, last) + sizeof(table::last)}; \
  }
#include "registry/boundary/slots.def"
  return release;
}

// first_size_bytes is the end of the last member of the first release. It must not grow when the
// struct does.
template <typename Table>
std::string copy(const Table* theirs, uint32_t struct_type, size_t first_size_bytes, Table& ours,
                 std::string& missing) {
  const auto first = static_cast<uint32_t>(first_size_bytes);
  std::string defect = struct_defect(theirs, struct_type, first);
  if (!defect.empty()) return defect;
  // This cannot fail, since the size was checked before.
  static_cast<void>(bp_struct_read(theirs, first, &ours, sizeof(ours), nullptr));
  if constexpr (IsNamed<Table>) {
    if (!is_word(ours.name)) {
      return "its name is " +
             (ours.name == nullptr ? "NULL" : "\"" + clean_name(ours.name) + "\"") +
             ", not one or more of [a-z0-9_]";
    }
  }
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
    return "struct_size is " + std::to_string(header->struct_size) + ", its first release has " +
           std::to_string(first_size_bytes);
  }
  if (header->struct_size > kMaxStructBytes) {
    return "struct_size is " + std::to_string(header->struct_size) + ", allowed are at most " +
           std::to_string(kMaxStructBytes);
  }
  uint32_t link_count = 0;
  for (const void* link = header->next; link != nullptr;) {
    const auto* node = static_cast<const bp_struct_header*>(link);
    if (++link_count > kMaxLinks) {
      return "its chain has more than " + std::to_string(kMaxLinks) +
             " links, or leads back into itself";
    }
    if ((node->struct_type & BP_STRUCT_MUST_UNDERSTAND) != 0) {
      return "it has a link of type " +
             std::to_string(node->struct_type & ~BP_STRUCT_MUST_UNDERSTAND) +
             " that must be understood, and this host does not know it";
    }
    link = node->next;
  }
  return "";
}

template <typename Table>
std::string copy_table(const Table* theirs, Table& ours, std::string& missing) {
  constexpr Release kRelease = release_of<Table>();
  return copy(theirs, kRelease.struct_type, kRelease.first_size_bytes, ours, missing);
}

#define BP_TABLE(table, struct_type, last, member) \
  template std::string copy_table(const table* theirs, table& ours, std::string& missing);
#include "registry/boundary/slots.def"

uint64_t added_tables(const Tables& tables) {
  uint64_t mask = 0;
#define BP_TABLE(table, struct_type, last, member) \
  if (tables.member.struct_size != 0) mask |= uint64_t{1} << (struct_type);
#include "registry/boundary/slots.def"
  return mask;
}

void fill_absent_tables(Tables& tables) {
  std::string ignored;
  if (tables.process_groups.struct_size == 0) tables.process_groups.name = "";
#define BP_TABLE(table, type, last, member)            \
  if (tables.member.struct_size == 0) {                \
    fill_all(tables.member, ignored);                  \
    tables.member.struct_size = sizeof(tables.member); \
    tables.member.struct_type = type;                  \
  }
#include "registry/boundary/slots.def"
}

void end_tables(Tables& tables) {
#define BP_TABLE(table, struct_type, last, member) end_all(tables.member);
#include "registry/boundary/slots.def"
  for (bp_process_group_ops& groups : tables.more_process_groups) end_all(groups);
}

}  // namespace bp::core
