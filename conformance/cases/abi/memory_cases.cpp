// Cases for api/include/backplane/memory.h.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"

namespace bp::conformance {
namespace {

bp_allocate_desc request(uint64_t size_bytes) {
  return {.struct_size = sizeof(bp_allocate_desc),
          .struct_type = BP_STRUCT_ALLOCATE_DESC,
          .size_bytes = size_bytes};
}

void bytes_come_back_as_they_went_in(Context& t) {
  const OwnedStream stream = make_stream(t);
  for (const uint64_t size : {1u, 3u, 63u, 64u, 65u, 4095u, 4097u, 1u << 20}) {
    const OwnedBuffer buffer = make_buffer(t, size);
    const std::vector<uint8_t> bytes = random_bytes(t, size, size);
    write(t, stream.get(), range(buffer, 0, size), bytes);
    t.expect(read(t, stream.get(), range(buffer, 0, size)) == bytes, "bytes of one size");
  }
}

void copies_touch_their_ranges_alone(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  constexpr uint64_t kSize = 4096;
  const OwnedBuffer a = make_buffer(t, kSize), b = make_buffer(t, kSize);
  const std::vector<uint8_t> source = random_bytes(t, kSize, 1);
  write(t, stream.get(), range(a, 0, kSize), source);
  for (const uint64_t to : {0u, 1u, 7u, 64u, 1001u}) {
    for (const uint64_t from : {0u, 3u, 64u, 2000u}) {
      for (const uint64_t size : {0u, 1u, 17u, 1024u}) {
        std::vector<uint8_t> expected = random_bytes(t, kSize, to * 8191 + from * 131 + size);
        write(t, stream.get(), range(b, 0, kSize), expected);
        const bp_buffer_ref dst = range(b, to, size), src = range(a, from, size);
        t.require_ok(memory.copy(memory.self, stream.get(), &dst, &src), "copy");
        std::memcpy(expected.data() + to, source.data() + from, size);
        t.expect(read(t, stream.get(), range(b, 0, kSize)) == expected,
                 "a copy at odd offsets, and the bytes around it");
      }
    }
  }
}

void ranges_outside_are_refused(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  constexpr uint64_t kSize = 256;
  const OwnedBuffer a = make_buffer(t, kSize), b = make_buffer(t, kSize);
  const std::vector<uint8_t> before = random_bytes(t, kSize);
  write(t, stream.get(), range(a, 0, kSize), before);
  std::vector<uint8_t> host(2 * kSize, 0xEE);
  const bp_buffer_ref good = range(b, 0, 16);
  struct {
    uint64_t offset, size;
    const char* what;
  } const bad[] = {{kSize - 15, 16, "one byte too far"},
                   {kSize + 1, 0, "an offset behind the end"},
                   {0, kSize + 1, "a size above the buffer's"},
                   {UINT64_MAX - 7, 16, "offset + size overflows"},
                   {16, UINT64_MAX - 7, "a size that overflows"}};
  for (const auto& [offset, size, what] : bad) {
    const bp_buffer_ref outside = range(a, offset, size);
    bp_buffer_ref partner = good;
    partner.size_bytes = size;
    const uint8_t zero = 0;
    const auto refused = [&, reason = what](bp_status status) {
      t.expect_refused(status, BP_INVALID_ARGUMENT, reason);
    };
    refused(m.fill(m.self, stream.get(), &outside, &zero, 1));
    refused(m.copy(m.self, stream.get(), &outside, &partner));
    refused(m.copy(m.self, stream.get(), &partner, &outside));
    refused(m.copy_from_host(m.self, stream.get(), &outside, host.data(), BP_BORROW_DURING_CALL));
    refused(m.copy_to_host(m.self, stream.get(), host.data(), &outside, BP_BORROW_DURING_CALL,
                           UINT64_MAX));
  }
  t.expect(read(t, stream.get(), range(a, 0, kSize)) == before, "the buffer after the refusals");
  t.expect(std::ranges::count(host, 0xEE) == static_cast<std::ptrdiff_t>(host.size()),
           "host memory after the refusals");
}

void null_arguments_are_refused(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, 64);
  const bp_buffer_ref whole = range(buffer, 0, 64), nothing{nullptr, 0, 64};
  const bp_allocate_desc desc = request(64);
  uint8_t host[64] = {};
  bp_buffer* out = nullptr;
  const auto refused = [&](bp_status status, const char* what) {
    t.expect_refused(status, BP_INVALID_ARGUMENT, what);
  };
  refused(m.allocate(m.self, t.target().device, &desc, nullptr), "allocate: out_buffer");
  refused(m.allocate(m.self, t.target().device, nullptr, &out), "allocate: desc");
  refused(m.copy(m.self, stream.get(), &whole, nullptr), "copy: src");
  refused(m.copy(m.self, stream.get(), nullptr, &whole), "copy: dst");
  refused(m.copy(m.self, nullptr, &whole, &whole), "copy: stream");
  refused(m.copy(m.self, stream.get(), &whole, &nothing), "copy: a range without a buffer");
  refused(m.copy_from_host(m.self, stream.get(), &whole, nullptr, BP_BORROW_DURING_CALL),
          "copy_from_host: src");
  refused(m.copy_to_host(m.self, stream.get(), nullptr, &whole, BP_BORROW_DURING_CALL, UINT64_MAX),
          "copy_to_host: dst");
  refused(m.copy_from_host(m.self, stream.get(), &whole, host, 77), "copy_from_host: borrow");
  refused(m.fill(m.self, stream.get(), &whole, nullptr, 1), "fill: pattern");
}

void unknown_usage_is_rejected(Context& t) {
  bp_allocate_desc desc = request(64);
  desc.usage = 1u << 31;
  expect_allocation_refused(t, desc, BP_INVALID_ARGUMENT, "unknown usage");
}

void zero_bytes_are_a_buffer(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, 0), other = make_buffer(t, 64);
  const bp_buffer_ref nothing = range(buffer, 0, 0), nothing_else = range(other, 64, 0);
  const uint8_t pattern = 1;
  t.require_ok(memory.fill(memory.self, stream.get(), &nothing, &pattern, 1), "fill");
  t.require_ok(memory.copy(memory.self, stream.get(), &nothing, &nothing_else), "copy");
  finish(t, stream.get());
}

void too_much_is_out_of_memory(Context& t) {
  const bp_heap& heap = *t.target().properties->heaps;
  if (heap.max_allocation_bytes < UINT64_MAX) {
    expect_allocation_refused(t, request(heap.max_allocation_bytes + 1), BP_OUT_OF_MEMORY,
                              "one byte more than max_allocation_bytes");
  }
  expect_allocation_refused(t, request(UINT64_MAX), BP_OUT_OF_MEMORY, "UINT64_MAX bytes");
  make_buffer(t, 4096);  // The next request is valid.
}

void alignments_are_checked_and_kept(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  bp_allocate_desc desc = request(100);
  for (const uint64_t bad : {3u, 48u, 8192u}) {
    desc.alignment_bytes = bad;
    expect_allocation_refused(t, desc, BP_INVALID_ARGUMENT, "an alignment that is not allowed");
  }
  for (uint64_t alignment = 1; alignment <= 4096; alignment *= 2) {
    desc.alignment_bytes = alignment;
    bp_buffer* handle = nullptr;
    t.require_ok(memory.allocate(memory.self, t.target().device, &desc, &handle), "allocate");
    const OwnedBuffer buffer(handle, {&memory});
    uint64_t address = 0;
    if (memory.address(memory.self, handle, &address) == BP_OK) {
      t.expect_eq(address % alignment, uint64_t{0}, "alignment of the address");
    }
  }
}

void deallocate_accepts_null(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  t.expect_eq(memory.deallocate(memory.self, nullptr, nullptr), BP_OK, "deallocate(NULL)");
}

// A busy buffer is freed on its stream. Its memory must not be given out too early.
void deallocate_on_a_stream_waits_for_its_work(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  constexpr uint64_t kSize = 1 << 16;
  const OwnedStream stream = make_stream(t), other = make_stream(t);
  OwnedBuffer source = make_buffer(t, kSize);
  const OwnedBuffer result = make_buffer(t, kSize);
  const std::vector<uint8_t> bytes = random_bytes(t, kSize);
  write(t, other.get(), range(source, 0, kSize), bytes);
  Gate gate(t);
  gate.hold(stream.get());
  const bp_buffer_ref from = range(source, 0, kSize), to = range(result, 0, kSize);
  t.require_ok(memory.copy(memory.self, stream.get(), &to, &from), "copy");
  t.require_ok(memory.deallocate(memory.self, source.release(), stream.get()),
               "deallocate on the stream");
  std::vector<OwnedBuffer> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(make_buffer(t, kSize));
    write(t, other.get(), range(others.back(), 0, kSize), std::vector<uint8_t>(kSize, 0xDD));
  }
  gate.open();
  t.expect(read(t, stream.get(), to) == bytes, "the bytes that the copy read");
}

void copy_checks_sizes_and_overlap(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer a = make_buffer(t, 256), b = make_buffer(t, 256);
  const std::vector<uint8_t> bytes = random_bytes(t, 256);
  write(t, stream.get(), range(a, 0, 256), bytes);
  const auto copy = [&](const bp_buffer_ref& to, const bp_buffer_ref& from) {
    return memory.copy(memory.self, stream.get(), &to, &from);
  };
  t.expect_refused(copy(range(b, 0, 8), range(a, 0, 16)), BP_INVALID_ARGUMENT, "unequal sizes");
  t.expect_refused(copy(range(a, 8, 64), range(a, 0, 64)), BP_INVALID_ARGUMENT, "overlap ahead");
  t.expect_refused(copy(range(a, 0, 64), range(a, 63, 64)), BP_INVALID_ARGUMENT, "overlap behind");
  t.expect_eq(copy(range(a, 0, 64), range(a, 0, 64)), BP_OK, "a range onto itself");
  t.expect_eq(copy(range(a, 64, 0), range(a, 64, 0)), BP_OK, "nothing onto itself");
  t.expect(read(t, stream.get(), range(a, 0, 256)) == bytes, "the buffer afterwards");
}

void source_may_change_after_the_call(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  constexpr uint64_t kSize = 1 << 18;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  std::vector<uint8_t> source = random_bytes(t, kSize);
  const std::vector<uint8_t> expected = source;
  Gate gate(t);
  gate.hold(stream.get());
  const bp_buffer_ref whole = range(buffer, 0, kSize);
  t.require_ok(memory.copy_from_host(memory.self, stream.get(), &whole, source.data(),
                                     BP_BORROW_DURING_CALL),
               "copy_from_host");
  std::ranges::fill(source, uint8_t{0xBB});
  gate.open();
  t.expect(read(t, stream.get(), whole) == expected, "the bytes as they were at the call");
}

void borrow_until_complete_reads_and_writes_later(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  constexpr uint64_t kSize = 4096;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const std::vector<uint8_t> source = random_bytes(t, kSize);
  std::vector<uint8_t> result(kSize, 0);
  Gate gate(t);
  gate.hold(stream.get());
  const bp_buffer_ref whole = range(buffer, 0, kSize);
  t.require_ok(memory.copy_from_host(memory.self, stream.get(), &whole, source.data(),
                                     BP_BORROW_UNTIL_COMPLETE),
               "copy_from_host");
  t.require_ok(memory.copy_to_host(memory.self, stream.get(), result.data(), &whole,
                                   BP_BORROW_UNTIL_COMPLETE, UINT64_MAX),
               "copy_to_host");
  gate.open();
  finish(t, stream.get());
  t.expect(result == source, "the bytes after copies in both directions behind the gate");
}

// A buffer that is filled behind a gate, so that a copy to the host has to wait.
struct HeldFill {
  explicit HeldFill(Context& t) : stream(make_stream(t)), buffer(make_buffer(t, kSize)), gate(t) {
    gate.hold(stream.get());
    const bp_allocator_ops& memory = *t.target().allocator;
    t.require_ok(memory.fill(memory.self, stream.get(), &whole, &kPattern, 1), "fill");
  }
  HeldFill(const HeldFill&) = delete;

  // Copies the buffer to `result` during the call.
  bp_status copy(Context& t, std::vector<uint8_t>& result, uint64_t timeout_ns) const {
    const bp_allocator_ops& memory = *t.target().allocator;
    return memory.copy_to_host(memory.self, stream.get(), result.data(), &whole,
                               BP_BORROW_DURING_CALL, timeout_ns);
  }

  static constexpr uint64_t kSize = 4096;
  static constexpr uint8_t kPattern = 0x77;
  const OwnedStream stream;
  const OwnedBuffer buffer;
  const bp_buffer_ref whole = range(buffer, 0, kSize);
  Gate gate;
};

void copy_to_host_is_complete_when_it_returns(Context& t) {
  HeldFill held(t);
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kMomentNs));
    held.gate.open();
  });
  std::vector<uint8_t> result(HeldFill::kSize, 0);
  const bp_status status = held.copy(t, result, UINT64_MAX);
  const bool is_complete = result == std::vector<uint8_t>(HeldFill::kSize, HeldFill::kPattern);
  opener.join();
  t.require_ok(status, "copy_to_host");
  t.expect(is_complete, "the bytes when the call returned");
  finish(t, held.stream.get());
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED);
  t.expect_refused(memory.copy_to_host(memory.self, failed.get(), result.data(), &held.whole,
                                       BP_BORROW_DURING_CALL, UINT64_MAX),
                   BP_STREAM_FAILED, "copy_to_host on a failed stream");
}

void late_copies_leave_host_memory_alone(Context& t) {
  const bp_stream_ops& streams = *t.target().streams;
  HeldFill held(t);
  const std::vector<uint8_t> before(HeldFill::kSize, 0x11);
  std::vector<uint8_t> result = before;
  for (const uint64_t timeout_ns : {uint64_t{0}, kMomentNs}) {
    t.expect_refused(held.copy(t, result, timeout_ns), BP_TIMEOUT,
                     "copy_to_host while the stream is held back");
  }
  t.expect_eq(streams.status(streams.self, held.stream.get()), BP_OK,
              "the status of the stream after the timeouts");
  held.gate.open();
  finish(t, held.stream.get());
  t.expect(result == before, "host memory once the late copies have ended");
  t.require_ok(held.copy(t, result, kTimeoutNs), "copy_to_host again");
  t.expect(result == std::vector<uint8_t>(HeldFill::kSize, HeldFill::kPattern),
           "the bytes of the second copy");
}

void fill_repeats_patterns_at_any_offset(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  constexpr uint64_t kSize = 1024;
  const OwnedBuffer buffer = make_buffer(t, kSize);
  const std::vector<uint8_t> pattern = random_bytes(t, 16, 99);
  for (uint64_t length = 1; length <= 16; ++length) {
    for (const uint64_t offset : {0u, 1u, 5u, 64u}) {
      std::vector<uint8_t> expected = random_bytes(t, kSize, length * 100 + offset);
      write(t, stream.get(), range(buffer, 0, kSize), expected);
      const bp_buffer_ref part = range(buffer, offset, length * 37);
      t.require_ok(memory.fill(memory.self, stream.get(), &part, pattern.data(), length), "fill");
      for (uint64_t i = 0; i < part.size_bytes; ++i) expected[offset + i] = pattern[i % length];
      t.expect(read(t, stream.get(), range(buffer, 0, kSize)) == expected,
               "a fill with a pattern, and the bytes around it");
    }
  }
}

void fill_checks_its_pattern(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer buffer = make_buffer(t, 256);
  const bp_buffer_ref whole = range(buffer, 0, 256);
  const uint8_t pattern[17] = {};
  for (const uint64_t length : {0u, 3u, 17u}) {
    t.expect_refused(memory.fill(memory.self, stream.get(), &whole, pattern, length),
                     BP_INVALID_ARGUMENT, "a pattern of 0, 3 (256 is no multiple) or 17 bytes");
  }
}

}  // namespace

void add_memory_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "memory",
      {
          {"bytes_come_back_as_they_went_in",
           {"MEMORY-9", "MEMORY-10"},
           bytes_come_back_as_they_went_in},
          {"copies_touch_their_ranges_alone", {"MEMORY-1"}, copies_touch_their_ranges_alone},
          {"ranges_outside_are_refused", {"MEMORY-1", "ERROR-1"}, ranges_outside_are_refused},
          {"null_arguments_are_refused", {"ERROR-3"}, null_arguments_are_refused},
          {"unknown_usage_is_rejected", {"MEMORY-2", "ERROR-2"}, unknown_usage_is_rejected},
          {"zero_bytes_are_a_buffer", {"MEMORY-3"}, zero_bytes_are_a_buffer},
          {"too_much_is_out_of_memory", {"MEMORY-4", "HEAP-1"}, too_much_is_out_of_memory},
          {"alignments_are_checked_and_kept", {"ERROR-2"}, alignments_are_checked_and_kept},
          {"deallocate_accepts_null", {"MEMORY-5"}, deallocate_accepts_null},
          {"deallocate_on_a_stream_waits_for_its_work",
           {"STREAM-3"},
           deallocate_on_a_stream_waits_for_its_work},
          {"copy_checks_sizes_and_overlap",
           {"MEMORY-7", "MEMORY-8"},
           copy_checks_sizes_and_overlap},
          {"source_may_change_after_the_call", {"MEMORY-9"}, source_may_change_after_the_call},
          {"borrow_until_complete_reads_and_writes_later",
           {"STREAM-3"},
           borrow_until_complete_reads_and_writes_later},
          {"copy_to_host_is_complete_when_it_returns",
           {"MEMORY-10"},
           copy_to_host_is_complete_when_it_returns},
          {"late_copies_leave_host_memory_alone",
           {"MEMORY-25"},
           late_copies_leave_host_memory_alone},
          {"fill_repeats_patterns_at_any_offset",
           {"MEMORY-11"},
           fill_repeats_patterns_at_any_offset},
          {"fill_checks_its_pattern", {"MEMORY-11"}, fill_checks_its_pattern},
      });
}

}  // namespace bp::conformance
