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

constexpr uint32_t kPlaces = 255;

// Bytes far behind the end of the file, one for each participant.
constexpr off_t kFirstLock = off_t{1} << 32;

// Where both sides are in one process, the page lies there at two addresses. This orders them for
// tools that follow addresses.
std::atomic<uint64_t> completions = 0;

// How often who waits asks whether the other process still lives. Completion comes at once.
constexpr uint64_t kLookNs = 100'000'000;

// The state of a place in one word, so that all of it changes at once.
struct State {
  uint32_t generation;  // Of the record that has it, or had it last.
  uint32_t waiters;
  uint32_t is_pending;

  static State of(uint64_t word) {
    const auto low = static_cast<uint32_t>(word);
    return {static_cast<uint32_t>(word >> 32), low >> 1, low & 1};
  }
  uint64_t word() const { return uint64_t{generation} << 32 | waiters << 1 | is_pending; }
};

// What changes a word in place.
constexpr uint64_t kPending = 1, kWaiter = 2;

uint64_t head_of(SharedRecord record) { return uint64_t{record.generation} << 32 | record.place; }
SharedRecord record_of(uint64_t head) {
  return {static_cast<uint32_t>(head), static_cast<uint32_t>(head >> 32)};
}

struct flock lock_of(short type, uint32_t participant) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = kFirstLock + participant;
  lock.l_len = 1;
  return lock;
}

}  // namespace

struct SharedEvent::Place {
  std::atomic<uint64_t> word;
  std::atomic<uint32_t> participant;  // Who completes it.
  std::atomic<bp_status> status;
};

// As the file has it: all zero in the beginning.
struct SharedEvent::Page {
  std::atomic<uint64_t> head;  // 0 until something is recorded.
  std::atomic<uint32_t> changes;
  std::atomic<uint32_t> participants;  // How many there have been.
  Place places[kPlaces];
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

// A descriptor of its own: duplicates of one share their locks, and travel to other processes.
void SharedEvent::take_part(const char* call) {
  const std::string path = "/proc/self/fd/" + std::to_string(file_.descriptor());
  part_descriptor_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  participant_ = page_.participants.fetch_add(1) + 1;
  struct flock lock = lock_of(F_WRLCK, participant_);
  if (part_descriptor_ >= 0 && fcntl(part_descriptor_, F_OFD_SETLK, &lock) == 0) return;
  const std::string why = std::strerror(errno);
  if (part_descriptor_ >= 0) close(part_descriptor_);
  throw StatusError(BP_UNSUPPORTED,
                    std::string(call) + ": the system has no lock for a shared event: " + why);
}

SharedRecord SharedEvent::claim(const char* call) {
  const SharedRecord newest = record_of(page_.head.load());
  for (uint32_t i = 0; i < kPlaces; ++i) {
    uint64_t word = page_.places[i].word.load();
    State state = State::of(word);
    const bool is_newest = newest.generation != 0 && newest.place == i;
    if (state.is_pending || state.waiters != 0 || is_newest) continue;
    state.generation = std::max(state.generation + 1, uint32_t{1});
    state.is_pending = 1;
    if (!page_.places[i].word.compare_exchange_strong(word, state.word())) continue;
    page_.places[i].participant.store(participant_);
    page_.places[i].status.store(BP_OK);
    return {i, state.generation};
  }
  throw StatusError(BP_OUT_OF_MEMORY,
                    std::string(call) + ": " + std::to_string(kPlaces) +
                        " records of the shared event have not completed or are waited for, and "
                        "there is room for no more");
}

void SharedEvent::publish(SharedRecord record) { page_.head.store(head_of(record)); }

void SharedEvent::complete(SharedRecord record, bp_status status) {
  Place& place = page_.places[record.place];
  place.status.store(status);
  completions.fetch_add(1);
  place.word.fetch_and(~kPending);
  wake();
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
    uint64_t word = page_.places[record.place].word.load();
    State state = State::of(word);
    if (state.generation != record.generation) continue;  // There is a later record by now.
    ++state.waiters;
    if (!page_.places[record.place].word.compare_exchange_strong(word, state.word())) continue;
    out_record = record;
    return true;
  }
  return false;
}

void SharedEvent::hold(SharedRecord record) { page_.places[record.place].word.fetch_add(kWaiter); }

void SharedEvent::release(SharedRecord record) {
  page_.places[record.place].word.fetch_sub(kWaiter);
}

// Whether the process that has to complete it has ended.
bool SharedEvent::is_orphan(const Place& place) const {
  const uint32_t participant = place.participant.load();
  if (participant == participant_) return false;
  struct flock lock = lock_of(F_WRLCK, participant);
  return fcntl(file_.descriptor(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

bool SharedEvent::is_done(SharedRecord record) const {
  const Place& place = page_.places[record.place];
  const bool is_complete = State::of(place.word.load()).is_pending == 0;
  completions.load();
  return is_complete || is_orphan(place);
}

SharedWait SharedEvent::wait(SharedRecord record, uint64_t timeout_ns,
                             const std::atomic<bool>& is_stopped, bp_status& out_status) const {
  const Place& place = page_.places[record.place];
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const uint32_t changes = page_.changes.load();
    // Asked first: who has ended may have completed it before.
    const bool is_lost = is_orphan(place);
    if (State::of(place.word.load()).is_pending == 0) {
      completions.load();
      out_status = place.status.load();
      return SharedWait::kDone;
    }
    if (is_lost) {
      out_status = BP_ABORTED;
      return SharedWait::kDone;
    }
    if (is_stopped.load()) return SharedWait::kStopped;
    const auto passed_ns = static_cast<uint64_t>((Clock::now() - begin).count());
    if (passed_ns >= timeout_ns) return SharedWait::kTimeout;
    const uint64_t pause_ns = std::min(kLookNs, timeout_ns - passed_ns);
    const timespec pause{0, static_cast<long>(pause_ns)};
    // Not private: other processes wake it. Whatever ends it, the page says what happened.
    syscall(SYS_futex, &page_.changes, FUTEX_WAIT, changes, &pause, nullptr, 0);
  }
}

void SharedEvent::wake() {
  page_.changes.fetch_add(1);
  syscall(SYS_futex, &page_.changes, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace bp
