// Cases for api/include/backplane/memory.h with many buffers, ranges or failures at once.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "backplane/ops.h"
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

// Allocates, fills, moves, checks and frees buffers on several streams, in an order that the seed
// chooses. Each buffer is filled with words of its own. If two buffers share memory, or memory is
// given out before its last use, a buffer shows the words of another one.
class Churn {
 public:
  explicit Churn(Context& t) : t_(t), m_(*t.target().allocator), random_(t.seed()) {
    for (OwnedStream& stream : streams_) stream = make_stream(t);
    const bp_event_ops& events = *t.target().events;
    const bp_event_desc desc{.struct_size = sizeof(bp_event_desc),
                             .struct_type = BP_STRUCT_EVENT_DESC,
                             .flags = BP_EVENT_HOST_SIGNAL};
    bp_event* event = nullptr;
    can_hold_ = events.create(events.self, t.target().device, &desc, &event) == BP_OK;
    if (can_hold_) static_cast<void>(events.destroy(events.self, event));
    bp_error_clear();
  }

  void step() {
    if (gate_ && --held_steps_ == 0) open();
    if (can_hold_ && !gate_ && below(50) == 0) hold();
    const uint64_t choice = below(100);
    if (live_.empty() || (choice < 40 && live_.size() < 64)) return add();
    Block& block = live_[below(live_.size())];
    if (choice < 60) return remove(block);
    if (gate_ && block.stream == kHeld) return;  // The case does not wait for work behind the gate.
    if (choice < 75) return move(block);
    check(block);
  }

  void finish_all() {
    open();
    for (const Block& block : live_) check(block);
  }

 private:
  struct Block {
    OwnedBuffer buffer;
    uint64_t size_bytes = 0;
    uint32_t word = 0;
    size_t stream = 0;  // The stream of the buffer's work, or the stream that waits for that work.
  };
  static constexpr size_t kHeld = 0;  // The stream that is sometimes held back.

  uint64_t below(uint64_t end) { return random_() % end; }

  void add() {
    bp_allocate_desc desc = request(below(16) == 0 ? 0 : 4 * (1 + below(uint64_t{1} << below(13))));
    desc.alignment_bytes = below(2) == 0 ? 0 : uint64_t{1} << below(13);
    bp_buffer* handle = nullptr;
    t_.require_ok(m_.allocate(m_.self, t_.target().device, &desc, &handle), "allocate");
    live_.push_back({OwnedBuffer(handle, {&m_}), desc.size_bytes, 0, below(streams_.size())});
    refill(live_.back());
  }

  void refill(Block& block) {
    block.word = static_cast<uint32_t>(random_());
    const bp_buffer_ref whole = range(block.buffer, 0, block.size_bytes);
    t_.require_ok(m_.fill(m_.self, streams_[block.stream].get(), &whole, &block.word, 4), "fill");
  }

  // Continues on another stream, after all work on this one.
  void move(Block& block) {
    const size_t next = gate_ ? 1 + below(streams_.size() - 1) : below(streams_.size());
    const OwnedEvent event = make_event(t_);
    const bp_event_ops& events = *t_.target().events;
    const bp_stream_ops& ops = *t_.target().streams;
    t_.require_ok(events.record(events.self, event.get(), streams_[block.stream].get()), "record");
    t_.require_ok(ops.wait_event(ops.self, streams_[next].get(), event.get()), "wait_event");
    block.stream = next;
    refill(block);
  }

  void remove(Block& block) {
    bp_stream* const stream = streams_[block.stream].get();
    const bool is_held = gate_ && block.stream == kHeld;
    if (!is_held) check(block);
    if (is_held || below(2) == 0) {
      t_.require_ok(m_.deallocate(m_.self, block.buffer.release(), stream),
                    "deallocate on a stream");
    } else {
      finish(t_, stream);
      t_.require_ok(m_.deallocate(m_.self, block.buffer.release(), nullptr), "deallocate");
    }
    std::swap(block, live_.back());
    live_.pop_back();
  }

  void check(const Block& block) {
    if (block.size_bytes == 0) return;
    const std::vector<uint8_t> bytes =
        read(t_, streams_[block.stream].get(), range(block.buffer, 0, block.size_bytes));
    for (uint64_t i = 0; i < bytes.size(); i += 4) {
      uint32_t word;
      std::memcpy(&word, bytes.data() + i, 4);
      if (word == block.word) continue;
      t_.fail("byte " + std::to_string(i) + " of a buffer of " + std::to_string(bytes.size()) +
              " bytes, which no other buffer has");
    }
  }

  void hold() {
    gate_.emplace(t_);
    gate_->hold(streams_[kHeld].get());
    held_steps_ = 10 + below(20);
  }
  void open() {
    if (gate_) gate_->open();
    gate_.reset();
  }

  Context& t_;
  const bp_allocator_ops& m_;
  std::mt19937_64 random_;
  std::array<OwnedStream, 3> streams_;
  bool can_hold_ = false;
  std::vector<Block> live_;  // Declared so that it ends before the streams, and after the gate has
                             // opened.
  std::optional<Gate> gate_;
  uint64_t held_steps_ = 0;
};

void churn_keeps_every_pattern(Context& t) {
  Churn churn(t);
  for (int i = 0; i < 10'000; ++i) churn.step();
  churn.finish_all();
}

// Makes every call that takes a range, at every offset of two cache lines.
void ranges_begin_at_every_byte(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  constexpr uint64_t kSize = 512, kPart = 37;
  const OwnedBuffer buffer = make_buffer(t, kSize), other = make_buffer(t, kSize);
  std::vector<uint8_t> expected = random_bytes(t, kSize);
  const std::vector<uint8_t> source = random_bytes(t, kSize, 1);
  write(t, stream.get(), range(buffer, 0, kSize), expected);
  write(t, stream.get(), range(other, 0, kSize), source);
  for (uint64_t offset = 0; offset <= 128; ++offset) {
    const bp_buffer_ref copied = range(buffer, offset, kPart), from = range(other, offset, kPart),
                        filled = range(buffer, offset + 2 * kPart, kPart),
                        written = range(buffer, offset + 4 * kPart, kPart);
    const auto value = static_cast<uint8_t>(offset);
    t.require_ok(m.copy(m.self, stream.get(), &copied, &from), "copy");
    t.require_ok(m.fill(m.self, stream.get(), &filled, &value, 1), "fill");
    write(t, stream.get(), written, random_bytes(t, kPart, offset));
    std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(offset), kPart,
                expected.begin() + static_cast<std::ptrdiff_t>(offset));
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(filled.byte_offset), kPart, value);
    std::ranges::copy(random_bytes(t, kPart, offset),
                      expected.begin() + static_cast<std::ptrdiff_t>(written.byte_offset));
    t.expect(read(t, stream.get(), range(buffer, offset, kSize - offset)) ==
                 std::vector<uint8_t>(expected.begin() + static_cast<std::ptrdiff_t>(offset),
                                      expected.end()),
             "the buffer from byte " + std::to_string(offset) + " on");
  }
}

// Copies a row of elements between tensors at all offsets of whole elements, up to a page.
void copy_takes_every_offset(Context& t) {
  const OwnedStream stream = make_stream(t);
  constexpr int64_t kCount = 37;
  constexpr uint64_t kLast = 4096, kBytes = kCount * 4;
  const OwnedBuffer from = make_buffer(t, kLast + kBytes), to = make_buffer(t, kLast + kBytes);
  const std::vector<uint8_t> source = random_bytes(t, kLast + kBytes);
  write(t, stream.get(), range(from, 0, source.size()), source);
  const uint64_t step = 4;
  const int64_t stride = 1;
  bp_tensor x{
      .buffer = from.get(), .shape = &kCount, .strides = &stride, .ndim = 1, .dtype = BP_F32};
  bp_tensor y = x;
  y.buffer = to.get();
  const bp_copy_args args{.struct_size = sizeof(args), .flags = 0, .x = &x, .y = &y};
  std::vector<uint8_t> expected = random_bytes(t, source.size(), 1);
  for (x.byte_offset = 0; x.byte_offset <= kLast; x.byte_offset += step) {
    y.byte_offset = (kLast - x.byte_offset) / step * step;
    write(t, stream.get(), range(to, 0, expected.size()), expected);
    const bp_status status = bp_op_launch(&t.target(), stream.get(), 0, BP_OP_COPY, &args);
    if (status == BP_UNSUPPORTED) t.not_supported("the backend has no kernel for this copy");
    t.require_ok(status, "launch of copy");
    std::vector<uint8_t> after = expected;
    std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(x.byte_offset), kBytes,
                after.begin() + static_cast<std::ptrdiff_t>(y.byte_offset));
    t.expect(read(t, stream.get(), range(to, 0, expected.size())) == after,
             "copy from byte " + std::to_string(x.byte_offset) + " to byte " +
                 std::to_string(y.byte_offset) + ", and the bytes around it");
  }
}

// Launches a kernel with a tensor at an offset that the heap does not allow. The host would copy
// the tensor; a kernel that gets such an offset all the same refuses it.
void other_offsets_are_refused(Context& t) {
  constexpr int64_t kCount = 37;
  constexpr uint64_t kItem = sizeof(float), kBytes = (kCount + 1) * kItem;
  const uint64_t alignment = t.target().properties->heaps->tensor_offset_alignment_bytes;
  if (alignment <= kItem) t.not_supported("the heap allows every offset of a float");
  const OwnedStream stream = make_stream(t);
  const OwnedBuffer from = make_buffer(t, kBytes), to = make_buffer(t, kBytes);
  const std::vector<uint8_t> expected = random_bytes(t, kBytes, 1);
  write(t, stream.get(), range(to, 0, kBytes), expected);
  const int64_t stride = 1;
  bp_tensor x{
      .buffer = from.get(), .shape = &kCount, .strides = &stride, .ndim = 1, .dtype = BP_F32};
  bp_tensor y = x;
  y.buffer = to.get();
  const bp_neg_args args{.struct_size = sizeof(args), .flags = 0, .x = &x, .y = &y};
  bp_kernel_choice choice{};
  const auto find = [&] {
    return bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, BP_OP_NEG, &args, &choice);
  };
  if (find() != BP_OK) t.not_supported("the backend has no kernel for neg.f32");
  const bp_kernel* const kernel = choice.kernel;
  x.byte_offset = y.byte_offset = kItem;
  t.expect_refused(find(), BP_UNSUPPORTED, "bp_kernel_find for an offset below the alignment");
  t.expect_refused(bp_kernel_launch(&t.target(), stream.get(), 0, kernel, &args), BP_UNSUPPORTED,
                   "a launch with an offset that the heap does not allow");
  t.expect(read(t, stream.get(), range(to, 0, kBytes)) == expected,
           "the refused launch wrote nothing");
}

// Checks the status and the text of a request that cannot be met.
void expect_exhausted(Context& t, uint64_t size_bytes) {
  const bp_allocator_ops& m = *t.target().allocator;
  const bp_allocate_desc desc = request(size_bytes);
  bp_buffer* buffer = t.sentinel<bp_buffer>();
  const bp_status status = m.allocate(m.self, t.target().device, &desc, &buffer);
  const std::string text = bp_error_text();
  t.expect_refused(status, BP_OUT_OF_MEMORY, "more than there is");
  if (status == BP_OK) return static_cast<void>(m.deallocate(m.self, buffer, nullptr));
  t.expect(text.find(std::to_string(size_bytes)) != std::string::npos,
           "the text says that " + std::to_string(size_bytes) + " bytes were asked for: " + text);
  t.expect_eq(buffer, t.sentinel<bp_buffer>(), "out_buffer after a failure");
}

// Allocates buffers of one size until there is no room, and returns their number.
size_t take_all(Context& t, uint64_t size_bytes, size_t most) {
  const bp_allocator_ops& m = *t.target().allocator;
  std::vector<OwnedBuffer> buffers;
  while (buffers.size() < most) {
    const bp_allocate_desc desc = request(size_bytes);
    bp_buffer* buffer = t.sentinel<bp_buffer>();
    if (m.allocate(m.self, t.target().device, &desc, &buffer) != BP_OK) break;
    buffers.emplace_back(buffer, BufferEnd{&m});
  }
  if (buffers.size() < most) expect_exhausted(t, size_bytes);
  return buffers.size();
}

void full_heap_is_out_of_memory(Context& t) {
  const bp_heap& heap = *t.target().properties->heaps;
  if (heap.max_allocation_bytes < UINT64_MAX) expect_exhausted(t, heap.max_allocation_bytes + 1);
  if (t.target().properties->device_class == BP_DEVICE_HOST) {
    // The system gives out more addresses than it has memory. Using them would take memory from
    // other programs.
    t.detail("full", "not tried: the memory is that of all programs of the host");
    return;
  }
  const uint64_t part =
      std::max<uint64_t>(1, std::min(heap.max_allocation_bytes, heap.size_bytes / 16));
  const size_t most = heap.size_bytes / part + 2;
  const size_t count = take_all(t, part, most);
  if (count == most) {
    t.quality_warning("the heap has " + std::to_string(heap.size_bytes) + " bytes, and gave " +
                      std::to_string(most) + " buffers of " + std::to_string(part));
  }
  t.expect(count > 0, "the heap gives a part of itself");
  t.expect_eq(take_all(t, part, most), count, "how many fit when all were freed");
}

}  // namespace

void add_churn_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "memory",
      {
          {"churn_keeps_every_pattern",
           {"STREAM-3", "MEMORY-10", "MEMORY-3"},
           churn_keeps_every_pattern},
          {"ranges_begin_at_every_byte", {"MEMORY-1", "MEMORY-11"}, ranges_begin_at_every_byte},
          {"copy_takes_every_offset", {"HEAP-2", "HEAP-4", "TENSOR-1"}, copy_takes_every_offset},
          {"other_offsets_are_refused", {"HEAP-5"}, other_offsets_are_refused},
          {"full_heap_is_out_of_memory", {"MEMORY-4", "HEAP-1"}, full_heap_is_out_of_memory},
      });
  for (Case& c : cases) {
    if (c.id == "memory.churn_keeps_every_pattern") c.tier = Tier::kQuick;
    if (c.id == "memory.full_heap_is_out_of_memory") c.is_exclusive = true;
    const bool is_of_offsets =
        c.id == "memory.copy_takes_every_offset" || c.id == "memory.other_offsets_are_refused";
    if (is_of_offsets) c.dtype = "f32";
  }
}

}  // namespace bp::conformance
