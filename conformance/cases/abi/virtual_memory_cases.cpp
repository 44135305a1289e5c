// Cases for api/include/backplane/virtual_memory.h.
#include <algorithm>
#include <bit>
#include <utility>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"

namespace bp::conformance {
namespace {

struct RangeEnd {
  const bp_virtual_memory_ops* ops;
  uint64_t unit_bytes, unit_count;
  void operator()(bp_buffer* range) const;
};
struct MemoryEnd {
  const bp_virtual_memory_ops* ops;
  void operator()(bp_physical_memory* memory) const {
    static_cast<void>(ops->release_memory(ops->self, memory));
  }
};
using OwnedRange = std::unique_ptr<bp_buffer, RangeEnd>;
using OwnedMemory = std::unique_ptr<bp_physical_memory, MemoryEnd>;

// The device under test and its unit of mapping, for ranges and memory of whole units.
class Space {
 public:
  explicit Space(Context& t)
      : stream(make_stream(t)), t_(t), v_(*t.target().virtual_memory), device_(t.target().device) {
    if (bp_target_has_table(&t.target(), BP_STRUCT_VIRTUAL_MEMORY_OPS) == 0) {
      t.not_supported("the device has no such table");
    }
    t.require_ok(v_.granularity(v_.self, device_, 0, &unit), "granularity");
    t.require(std::has_single_bit(unit), "granularity is a power of two");
  }

  OwnedRange reserve(uint64_t units) {
    bp_buffer* range = nullptr;
    t_.require_ok(v_.reserve(v_.self, device_, units * unit, &range), "reserve");
    return OwnedRange(range, {&v_, unit, units});
  }
  OwnedMemory create(uint64_t units) {
    bp_physical_memory* memory = nullptr;
    t_.require_ok(v_.create(v_.self, device_, 0, units * unit, &memory), "create");
    return OwnedMemory(memory, {&v_});
  }
  bp_buffer_ref at(const OwnedRange& range, uint64_t first, uint64_t units) const {
    return {range.get(), first * unit, units * unit};
  }
  bp_status map(const bp_buffer_ref& range, const OwnedMemory& memory, uint64_t first = 0) {
    return v_.map(v_.self, &range, memory.get(), first * unit);
  }
  bp_status set_access(const bp_buffer_ref& range, bp_access access) {
    return v_.set_access(v_.self, &range, 0, nullptr, access);
  }
  void map_for_use(const bp_buffer_ref& range, const OwnedMemory& memory, uint64_t first = 0) {
    t_.require_ok(map(range, memory, first), "map");
    t_.require_ok(set_access(range, BP_ACCESS_READ_WRITE), "set_access");
  }
  bp_status unmap(const bp_buffer_ref& range) { return v_.unmap(v_.self, &range); }

  void put(const bp_buffer_ref& to, const std::vector<uint8_t>& bytes) {
    write(t_, stream.get(), to, bytes);
  }
  std::vector<uint8_t> get(const bp_buffer_ref& from) { return read(t_, stream.get(), from); }
  bp_status fill(const bp_buffer_ref& dst, uint8_t value) {
    const bp_allocator_ops& m = *t_.target().allocator;
    return m.fill(m.self, stream.get(), &dst, &value, 1);
  }

  const OwnedStream stream;
  uint64_t unit = 0;

 private:
  Context& t_;
  const bp_virtual_memory_ops& v_;
  bp_device* device_;
};

// A case may end anywhere, so any of the first units may still be mapped.
void RangeEnd::operator()(bp_buffer* range) const {
  constexpr uint64_t kMostMapped = 8;
  if (ops->release(ops->self, range) == BP_OK) return;
  for (uint64_t i = 0; i < std::min(unit_count, kMostMapped); ++i) {
    const bp_buffer_ref part{range, i * unit_bytes, unit_bytes};
    static_cast<void>(ops->unmap(ops->self, &part));
  }
  static_cast<void>(ops->release(ops->self, range));
  bp_error_clear();
}

void sizes_are_whole_units(Context& t) {
  Space space(t);
  const bp_virtual_memory_ops& v = *t.target().virtual_memory;
  if (space.unit == 1) t.not_supported("every size is a multiple of the unit, which is 1 byte");
  bp_device* const device = t.target().device;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
  };
  bp_buffer* range = t.sentinel<bp_buffer>();
  refused(v.reserve(v.self, device, space.unit + 1, &range), "reserve of a unit and a byte");
  t.expect_eq(range, t.sentinel<bp_buffer>(), "out_range after a failure");
  bp_physical_memory* memory = t.sentinel<bp_physical_memory>();
  refused(v.create(v.self, device, 0, space.unit / 2, &memory), "create of half a unit");
  t.expect_eq(memory, t.sentinel<bp_physical_memory>(), "out_memory after a failure");

  const OwnedRange owned = space.reserve(4);
  const OwnedMemory two = space.create(2);
  const bp_buffer_ref good = space.at(owned, 0, 1), short_by_one{owned.get(), 0, space.unit - 1},
                      between{owned.get(), 1, space.unit};
  refused(v.map(v.self, &short_by_one, two.get(), 0), "map of less than a unit");
  refused(v.map(v.self, &between, two.get(), 0), "map at an offset between units");
  refused(v.map(v.self, &good, two.get(), 1), "map from an offset between units");
  t.require_ok(space.map(good, two), "map of a unit");
  refused(space.set_access(short_by_one, BP_ACCESS_READ), "set_access of less than a unit");
  refused(space.unmap(short_by_one), "unmap of less than a unit");
  refused(space.map(space.at(owned, 1, 2), two, 1), "map of more than the memory has");
  refused(space.map(space.at(owned, 3, 2), two), "map of more than the range has");
  t.require_ok(space.unmap(good), "unmap of a unit");
}

void reserving_takes_no_memory(Context& t) {
  Space space(t);
  const bp_device_ops& devices = *t.target().devices;
  uint64_t before = 0, after = 0, total = 0;
  const auto take = [&](uint64_t& out_free_bytes) {
    t.require_ok(devices.memory_info(devices.self, t.target().device, 0, &out_free_bytes, &total),
                 "memory_info");
  };
  take(before);
  std::vector<OwnedRange> ranges;
  // The ranges have four times the size of the memory, so memory for all of them cannot exist.
  for (int i = 0; i < 4; ++i) ranges.push_back(space.reserve(total / space.unit + 1));
  take(after);
  t.expect(after + total / 4 >= before, "free memory after reserving four times the heap");
  const OwnedMemory memory = space.create(1);
  const bp_buffer_ref last = space.at(ranges.back(), total / space.unit, 1);
  space.map_for_use(last, memory);
  const std::vector<uint8_t> bytes = random_bytes(t, space.unit);
  space.put(last, bytes);
  t.expect(space.get(last) == bytes, "the last unit of a range as large as the heap");
  t.require_ok(space.unmap(last), "unmap");
}

void unmapped_parts_are_refused(Context& t) {
  Space space(t);
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedRange range = space.reserve(6);
  const OwnedMemory memory = space.create(2);
  const OwnedBuffer other = make_buffer(t, 2 * space.unit);
  space.map_for_use(space.at(range, 2, 2), memory);
  std::vector<uint8_t> host(2 * space.unit, 0xEE);
  const auto refused = [&](const bp_buffer_ref& part, const char* what) {
    bp_buffer_ref partner{other.get(), 0, part.size_bytes};
    const auto check = [&](bp_status status) {
      t.expect_refused(status, BP_INVALID_ARGUMENT, what);
    };
    bp_stream* const stream = space.stream.get();
    check(space.fill(part, 1));
    check(m.copy(m.self, stream, &part, &partner));
    check(m.copy(m.self, stream, &partner, &part));
    check(m.copy_from_host(m.self, stream, &part, host.data(), BP_BORROW_DURING_CALL));
    check(m.copy_to_host(m.self, stream, host.data(), &part, BP_BORROW_DURING_CALL, UINT64_MAX));
  };
  refused({range.get(), 0, 16}, "a part that was never mapped");
  refused({range.get(), 2 * space.unit - 1, 2}, "a part that begins before the mapped memory");
  refused({range.get(), 4 * space.unit - 1, 2}, "a part that ends behind the mapped memory");
  refused({range.get(), 4 * space.unit, 1}, "the byte behind the mapped memory");
  t.expect(std::ranges::count(host, 0xEE) == static_cast<std::ptrdiff_t>(host.size()),
           "host memory after the refusals");
  t.require_ok(space.fill(space.at(range, 2, 2), 1), "fill of all that is mapped");
  finish(t, space.stream.get());
  t.require_ok(space.unmap(space.at(range, 2, 2)), "unmap");
  refused({range.get(), 2 * space.unit, 16}, "a part that was unmapped");
}

void mapped_part_is_not_mapped_again(Context& t) {
  Space space(t);
  const OwnedRange range = space.reserve(6);
  const OwnedMemory first = space.create(2), second = space.create(2);
  const bp_buffer_ref mapped = space.at(range, 2, 2);
  space.map_for_use(mapped, first);
  const std::vector<uint8_t> bytes = random_bytes(t, 2 * space.unit);
  space.put(mapped, bytes);
  for (const uint64_t begin : {1u, 2u, 3u}) {
    t.expect_refused(space.map(space.at(range, begin, 2), second), BP_INVALID_ARGUMENT,
                     "map over mapped memory");
  }
  t.expect(space.get(mapped) == bytes, "the bytes of the memory that was mapped first");
  t.require_ok(space.map(space.at(range, 0, 2), second), "map in front of mapped memory");
  t.require_ok(space.map(space.at(range, 4, 2), second), "map behind mapped memory");
  for (const uint64_t begin : {0u, 2u, 4u}) {
    t.require_ok(space.unmap(space.at(range, begin, 2)), "unmap");
  }
}

void memory_shows_the_same_bytes_everywhere(Context& t) {
  Space space(t);
  const OwnedRange a = space.reserve(4), b = space.reserve(2);
  const OwnedMemory memory = space.create(2);
  const bp_buffer_ref first = space.at(a, 0, 2), second = space.at(a, 2, 1),
                      third = space.at(b, 0, 2);
  space.map_for_use(first, memory);
  space.map_for_use(second, memory, 1);
  space.map_for_use(third, memory);
  std::vector<uint8_t> bytes = random_bytes(t, 2 * space.unit);
  space.put(first, bytes);
  t.expect(space.get(third) == bytes, "the second place");
  const std::vector<uint8_t> half = random_bytes(t, space.unit, 1);
  space.put(second, half);
  std::ranges::copy(half, bytes.begin() + static_cast<std::ptrdiff_t>(space.unit));
  t.expect(space.get(first) == bytes, "the first place, when a third was written to");
  t.expect(space.get(third) == bytes, "the second place, when a third was written to");
  for (const bp_buffer_ref& part : {first, second, third}) {
    t.require_ok(space.unmap(part), "unmap");
  }
}

void bytes_stay_in_unmapped_memory(Context& t) {
  Space space(t);
  const OwnedRange range = space.reserve(4);
  const OwnedMemory kept = space.create(2), other = space.create(2);
  const bp_buffer_ref first = space.at(range, 0, 2), last = space.at(range, 2, 2);
  space.map_for_use(first, kept);
  const std::vector<uint8_t> bytes = random_bytes(t, 2 * space.unit);
  space.put(first, bytes);
  t.require_ok(space.unmap(first), "unmap");
  space.map_for_use(first, other);
  space.put(first, std::vector<uint8_t>(2 * space.unit, 0xDD));
  space.map_for_use(last, kept);
  t.expect(space.get(last) == bytes, "the bytes after the memory was mapped again");
  t.require_ok(space.unmap(first), "unmap");
  t.require_ok(space.unmap(last), "unmap");
}

void released_memory_lives_while_it_is_mapped(Context& t) {
  Space space(t);
  const OwnedRange range = space.reserve(2), elsewhere = space.reserve(2);
  OwnedMemory memory = space.create(2);
  const bp_buffer_ref mapped = space.at(range, 0, 2);
  space.map_for_use(mapped, memory);
  const std::vector<uint8_t> bytes = random_bytes(t, 2 * space.unit);
  space.put(mapped, bytes);
  const bp_virtual_memory_ops& v = *t.target().virtual_memory;
  t.require_ok(v.release_memory(v.self, memory.release()), "release_memory of mapped memory");
  // Memory that was freed too early would be given out now.
  for (int i = 0; i < 4; ++i) {
    const OwnedMemory next = space.create(2);
    const bp_buffer_ref whole = space.at(elsewhere, 0, 2);
    space.map_for_use(whole, next);
    space.put(whole, std::vector<uint8_t>(2 * space.unit, 0xDD));
    t.require_ok(space.unmap(whole), "unmap");
  }
  t.expect(space.get(mapped) == bytes, "memory that was released while it is mapped");
  t.require_ok(space.unmap(mapped), "unmap");
  t.require_ok(v.release_memory(v.self, nullptr), "release_memory(NULL)");
}

void mapped_range_is_not_released(Context& t) {
  Space space(t);
  const bp_virtual_memory_ops& v = *t.target().virtual_memory;
  OwnedRange range = space.reserve(4);
  const OwnedMemory memory = space.create(1);
  const bp_buffer_ref last = space.at(range, 3, 1);
  space.map_for_use(last, memory);
  const bp_status status = v.release(v.self, range.get());
  t.expect_refused(status, BP_INVALID_ARGUMENT, "release of a range that is partly mapped");
  if (status == BP_OK) {
    static_cast<void>(range.release());
    return;
  }
  const std::vector<uint8_t> bytes = random_bytes(t, space.unit);
  space.put(last, bytes);
  t.expect(space.get(last) == bytes, "the mapped part after the refusal");
  t.require_ok(space.unmap(last), "unmap");
  t.require_ok(v.release(v.self, range.release()), "release of a range that was unmapped");
  t.require_ok(v.release(v.self, nullptr), "release(NULL)");
}

// The purpose of the table is a buffer that grows and shrinks without moving a byte.
void range_grows_in_place(Context& t) {
  Space space(t);
  constexpr uint64_t kUnits = 8;
  const OwnedRange range = space.reserve(kUnits);
  std::vector<OwnedMemory> memories;
  std::vector<uint8_t> expected;
  for (uint64_t i = 0; i < kUnits; ++i) {
    memories.push_back(space.create(1));
    space.map_for_use(space.at(range, i, 1), memories.back());
    const std::vector<uint8_t> bytes = random_bytes(t, space.unit, i);
    space.put(space.at(range, i, 1), bytes);
    expected.insert(expected.end(), bytes.begin(), bytes.end());
    t.expect(space.get(space.at(range, 0, i + 1)) == expected, "the range after it grew");
  }
  for (uint64_t i = kUnits; i-- > 0;) {
    t.require_ok(space.unmap(space.at(range, i, 1)), "unmap");
    expected.resize(i * space.unit);
    t.expect(space.get(space.at(range, 0, i)) == expected, "the range after it shrank");
  }
}

}  // namespace

void add_virtual_memory_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "virtual_memory",
      {
          {"sizes_are_whole_units", {"VIRTUAL-1", "ERROR-2"}, sizes_are_whole_units},
          {"reserving_takes_no_memory", {"VIRTUAL-2"}, reserving_takes_no_memory},
          {"unmapped_parts_are_refused", {"VIRTUAL-3"}, unmapped_parts_are_refused},
          {"mapped_part_is_not_mapped_again", {"VIRTUAL-4"}, mapped_part_is_not_mapped_again},
          {"memory_shows_the_same_bytes_everywhere",
           {"VIRTUAL-5"},
           memory_shows_the_same_bytes_everywhere},
          {"bytes_stay_in_unmapped_memory", {"VIRTUAL-6"}, bytes_stay_in_unmapped_memory},
          {"released_memory_lives_while_it_is_mapped",
           {"VIRTUAL-7"},
           released_memory_lives_while_it_is_mapped},
          {"mapped_range_is_not_released", {"VIRTUAL-8"}, mapped_range_is_not_released},
          {"range_grows_in_place", {"VIRTUAL-3", "VIRTUAL-5"}, range_grows_in_place},
      });
}

}  // namespace bp::conformance
