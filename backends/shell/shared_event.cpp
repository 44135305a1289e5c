#include "backplane/shell/shared_event.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <ctime>

#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPlaces = 255, kParticipants = 1024;

// The locks are on bytes far behind the end of the file. There is one byte for each participant,
// and one for the turn to give up what others left behind.
constexpr off_t kFirstLock = off_t{1} << 32;
constexpr uint32_t kTurn = kParticipants;

// If both sides are in one process, the page has two addresses there. This counter orders their
// accesses for tools that track addresses.
std::atomic<uint64_t> completions = 0;

// How often a waiter asks whether the other process still lives. A completion wakes the waiter at
// once.
constexpr uint64_t kLookNs = 100'000'000;

// The flags of a word, beside generation and participant.
constexpr uint64_t kPending = 1, kUnpublished = 2, kLost = 4;

// The state of a place in one word, so that all of it changes at once.
struct State {
  uint32_t generation;   // That of the latest record in the place.
  uint32_t participant;  // It completes the record.
  uint64_t flags;

  static State of(uint64_t word) {
    const auto low = static_cast<uint32_t>(word);
    return {static_cast<uint32_t>(word >> 32), low >> 16, low & 0xFFFF};
  }
  uint64_t word() const { return uint64_t{generation} << 32 | participant << 16 | flags; }
  bool is_pending() const { return (flags & kPending) != 0; }
  bool is_claimed() const { return (flags & (kPending | kUnpublished)) != 0; }
};

uint64_t head_of(SharedRecord record) { return uint64_t{record.generation} << 32 | record.place; }
SharedRecord record_of(uint64_t head) {
  return {static_cast<uint32_t>(head), static_cast<uint32_t>(head >> 32)};
}

struct flock lock_of(short type, uint32_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kFirstLock + byte;
  lock.l_len = 1;
  return lock;
}

}  // namespace

struct SharedEvent::Place {
  std::atomic<uint64_t> word;
  std::atomic<bp_status> status;
  uint32_t reserved;
};

// The content of the file, which is all zero in the beginning. Rows that no participant has used
// take no memory.
struct SharedEvent::Page {
  std::atomic<uint64_t> head;  // 0 until something is recorded.
  std::atomic<uint32_t> changes;
  std::atomic<uint32_t> rows;  // The number of rows that were ever used.
  Place places[kPlaces];
  std::atomic<uint32_t> holds[kParticipants][kPlaces + 1];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is such a word");

SharedEvent::SharedEvent(const char* call, const std::string& kind)
    : file_(call, kind, sizeof(Page)),
      mapping_(call, file_, sizeof(Page)),
      page_(*reinterpret_cast<Page*>(mapping_.address())) {
  take_part(call);
}

SharedEvent::SharedEvent(const char* call, const std::string& kind, int descriptor)
    : file_(call, kind, sizeof(Page), descriptor),
      mapping_(call, file_, sizeof(Page)),
      page_(*reinterpret_cast<Page*>(mapping_.address())) {
  take_part(call);
}

SharedEvent::~SharedEvent() { close(part_descriptor_); }

// ---- Participants -------------------------------------------------------------------------------

bool SharedEvent::set_lock(short type, uint32_t byte, int how) const {
  struct flock lock = lock_of(type, byte);
  int result = -1;
  do {
    result = fcntl(part_descriptor_, how, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

// Takes the first free number. The locks need a descriptor of their own, because all duplicates of
// a descriptor share its locks, and duplicates go to other processes.
void SharedEvent::take_part(const char* call) {
  const std::string path = "/proc/self/fd/" + std::to_string(file_.descriptor());
  part_descriptor_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (part_descriptor_ >= 0 && take_number()) return;
  const std::string why = std::strerror(errno);
  if (part_descriptor_ >= 0) close(part_descriptor_);
  if (participant_ == kParticipants) {
    throw StatusError(BP_OUT_OF_MEMORY, std::string(call) + ": the event is shared " +
                                            std::to_string(kParticipants) +
                                            " times, and there is room for no more");
  }
  throw StatusError(BP_UNSUPPORTED,
                    std::string(call) + ": the system has no lock for a shared event: " + why);
}

// Returns false if the system has no more locks, or if all numbers are taken.
bool SharedEvent::take_number() {
  if (!set_lock(F_WRLCK, kTurn, F_OFD_SETLKW)) return false;
  while (participant_ < kParticipants && !set_lock(F_WRLCK, participant_, F_OFD_SETLK)) {
    if (errno != EAGAIN && errno != EACCES) return false;
    ++participant_;
  }
  if (participant_ == kParticipants) return false;
  give_up(participant_);
  page_.rows.store(std::max(page_.rows.load(), participant_ + 1));
  return set_lock(F_UNLCK, kTurn, F_OFD_SETLK);
}

// Returns whether the participant's process has ended. It asks through the descriptor that has this
// participant's own lock, and never sees that lock.
bool SharedEvent::has_ended(uint32_t participant) const {
  if (participant == participant_) return false;
  struct flock lock = lock_of(F_WRLCK, participant);
  return fcntl(part_descriptor_, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

// Gives up what the participant has left behind. The caller holds that participant's lock and the
// turn.
void SharedEvent::give_up(uint32_t participant) {
  if (participant >= page_.rows.load()) return;  // Nobody has used this number.
  for (Place& place : page_.places) {
    State state = State::of(place.word.load());
    if (state.participant != participant || !state.is_claimed()) continue;
    state.flags = state.is_pending() ? kLost : 0;
    place.word.store(state.word());
  }
  for (std::atomic<uint32_t>& count : page_.holds[participant]) count.store(0);
  wake();
}

// Gives up what all ended participants have left behind.
void SharedEvent::give_up_ended() {
  const std::lock_guard lock(giving_up_);
  if (!set_lock(F_WRLCK, kTurn, F_OFD_SETLKW)) return;
  const uint32_t rows = std::min(page_.rows.load(), kParticipants);
  for (uint32_t participant = 0; participant < rows; ++participant) {
    if (participant == participant_) continue;
    if (!set_lock(F_WRLCK, participant, F_OFD_SETLK)) continue;
    give_up(participant);
    set_lock(F_UNLCK, participant, F_OFD_SETLK);
  }
  set_lock(F_UNLCK, kTurn, F_OFD_SETLK);
}

// ---- Records ------------------------------------------------------------------------------------

SharedRecord SharedEvent::claim(const char* call) {
  SharedRecord record;
  if (try_claim(record)) return record;
  give_up_ended();
  if (try_claim(record)) return record;
  throw StatusError(BP_OUT_OF_MEMORY,
                    std::string(call) + ": " + std::to_string(kPlaces) +
                        " records of the shared event have not completed or are waited for, and "
                        "there is room for no more");
}

// Claims a free place. The order of its reads matters: see the fourth invariant in the header.
bool SharedEvent::try_claim(SharedRecord& out_record) {
  for (uint32_t i = 0; i < kPlaces; ++i) {
    uint64_t word = page_.places[i].word.load();
    State state = State::of(word);
    if (state.is_claimed()) continue;
    SharedRecord newest;
    if (latest(newest) && newest.place == i) continue;
    if (is_held(i)) continue;
    state = {std::max(state.generation + 1, uint32_t{1}), participant_, kPending | kUnpublished};
    if (!page_.places[i].word.compare_exchange_strong(word, state.word())) continue;
    page_.places[i].status.store(BP_OK);
    out_record = {i, state.generation};
    return true;
  }
  return false;
}

bool SharedEvent::is_held(uint32_t place) const {
  const uint32_t rows = std::min(page_.rows.load(), kParticipants);
  for (uint32_t participant = 0; participant < rows; ++participant) {
    if (page_.holds[participant][place].load() != 0) return true;
  }
  return false;
}

void SharedEvent::publish(SharedRecord record) {
  page_.head.store(head_of(record));
  page_.places[record.place].word.fetch_and(~kUnpublished);
}

void SharedEvent::complete(SharedRecord record, bp_status status) {
  Place& place = page_.places[record.place];
  place.status.store(status);
  completions.fetch_add(1);
  place.word.fetch_and(~kPending);
  wake();
}

// Ends a record that was never published. Nobody waits for such a record.
void SharedEvent::abandon(SharedRecord record) {
  page_.places[record.place].word.fetch_and(~(kPending | kUnpublished));
}

bool SharedEvent::latest(SharedRecord& out_record) const {
  const SharedRecord record = record_of(page_.head.load());
  if (record.generation == 0 || record.place >= kPlaces) return false;
  out_record = record;
  return true;
}

bool SharedEvent::hold_latest(SharedRecord& out_record) {
  SharedRecord record;
  while (latest(record)) {
    page_.holds[participant_][record.place].fetch_add(1);
    if (page_.head.load() == head_of(record)) {
      out_record = record;
      return true;
    }
    release(record);  // A later record exists by now.
  }
  return false;
}

void SharedEvent::release(SharedRecord record) {
  page_.holds[participant_][record.place].fetch_sub(1);
}

// ---- Waits --------------------------------------------------------------------------------------

bool SharedEvent::is_done(SharedRecord record) const {
  const State state = State::of(page_.places[record.place].word.load());
  completions.load();
  return !state.is_pending() || has_ended(state.participant);
}

SharedWait SharedEvent::wait(SharedRecord record, uint64_t timeout_ns,
                             const std::atomic<bool>& is_stopped, bp_status& out_status) const {
  const Place& place = page_.places[record.place];
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const uint32_t changes = page_.changes.load();
    State state = State::of(place.word.load());
    // has_ended() is called before the word is read again, because the process may have completed
    // the record before it ended.
    const bool is_lost = state.is_pending() && has_ended(state.participant);
    state = State::of(place.word.load());
    if ((state.flags & kLost) != 0) return SharedWait::kLost;
    if (!state.is_pending()) {
      completions.load();
      out_status = place.status.load();
      return SharedWait::kDone;
    }
    if (is_lost) return SharedWait::kLost;
    if (is_stopped.load()) return SharedWait::kStopped;
    const auto passed_ns = static_cast<uint64_t>((Clock::now() - begin).count());
    if (passed_ns >= timeout_ns) return SharedWait::kTimeout;
    const uint64_t pause_ns = std::min(kLookNs, timeout_ns - passed_ns);
    const timespec pause{0, static_cast<long>(pause_ns)};
    // The futex is not private, because other processes wake it. Whatever ends the wait, the page
    // says what happened.
    syscall(SYS_futex, &page_.changes, FUTEX_WAIT, changes, &pause, nullptr, 0);
  }
}

void SharedEvent::wake() {
  page_.changes.fetch_add(1);
  syscall(SYS_futex, &page_.changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace bp
