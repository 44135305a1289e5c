#include "conformance/process/hygiene.hpp"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <cstdlib>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bp::conformance {
namespace {

// Returns flush-to-zero and similar flags; 0 if the suite does not know the machine.
uint64_t float_control() {
#if defined(__x86_64__)
  constexpr unsigned kFlushBits = 0x8040;  // The flags for outputs and for inputs.
  return _mm_getcsr() & kFlushBits;
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  return control & (uint64_t{3} << 24 | 1);
#else
  return 0;
#endif
}

void set_float_control(uint64_t bits) {
#if defined(__x86_64__)
  _mm_setcsr((_mm_getcsr() & ~0x8040u) | static_cast<unsigned>(bits));
#elif defined(__aarch64__)
  uint64_t control;
  asm volatile("mrs %0, fpcr" : "=r"(control));
  control = (control & ~(uint64_t{3} << 24 | 1)) | bits;
  asm volatile("msr fpcr, %0" ::"r"(control));
#else
  static_cast<void>(bits);
#endif
}

std::string working_directory() {
  char* path = getcwd(nullptr, 0);
  std::string text = path == nullptr ? "" : path;
  free(path);
  return text;
}

bool is_same_handler(const struct sigaction& a, const struct sigaction& b) {
  // These are the flags that programs set; the C library adds its own.
  constexpr int kFlags = SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART |
                         SA_NODEFER | static_cast<int>(SA_RESETHAND);
  return a.sa_handler == b.sa_handler && (a.sa_flags & kFlags) == (b.sa_flags & kFlags);
}

}  // namespace

std::map<int, Descriptor> open_descriptors() {
  std::map<int, Descriptor> descriptors;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return descriptors;
  while (const dirent* entry = readdir(folder)) {
    char* end = nullptr;
    const long number = strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || number == dirfd(folder)) continue;
    std::array<char, 512> target;
    const ssize_t size = readlinkat(dirfd(folder), entry->d_name, target.data(), target.size());
    Descriptor& descriptor = descriptors[static_cast<int>(number)];
    if (size > 0) descriptor.target.assign(target.data(), static_cast<size_t>(size));
    struct stat found {};
    if (fstat(static_cast<int>(number), &found) != 0) continue;
    descriptor.device = found.st_dev;
    descriptor.inode = found.st_ino;
  }
  closedir(folder);
  return descriptors;
}

ProcessState ProcessState::take() {
  ProcessState state;
  state.rounding_mode_ = fegetround();
  state.float_control_ = float_control();
  state.locale_ = setlocale(LC_ALL, nullptr);
  state.directory_ = working_directory();
  for (int number = 1; number < 32; ++number) {
    sigaction(number, nullptr, &state.handlers_[static_cast<size_t>(number)]);
  }
  state.descriptors_ = open_descriptors();
  return state;
}

ProcessState ProcessState::take(const ProcessState& start) {
  ProcessState state = take();
  std::erase_if(state.descriptors_,
                [&](const auto& descriptor) { return !start.holds(descriptor); });
  return state;
}

std::vector<std::string> ProcessState::compare_and_restore() const {
  std::vector<std::string> changes;
  const ProcessState now = take();
  if (now.rounding_mode_ != rounding_mode_) {
    changes.push_back("the rounding mode was changed");
    fesetround(rounding_mode_);
  }
  if (now.float_control_ != float_control_) {
    changes.push_back("the flush-to-zero bits were changed");
    set_float_control(float_control_);
  }
  if (now.locale_ != locale_) {
    changes.push_back("the locale was changed to " + now.locale_);
    setlocale(LC_ALL, locale_.c_str());
  }
  if (now.directory_ != directory_) {
    changes.push_back("the working directory was changed to " + now.directory_);
    if (chdir(directory_.c_str()) != 0) changes.back() += ", and could not be restored";
  }
  for (size_t number = 1; number < handlers_.size(); ++number) {
    if (is_same_handler(handlers_[number], now.handlers_[number])) continue;
    const char* name = sigabbrev_np(static_cast<int>(number));
    changes.push_back("the handler of signal SIG" + std::string(name == nullptr ? "?" : name) +
                      " was changed");
    sigaction(static_cast<int>(number), &handlers_[number], nullptr);
  }
  for (const auto& [fd, descriptor] : descriptors_) {
    if (now.holds({fd, descriptor})) continue;
    changes.push_back("descriptor " + std::to_string(fd) + " (" + descriptor.target +
                      ") was closed");
  }
  return changes;
}

bool ProcessState::holds(const std::pair<const int, Descriptor>& descriptor) const {
  const auto found = descriptors_.find(descriptor.first);
  return found != descriptors_.end() && found->second == descriptor.second;
}

}  // namespace bp::conformance
