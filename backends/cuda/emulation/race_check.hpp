// Finds races between the threads of a kernel on the emulated device: two threads use the same
// byte, one of them writes it, and nothing orders the two. The emulation runs one thread at a time,
// so such a kernel may give the right values here, and wrong ones on a GPU.
//
// The kernels are compiled with -fsanitize=thread, which puts a call of __tsan_read4() and the like
// in front of each access of memory. race_check.cpp defines these functions; the library of the
// thread sanitizer is not linked. An access is ordered after an earlier one of another thread if
//   - a barrier of the block (__syncthreads) lies between them, and both threads are of that block;
//   - a barrier of the warp (__syncwarp) lies between them, and both threads are of that warp. A
//     shuffle is no such barrier: it orders no accesses of memory;
//   - they are of two launches.
// Atomic and volatile accesses race with plain ones only. An access whose address is not a multiple
// of its size is an error too, since a GPU cannot make it. What is known of memory is forgotten
// whenever a stream's kernels have used 50 MB.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cuda/emulation/unchecked.hpp"

namespace bp::cuda::emulation {

// Memory that is not of the C library's heap, whose use the suite measures.
class MappedMemory : public std::pmr::memory_resource {
 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }
};

// A cell for each word of 4 bytes of memory, or for each byte where smaller accesses are made.
template <typename Cell>
class Shadow {
 public:
  // Calls fn(cell, address) for the cells of an access.
  template <typename Fn>
  void for_cells(uintptr_t address, size_t size, const Fn& fn) {
    for (uintptr_t at = address; at < address + size;) {
      Page& page = page_of(at / kPageBytes);
      const uintptr_t end = std::min(address + size, (at / kPageBytes + 1) * kPageBytes);
      if (page.cell_bytes != 1 && (at % kWord != 0 || end % kWord != 0)) split(page);
      for (; at < end; at += page.cell_bytes) {
        fn(page.cells[at % kPageBytes / page.cell_bytes], at);
      }
    }
  }

 private:
  static constexpr size_t kPageBytes = 512, kWord = 4, kMostPages = 100'000, kRecent = 256;

  struct Page {
    size_t cell_bytes = 0;
    Cell* cells = nullptr;
  };
  struct Recent {
    uintptr_t key = 0;
    Page* page = nullptr;
  };
  using Pages = std::pmr::unordered_map<uintptr_t, Page>;

  Page make_page(size_t cell_bytes) {
    const size_t count = kPageBytes / cell_bytes;
    auto* const cells = static_cast<Cell*>(memory_.allocate(count * sizeof(Cell), alignof(Cell)));
    std::uninitialized_default_construct_n(cells, count);
    return {cell_bytes, cells};
  }

  // Gives each byte its own cell, with what was known of its word.
  void split(Page& page) {
    const Page bytes = make_page(1);
    for (size_t i = 0; i < kPageBytes; ++i) bytes.cells[i] = page.cells[i / kWord];
    page = bytes;
  }

  Page& page_of(uintptr_t key) {
    Recent& recent = recent_[key % kRecent];
    if (recent.page != nullptr && recent.key == key) return *recent.page;
    if (pages_ == nullptr || pages_->size() >= kMostPages) forget();
    const auto [place, is_new] = pages_->try_emplace(key);
    if (is_new) place->second = make_page(kWord);
    recent_[key % kRecent] = {key, &place->second};
    return place->second;
  }

  void forget() {
    pages_ = nullptr;
    recent_ = {};
    memory_.release();
    pages_ = new (memory_.allocate(sizeof(Pages), alignof(Pages))) Pages(&memory_);
  }

  MappedMemory mapped_;
  std::pmr::monotonic_buffer_resource memory_{size_t{1} << 20, &mapped_};
  Pages* pages_ = nullptr;  // In `memory_`, which frees all that the map has.
  std::array<Recent, kRecent> recent_{};
};

class RaceCheck {
 public:
  struct Range {
    const std::byte* begin = nullptr;
    size_t size = 0;

    bool contains(const std::byte* at) const { return static_cast<size_t>(at - begin) < size; }
  };

  // `dynamic_shared` is the shared memory that the launch asks for. What kernels declare as
  // __shared__ is found by itself.
  void begin_launch(Range dynamic_shared);
  void begin_block(size_t thread_count);

  // Accesses belong to this thread of the block until pause(). Those of its own memory, which are
  // its stack and its place, are not checked.
  void resume(size_t thread, Range stack, Range place);
  static void pause();

  void pass_block_barrier() { ++block_epoch_; }
  void pass_warp_barrier(size_t first_thread) { ++warp_epochs_[first_thread / kWarp]; }

  // `code` is the address of the instruction.
  void note(const std::byte* address, size_t size, AccessKind kind, const void* code);
  void note_misaligned(const std::byte* address, size_t size, const void* code);

  // Returns the first error of the launch, or "".
  const std::string& error() const { return error_; }

 private:
  static constexpr size_t kWarp = 32;

  // Who used some bytes, and when.
  struct Stamp {
    uint32_t block = 0;  // A number that no other block of any launch has. 0 is nobody's.
    uint32_t code = 0;
    uint16_t block_epoch = 0, warp_epoch = 0;
    uint16_t thread = 0;
    AccessKind kind = AccessKind::kRead;
    bool is_several = false;  // Whether other threads of the warp did so too.
  };
  // Of shared memory: the last write, and the reads since, of two warps. More are not needed: any
  // write races with one of them.
  struct SharedCell {
    Stamp write, reads[2];
  };
  // Of global memory, of which there is more: the last write and the last read. If several blocks
  // have read since the last write, `read.is_several` is set.
  struct GlobalCell {
    Stamp write, read;
  };

  void note_shared(SharedCell& cell, const Stamp& now, uintptr_t address);
  void note_global(GlobalCell& cell, const Stamp& now, uintptr_t address);
  void note_shared_read(SharedCell& cell, const Stamp& now) const;
  void note_global_read(GlobalCell& cell, const Stamp& now) const;

  bool is_past(const Stamp& stamp) const { return stamp.block < first_block_; }
  bool is_concurrent(const Stamp& earlier, const Stamp& now) const;
  void report(const Stamp& earlier, const Stamp& now, uintptr_t address);

  Shadow<SharedCell> shared_;
  Shadow<GlobalCell> global_;
  std::vector<uint16_t> warp_epochs_;
  uint32_t block_ = 0, first_block_ = 1;  // The running block, and the first one of the launch.
  uint16_t block_epoch_ = 0;
  uint16_t thread_ = 0;
  bool is_shared_ = false;  // Whether the access that is checked is one of shared memory.
  Range stack_, place_, dynamic_shared_, static_shared_;
  std::string error_;
};

}  // namespace bp::cuda::emulation
