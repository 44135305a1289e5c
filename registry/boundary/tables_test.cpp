// Tests that tables of older and newer builds are read: each table of slots.def, cut behind each
// slot that a later release could have appended, and with a slot more than this build knows.
#include "registry/boundary/tables.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "backplane/host.h"

namespace bp::core {
namespace {

// A slot of a table, by its place.
struct Slot {
  const char* name;
  size_t offset;
};

template <typename Table>
std::vector<Slot> slots_of() {
  std::vector<Slot> slots;
#define BP_SLOT(table, noun, slot, presence, gone) \
  if constexpr (std::is_same_v<Table, table>) slots.push_back({#slot, offsetof(table, slot)});
#include "registry/boundary/slots.def"
  return slots;
}

// The end of the last slot of the first release.
template <typename Table>
size_t first_size_bytes() {
  size_t bytes = 0;
#define BP_TABLE(table, struct_type, last, member) \
  if constexpr (std::is_same_v<Table, table>) bytes = offsetof(table, last) + sizeof(void*);
#include "registry/boundary/slots.def"
  return bytes;
}

using AnySlot = void (*)();

// What no host calls in these tests. A name of a table of process groups is a text.
void never_called() {}

// A table as a backend of a later release has it.
template <typename Table>
struct Grown {
  Table table;
  AnySlot appended;
};

template <typename Table>
Grown<Table> grown_table(uint32_t struct_type) {
  Grown<Table> grown{};
  const AnySlot full = never_called;
  for (const Slot& slot : slots_of<Table>()) {
    std::memcpy(reinterpret_cast<std::byte*>(&grown.table) + slot.offset, &full, sizeof(full));
  }
  grown.appended = never_called;
  grown.table.struct_size = sizeof(grown);
  grown.table.struct_type = struct_type;
  if constexpr (requires { grown.table.name; }) grown.table.name = "local";
  return grown;
}

template <typename Table>
AnySlot at(const Table& table, const Slot& slot) {
  AnySlot value = nullptr;
  std::memcpy(&value, reinterpret_cast<const std::byte*>(&table) + slot.offset, sizeof(value));
  return value;
}

// Reads a table that ends at `size_bytes`, and checks each slot: the backend's own in front of the
// end, and a function of the host behind it.
template <typename Table>
void expect_cut(Grown<Table> grown, size_t size_bytes, const std::string& name) {
  grown.table.struct_size = static_cast<uint32_t>(size_bytes);
  Table ours{};
  std::string missing;
  ASSERT_EQ(copy_table(&grown.table, ours, missing), "") << name;
  EXPECT_EQ(ours.struct_size, sizeof(Table)) << name;
  for (const Slot& slot : slots_of<Table>()) {
    const AnySlot value = at(ours, slot);
    EXPECT_NE(value, nullptr) << name << "." << slot.name;
    EXPECT_EQ(value == never_called, slot.offset < size_bytes) << name << "." << slot.name;
  }
}

template <typename Table>
void expect_grows(const char* name, uint32_t struct_type) {
  const auto grown = grown_table<Table>(struct_type);
  expect_cut(grown, sizeof(grown), name);
  for (const Slot& slot : slots_of<Table>()) {
    if (slot.offset >= first_size_bytes<Table>()) expect_cut(grown, slot.offset, name);
  }
  Grown<Table> cut = grown;
  cut.table.struct_size = static_cast<uint32_t>(first_size_bytes<Table>() - sizeof(void*));
  Table ours{};
  std::string missing;
  EXPECT_NE(copy_table(&cut.table, ours, missing).find("its first release has"), std::string::npos)
      << name;
}

TEST(Tables, AreReadFromOlderAndNewerBuilds) {
#define BP_TABLE(table, struct_type, last, member) expect_grows<table>(#table, struct_type);
#include "registry/boundary/slots.def"
}

// [SIZE-2] What the host puts in place of a slot that an older backend lacks.
TEST(Tables, RefuseWhatAnOlderBackendLacks) {
  auto grown = grown_table<bp_stream_ops>(BP_STRUCT_STREAM_OPS);
  grown.table.struct_size = offsetof(bp_stream_ops, wrap_native);
  bp_stream_ops ours{};
  std::string missing;
  ASSERT_EQ(copy_table(&grown.table, ours, missing), "");
  EXPECT_EQ(missing, "") << "it may be absent";
  bp_error_clear();
  EXPECT_EQ(ours.wrap_native(ours.self, nullptr, nullptr, nullptr), BP_UNSUPPORTED);
  EXPECT_STREQ(bp_error_text(), "stream.wrap_native is not offered by this backend");
}

}  // namespace
}  // namespace bp::core
