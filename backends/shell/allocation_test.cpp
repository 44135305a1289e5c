// Tests the checks of requests for memory.
#include "backplane/shell/allocation.hpp"

#include <gtest/gtest.h>

#include <string>

#include "backplane/shell/properties.hpp"

namespace bp {
namespace {

// Returns the text with which `body` refuses, or "" if it returns.
template <typename Body>
std::string refusal_of(bp_status status, const Body& body) {
  try {
    body();
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), status) << e.what();
    return e.what();
  }
  return "";
}

bp_stream* some_stream() {
  static int place = 0;
  return reinterpret_cast<bp_stream*>(&place);
}

TEST(Allocation, TakesPowersOfTwoUpToAPageAsAlignment) {
  for (const uint64_t alignment : {0u, 1u, 2u, 64u, 4096u}) {
    EXPECT_NO_THROW(check_allocation({.alignment_bytes = alignment}, {})) << alignment;
  }
  for (const uint64_t alignment : {3u, 96u, 8192u}) {
    const auto check = [&] { check_allocation({.alignment_bytes = alignment}, {}); };
    EXPECT_EQ(refusal_of(BP_INVALID_ARGUMENT, check),
              "allocate: alignment_bytes is " + std::to_string(alignment) +
                  "; 0 and powers of two up to 4096 are allowed");
  }
}

TEST(Allocation, RefusesTheUsesThatTheDeviceDoesNotServe) {
  struct Row {
    bp_memory_usage usage;
    const char* UnservedUsages::*reason;
    const char* name;
  };
  for (const Row& row : {
           Row{BP_MEMORY_PEER, &UnservedUsages::peer, "BP_MEMORY_PEER"},
           Row{BP_MEMORY_STREAM_ORDERED, &UnservedUsages::stream_ordered,
               "BP_MEMORY_STREAM_ORDERED"},
           Row{BP_MEMORY_EXPORT, &UnservedUsages::exported, "BP_MEMORY_EXPORT"},
           Row{BP_MEMORY_COLLECTIVE, &UnservedUsages::collective, "BP_MEMORY_COLLECTIVE"},
       }) {
    const bp_allocate_desc desc{.usage = row.usage};
    EXPECT_NO_THROW(check_allocation(desc, {})) << row.name;
    UnservedUsages unserved;
    unserved.*row.reason = "the moon is full";
    EXPECT_EQ(refusal_of(BP_UNSUPPORTED, [&] { check_allocation(desc, unserved); }),
              std::string("allocate: usage has ") + row.name + ", and the moon is full");
    EXPECT_NO_THROW(check_allocation({}, unserved)) << row.name;
  }
}

TEST(Allocation, RefusesUsesThatNobodyKnowsOrThatExcludeEachOther) {
  EXPECT_EQ(refusal_of(BP_INVALID_ARGUMENT, [] { check_allocation({.usage = 1u << 31}, {}); }),
            "allocate: usage is 2147483648; the bits " +
                std::to_string(BP_MEMORY_PEER | BP_MEMORY_STREAM_ORDERED | BP_MEMORY_EXPORT |
                               BP_MEMORY_COLLECTIVE) +
                " are known");
  EXPECT_NE(
      refusal_of(
          BP_UNSUPPORTED,
          [] { check_allocation({.usage = BP_MEMORY_STREAM_ORDERED | BP_MEMORY_EXPORT}, {}); }),
      "");
}

TEST(Allocation, TakesAStreamOnlyForMemoryInTheOrderOfAStream) {
  EXPECT_NO_THROW(
      check_allocation({.stream = some_stream(), .usage = BP_MEMORY_STREAM_ORDERED}, {}));
  EXPECT_EQ(
      refusal_of(BP_INVALID_ARGUMENT, [] { check_allocation({.stream = some_stream()}, {}); }),
      "allocate: stream is given, and usage has no BP_MEMORY_STREAM_ORDERED");
}

TEST(Allocation, FindsTheFirstHeapOfTheMaskThatHasTheFlags) {
  const bp_heap heaps[] = {make_heap(10, BP_HEAP_DEVICE_LOCAL),
                           make_heap(20, BP_HEAP_DEVICE_LOCAL | BP_HEAP_HOST_VISIBLE)};
  const bp_device_properties device =
      make_properties("card", BP_DEVICE_SIMULATED, heaps, kDeviceDtypes);
  EXPECT_EQ(find_heap(device, {}), 0u);
  EXPECT_EQ(find_heap(device, {.heap_flags = BP_HEAP_HOST_VISIBLE}), 1u);
  EXPECT_EQ(find_heap(device, {.heap_mask = 0b10}), 1u);
  EXPECT_EQ(find_heap(device, {.heap_mask = 0b11, .heap_flags = BP_HEAP_DEVICE_LOCAL}), 0u);
  EXPECT_EQ(refusal_of(BP_INVALID_ARGUMENT, [&] { find_heap(device, {.heap_mask = 0b101}); }),
            "allocate: heap_mask is 5; the bits 3 stand for heaps");
  EXPECT_EQ(refusal_of(BP_INVALID_ARGUMENT, [] { check_heap_index(1, 1, "create"); }),
            "create: heap_index is 1; 0 is allowed");
  const bp_allocate_desc wrong{.heap_mask = 1, .heap_flags = BP_HEAP_HOST_VISIBLE};
  EXPECT_EQ(
      refusal_of(BP_NOT_FOUND, [&] { find_heap(device, wrong); }),
      "allocate: no heap that may be used has the flags " + std::to_string(BP_HEAP_HOST_VISIBLE));
}

TEST(Allocation, TakesSizeAndAlignmentFromALayout) {
  Layouts layouts({.host = nullptr, .identity = "rows 1", .facts_of = [](const LayoutForm&) {
                     return LayoutFacts{"rows", 96, 128};
                   }});
  const bp_layout* const layout = layouts.make({});
  bp_allocate_desc desc{.alignment_bytes = 64, .layout = layout};
  apply_layout(desc, layouts);
  EXPECT_EQ(desc.size_bytes, 96u);
  EXPECT_EQ(desc.alignment_bytes, 128u);
  bp_allocate_desc both{.size_bytes = 96, .layout = layout};
  EXPECT_EQ(refusal_of(BP_INVALID_ARGUMENT, [&] { apply_layout(both, layouts); }),
            "allocate: size_bytes is 96 and a layout is given, which has the size; 0 is allowed");
  bp_layout other = *layout;
  other.blob_size_bytes = 3;
  bp_allocate_desc foreign{.layout = &other};
  EXPECT_EQ(refusal_of(BP_INCOMPATIBLE, [&] { apply_layout(foreign, layouts); }),
            "allocate: layout: its blob: it has 3 bytes; one of rows 1 has 296");
  other.blob = nullptr;
  EXPECT_EQ(refusal_of(BP_INVALID_ARGUMENT, [&] { apply_layout(foreign, layouts); }),
            "allocate: layout: its blob is NULL");
}

TEST(Allocation, GivesAtMostWhatTheHeapGivesAtOnce) {
  const bp_heap heap = make_heap(10, 0);
  EXPECT_NO_THROW(check_size(heap, 10, "create"));
  EXPECT_EQ(refusal_of(BP_OUT_OF_MEMORY, [&] { check_size(heap, 11, "create"); }),
            "create: 11 bytes were asked for, and at most 10 are given at once");
}

}  // namespace
}  // namespace bp
