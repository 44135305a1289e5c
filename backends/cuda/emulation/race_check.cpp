#include "backends/cuda/emulation/race_check.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <utility>

namespace bp::cuda::emulation {
namespace {

// The check of the thread that now runs on this thread of the host, or NULL.
thread_local constinit RaceCheck* running = nullptr;

const std::byte* module_begin() {
  static const std::byte* const begin = [] {
    Dl_info info{};
    const bool is_found = dladdr(reinterpret_cast<const void*>(&module_begin), &info) != 0;
    return is_found ? static_cast<const std::byte*>(info.dli_fbase) : nullptr;
  }();
  return begin;
}

std::string module_name() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&module_begin), &info) == 0) return "the plugin";
  return info.dli_fname;
}

// Its address is in the memory that this module has for each thread of the host, where `__shared__`
// variables are, too.
thread_local char in_static_shared = 0;

// Returns the memory that this module has for the calling thread of the host.
RaceCheck::Range thread_memory() {
  struct Search {
    const std::byte* inside;
    RaceCheck::Range found;
  } search{reinterpret_cast<const std::byte*>(&in_static_shared), {}};
  const auto visit = [](dl_phdr_info* info, size_t, void* data) {
    auto& s = *static_cast<Search*>(data);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
      const RaceCheck::Range range{static_cast<const std::byte*>(info->dlpi_tls_data),
                                   info->dlpi_phdr[i].p_memsz};
      if (range.begin != nullptr && range.contains(s.inside)) s.found = range;
    }
    return s.found.size != 0 ? 1 : 0;
  };
  dl_iterate_phdr(visit, &search);
  return search.found;
}

std::string in_hexadecimal(uint32_t number) {
  std::string digits;
  for (int shift = 28; shift >= 0; shift -= 4) digits += "0123456789abcdef"[number >> shift & 15];
  return "0x" + digits;
}

const char* name_of(AccessKind kind) {
  if (kind == AccessKind::kRead) return "a read";
  return kind == AccessKind::kWrite ? "a write" : "an atomic access";
}

}  // namespace

void* MappedMemory::do_allocate(size_t bytes, size_t) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void MappedMemory::do_deallocate(void* memory, size_t bytes, size_t) { munmap(memory, bytes); }

Unchecked::Unchecked() : before_(std::exchange(running, nullptr)) {}
Unchecked::~Unchecked() { running = before_; }

void RaceCheck::begin_launch(Range dynamic_shared) {
  first_block_ = block_ + 1;
  dynamic_shared_ = dynamic_shared;
  static_shared_ = thread_memory();
  error_.clear();
}

void RaceCheck::begin_block(size_t thread_count) {
  ++block_;
  block_epoch_ = 0;
  warp_epochs_.assign((thread_count + kWarp - 1) / kWarp, 0);
}

void RaceCheck::resume(size_t thread, Range stack, Range place) {
  thread_ = static_cast<uint16_t>(thread);
  stack_ = stack;
  place_ = place;
  running = this;
}

void RaceCheck::pause() { running = nullptr; }

bool RaceCheck::is_concurrent(const Stamp& earlier, const Stamp& now) const {
  if (is_past(earlier)) return false;
  if (earlier.kind == AccessKind::kAtomic && now.kind == AccessKind::kAtomic) return false;
  if (earlier.block != now.block) return !is_shared_;
  if (earlier.block_epoch != now.block_epoch) return false;
  if (earlier.thread == now.thread && !earlier.is_several) return false;
  return earlier.thread / kWarp != now.thread / kWarp || earlier.warp_epoch == now.warp_epoch;
}

void RaceCheck::report(const Stamp& earlier, const Stamp& now, uintptr_t address) {
  if (!error_.empty()) return;
  const auto use = [](const Stamp& s) {
    return std::string(name_of(s.kind)) + " by thread " + std::to_string(s.thread) + " at " +
           in_hexadecimal(s.code);
  };
  error_ = "nothing orders " + use(earlier) + " and " + use(now) +
           (earlier.block == now.block ? " of one block" : " of two blocks") + ", in " +
           (is_shared_ ? "shared" : "global") + " memory (address " + std::to_string(address) +
           "); addr2line -Cfie " + module_name() + " names these places";
}

// Keeps one read of each of two warps. A read that has ended before all accesses that may still
// come is replaced.
void RaceCheck::note_shared_read(SharedCell& cell, const Stamp& now) const {
  Stamp* free = nullptr;
  for (Stamp& read : cell.reads) {
    const bool is_current = read.block == now.block && read.block_epoch == now.block_epoch;
    if (is_current && read.thread / kWarp == now.thread / kWarp) {
      const bool is_other = read.thread != now.thread || read.is_several;
      const bool is_several = read.warp_epoch == now.warp_epoch && is_other;
      read = now;
      read.is_several = is_several;
      return;
    }
    if (!is_current) free = &read;
  }
  if (free != nullptr) *free = now;
}

void RaceCheck::note_shared(SharedCell& cell, const Stamp& now, uintptr_t address) {
  if (is_concurrent(cell.write, now)) report(cell.write, now, address);
  if (now.kind == AccessKind::kRead) {
    note_shared_read(cell, now);
    return;
  }
  for (const Stamp& read : cell.reads) {
    if (is_concurrent(read, now)) report(read, now, address);
  }
  cell = {now, {}};
}

// Reads of several blocks race with any write, so the first one is kept. Of the reads of one block
// the last one is kept.
void RaceCheck::note_global_read(GlobalCell& cell, const Stamp& now) const {
  Stamp& read = cell.read;
  const bool is_past_read = is_past(read);
  if (!is_past_read && read.is_several) return;
  const bool is_several = !is_past_read && read.block != now.block;
  if (is_several) {
    read.is_several = true;
    return;
  }
  read = now;
}

void RaceCheck::note_global(GlobalCell& cell, const Stamp& now, uintptr_t address) {
  if (is_concurrent(cell.write, now)) report(cell.write, now, address);
  if (now.kind == AccessKind::kRead) {
    note_global_read(cell, now);
    return;
  }
  const bool are_several = !is_past(cell.read) && cell.read.is_several;
  if (are_several || is_concurrent(cell.read, now)) report(cell.read, now, address);
  cell = {now, {}};
}

void RaceCheck::note(const std::byte* address, size_t size, AccessKind kind, const void* code) {
  if (stack_.contains(address) || place_.contains(address)) return;
  is_shared_ = dynamic_shared_.contains(address) || static_shared_.contains(address);
  Stamp now;
  now.block = block_;
  now.code = static_cast<uint32_t>(static_cast<const std::byte*>(code) - module_begin());
  now.block_epoch = block_epoch_;
  now.warp_epoch = warp_epochs_[thread_ / kWarp];
  now.thread = thread_;
  now.kind = kind;
  const auto first = reinterpret_cast<uintptr_t>(address);
  if (is_shared_) {
    shared_.for_cells(first, size,
                      [&](SharedCell& cell, uintptr_t at) { note_shared(cell, now, at); });
  } else {
    global_.for_cells(first, size,
                      [&](GlobalCell& cell, uintptr_t at) { note_global(cell, now, at); });
  }
}

void RaceCheck::note_misaligned(const std::byte* address, size_t size, const void* code) {
  if (!error_.empty() || stack_.contains(address)) return;
  const auto place = static_cast<uint32_t>(static_cast<const std::byte*>(code) - module_begin());
  error_ = "the access at " + in_hexadecimal(place) + " has " + std::to_string(size) +
           " bytes, and its address " + std::to_string(reinterpret_cast<uintptr_t>(address)) +
           " is not a multiple of that; addr2line -Cfie " + module_name() + " names the place";
}

namespace {

void note_use(RaceCheck* check, const void* address, size_t size, AccessKind kind, const void* code,
              bool is_aligned) {
  if (check == nullptr) return;
  // The code below may itself be compiled with the check, because the linker keeps one copy of an
  // inline function and takes it from any file.
  const Unchecked unchecked;
  const auto* const at = static_cast<const std::byte*>(address);
  if (is_aligned && reinterpret_cast<uintptr_t>(address) % size != 0) {
    check->note_misaligned(at, size, code);
  }
  check->note(at, size, kind, code);
}

}  // namespace

void Unchecked::note(const void* address, size_t size, AccessKind kind) const {
  note_use(before_, address, size, kind, __builtin_return_address(0), true);
}

}  // namespace bp::cuda::emulation

// The functions that the compiler calls. Their names and arguments are those of the runtime library
// of the thread sanitizer.
// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses)
// NOLINTBEGIN(readability-identifier-naming)
#define BP_TYPED_HOOK(type) extern "C" __attribute__((visibility("hidden"))) type
#define BP_HOOK BP_TYPED_HOOK(void)
#define BP_NOTE(address, size, kind, is_aligned)                             \
  bp::cuda::emulation::note_use(bp::cuda::emulation::running, address, size, \
                                bp::cuda::emulation::AccessKind::kind,       \
                                __builtin_return_address(0), is_aligned)
#define BP_HOOKS_OF_SIZE(size)                                                         \
  BP_HOOK __tsan_read##size(void* at) { BP_NOTE(at, size, kRead, true); }              \
  BP_HOOK __tsan_write##size(void* at) { BP_NOTE(at, size, kWrite, true); }            \
  BP_HOOK __tsan_unaligned_read##size(void* at) { BP_NOTE(at, size, kRead, false); }   \
  BP_HOOK __tsan_unaligned_write##size(void* at) { BP_NOTE(at, size, kWrite, false); } \
  BP_HOOK __tsan_volatile_read##size(void* at) { BP_NOTE(at, size, kAtomic, true); }   \
  BP_HOOK __tsan_volatile_write##size(void* at) { BP_NOTE(at, size, kAtomic, true); }
BP_HOOKS_OF_SIZE(1)
BP_HOOKS_OF_SIZE(2)
BP_HOOKS_OF_SIZE(4)
BP_HOOKS_OF_SIZE(8)
BP_HOOKS_OF_SIZE(16)
BP_HOOK __tsan_read_range(void* at, size_t size) { BP_NOTE(at, size, kRead, false); }
BP_HOOK __tsan_write_range(void* at, size_t size) { BP_NOTE(at, size, kWrite, false); }
BP_HOOK __tsan_vptr_update(void** at, void*) { BP_NOTE(at, sizeof(*at), kWrite, true); }

// Kernels have no variables of std::atomic; code of the host has.
#define BP_FETCH_HOOK(bits, type, operation)                                    \
  BP_TYPED_HOOK(type)                                                           \
  __tsan_atomic##bits##_fetch_##operation(volatile type* at, type value, int) { \
    return __atomic_fetch_##operation(at, value, __ATOMIC_SEQ_CST);             \
  }
#define BP_COMPARE_HOOK(bits, type, strength)                                                      \
  BP_TYPED_HOOK(int)                                                                               \
  __tsan_atomic##bits##_compare_exchange_##strength(volatile type* at, type* expected, type value, \
                                                    int, int) {                                    \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,               \
                                       __ATOMIC_SEQ_CST);                                          \
  }
#define BP_ATOMIC_HOOKS(bits, type)                                                        \
  BP_TYPED_HOOK(type) __tsan_atomic##bits##_load(const volatile type* at, int) {           \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                          \
  }                                                                                        \
  BP_HOOK __tsan_atomic##bits##_store(volatile type* at, type value, int) {                \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                         \
  }                                                                                        \
  BP_TYPED_HOOK(type) __tsan_atomic##bits##_exchange(volatile type* at, type value, int) { \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                               \
  }                                                                                        \
  BP_FETCH_HOOK(bits, type, add)                                                           \
  BP_FETCH_HOOK(bits, type, sub)                                                           \
  BP_COMPARE_HOOK(bits, type, strong)                                                      \
  BP_COMPARE_HOOK(bits, type, weak)
BP_ATOMIC_HOOKS(8, uint8_t)
BP_ATOMIC_HOOKS(32, uint32_t)
BP_ATOMIC_HOOKS(64, uint64_t)

BP_HOOK __tsan_init() {}
BP_HOOK __tsan_func_entry(void*) {}
BP_HOOK __tsan_func_exit() {}
// NOLINTEND(readability-identifier-naming)
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses)
