#include "backends/cuda/emulation/emulation.hpp"

#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <csetjmp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cuda/emulation/race_check.hpp"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace bp::cuda::emulation {
namespace {

std::atomic<uint64_t> longest_sum_of_a_thread{0};

constexpr size_t kStackBytes = 256 << 10, kWarp = 32;

enum class State { kReady, kInExchange, kInWarpBarrier, kInBlockBarrier, kDone };

// A stack on which one thread of each block runs. It is entered once, and then serves every block.
struct Fiber {
  std::unique_ptr<std::byte[]> stack;
  ucontext_t context{};
  jmp_buf resume;
  bool is_entered = false;
  State state = State::kDone;
  Place place;
};

class Machine {
 public:
  void run(const Grid& grid, const std::function<void()>& thread);
  void wait(State state);
  std::byte* slots(unsigned parity) {
    return exchange_[parity].data() + running_->place.thread.x / kWarp * kWarp * 16;
  }
  [[noreturn]] void serve();

 private:
  void run_block(uint3 block, bool is_descending);
  void resume(Fiber& fiber);
  void follow(const Fiber& fiber);
  void note_sums();
  bool release_waiting();
  bool release_warp(size_t begin, State state);
  size_t count(State state, size_t begin, size_t end) const;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  size_t live_ = 0;  // How many fibers the launch uses.
  Fiber* running_ = nullptr;
  jmp_buf scheduler_;
  const std::function<void()>* thread_ = nullptr;
  std::vector<std::byte> shared_, exchange_[2];
  RaceCheck races_;
};

Machine& machine() {
  thread_local Machine instance;
  return instance;
}

// The accesses that follow are those of this fiber.
void Machine::follow(const Fiber& fiber) {
  const Place& place = fiber.place;
  const size_t thread =
      (size_t{place.thread.z} * place.threads.y + place.thread.y) * place.threads.x +
      place.thread.x;
  races_.resume(thread, {fiber.stack.get(), kStackBytes},
                {reinterpret_cast<const std::byte*>(&place), sizeof(place)});
}

void enter() { machine().serve(); }

// A fiber returns here when its thread has ended, and starts from here for the next block.
void Machine::serve() {
  follow(*running_);
  for (;;) {
    (*thread_)();
    wait(State::kDone);
  }
}

void Machine::wait(State state) {
  RaceCheck::pause();
  Fiber* const self = running_;
  self->state = state;
  if (_setjmp(self->resume) == 0) _longjmp(scheduler_, 1);
  follow(*running_);
}

void Machine::resume(Fiber& fiber) {
  running_ = &fiber;
  running_place = &fiber.place;
  if (_setjmp(scheduler_) != 0) return;
  if (fiber.is_entered) _longjmp(fiber.resume, 1);
  fiber.is_entered = true;
  fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, enter, 0);
  setcontext(&fiber.context);
}

size_t Machine::count(State state, size_t begin, size_t end) const {
  size_t n = 0;
  for (size_t i = begin; i < end; ++i) n += fibers_[i]->state == state;
  return n;
}

// Ends a barrier of the warp that begins with thread `begin`, if all its threads have reached it.
bool Machine::release_warp(size_t begin, State state) {
  const size_t end = std::min(begin + kWarp, live_);
  if (count(state, begin, end) != end - begin) return false;
  for (size_t i = begin; i < end; ++i) fibers_[i]->state = State::kReady;
  if (state == State::kInWarpBarrier) races_.pass_warp_barrier(begin);
  return true;
}

// Ends the barriers that all threads have reached.
bool Machine::release_waiting() {
  bool is_released = false;
  for (size_t begin = 0; begin < live_; begin += kWarp) {
    is_released |= release_warp(begin, State::kInWarpBarrier);
    is_released |= release_warp(begin, State::kInExchange);
  }
  const size_t waiting = count(State::kInBlockBarrier, 0, live_);
  if (waiting == 0 || waiting + count(State::kDone, 0, live_) != live_) return is_released;
  for (size_t i = 0; i < live_; ++i) {
    if (fibers_[i]->state == State::kInBlockBarrier) fibers_[i]->state = State::kReady;
  }
  races_.pass_block_barrier();
  return true;
}

void Machine::run_block(uint3 block, bool is_descending) {
  races_.begin_block(live_);
  std::fill(shared_.begin(), shared_.end(), std::byte{0xFF});  // It is NaN in every float dtype.
  for (size_t i = 0; i < live_; ++i) {
    fibers_[i]->state = State::kReady;
    fibers_[i]->place.block = block;
    fibers_[i]->place.shuffles = 0;
    fibers_[i]->place.additions = 0;
  }
  while (count(State::kDone, 0, live_) != live_) {
    for (size_t i = 0; i < live_; ++i) {
      Fiber& fiber = *fibers_[is_descending ? live_ - 1 - i : i];
      if (fiber.state == State::kReady) resume(fiber);
    }
    if (!release_waiting() && count(State::kDone, 0, live_) != live_) {
      for (size_t i = 0; i < live_; ++i) fibers_[i]->is_entered = false;
      throw std::logic_error("emulation: threads of block " + std::to_string(block.x) +
                             " wait in different barriers");
    }
  }
  note_sums();
  if (!races_.error().empty()) throw std::logic_error("emulation: " + races_.error());
}

// Several streams run launches at the same time.
void Machine::note_sums() {
  uint64_t longest = 0;
  for (size_t i = 0; i < live_; ++i) longest = std::max(longest, fibers_[i]->place.additions);
  uint64_t known = longest_sum_of_a_thread;
  while (known < longest && !longest_sum_of_a_thread.compare_exchange_weak(known, longest)) {
  }
}

void Machine::run(const Grid& grid, const std::function<void()>& thread) {
  thread_ = &thread;
  const dim3 blocks = grid.blocks, threads = grid.threads;
  live_ = size_t{threads.x} * threads.y * threads.z;
  shared_.resize(grid.shared_bytes);
  races_.begin_launch({shared_.data(), shared_.size()});
  for (auto& slots : exchange_) slots.resize((live_ + kWarp) * 16);
  while (fibers_.size() < live_) fibers_.push_back(std::make_unique<Fiber>());
  for (size_t i = 0; i < live_; ++i) {
    Place& place = fibers_[i]->place;
    place.thread = {static_cast<unsigned>(i % threads.x),
                    static_cast<unsigned>(i / threads.x % threads.y),
                    static_cast<unsigned>(i / threads.x / threads.y)};
    place.threads = threads;
    place.blocks = blocks;
    place.shared = shared_.data();
  }
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) run_block({x, y, z}, (x + y + z) % 2 == 1);
    }
  }
}

}  // namespace

thread_local constinit Place* running_place = nullptr;

void count_addition() {
  if (running_place != nullptr) ++running_place->additions;
}
uint64_t longest_sum() { return longest_sum_of_a_thread.exchange(0); }
void wait_for_block() { machine().wait(State::kInBlockBarrier); }
void wait_for_warp() { machine().wait(State::kInWarpBarrier); }
void wait_for_exchange() { machine().wait(State::kInExchange); }
std::byte* exchange_slots(unsigned parity) { return machine().slots(parity); }

void run(const Grid& grid, const std::function<void()>& thread) { machine().run(grid, thread); }

// Returns erfinv(x) by bisection over the integers whose bits are doubles in order of size. It is
// slow and exact.
double erfinv(double x) {
  if (!(std::fabs(x) < 1)) return x * (std::fabs(x) == 1 ? HUGE_VAL : NAN);
  if (std::fabs(x) < 1e-9) return x * 0.88622692545275801365;  // sqrt(pi) / 2
  uint64_t low = std::bit_cast<uint64_t>(1e-10), high = std::bit_cast<uint64_t>(6.5);
  const double rest = 1 - std::fabs(x);
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    const double y = std::bit_cast<double>(middle);
    const bool is_below = rest > 0.5 ? std::erf(y) < std::fabs(x) : std::erfc(y) > rest;
    (is_below ? low : high) = middle;
  }
  return std::copysign(std::bit_cast<double>(high), x);
}

}  // namespace bp::cuda::emulation
