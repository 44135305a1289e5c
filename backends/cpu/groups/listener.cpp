#include "backends/cpu/groups/listener.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cpu/groups/pipe_signal.hpp"
#include "backends/cpu/shm/lanes.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/group_checks.hpp"

namespace bp::cpu {
namespace {

constexpr std::string_view kKeys[] = {"interface", "hostname", shm::kOption};

// Refuses an interface that this host lacks. Gloo says only that it found none.
void check_interface(const std::string& name, const char* call) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) refuse(BP_INTERNAL, std::string(call) + ": getifaddrs failed");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<std::string> names;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const auto family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (std::ranges::find(names, at->ifa_name) == names.end()) names.emplace_back(at->ifa_name);
  }
  if (std::ranges::find(names, name) != names.end()) return;
  std::string allowed;
  for (const std::string& one : names) allowed += (allowed.empty() ? "" : ", ") + one;
  refuse(BP_INVALID_ARGUMENT, std::string(call) + ": option interface: \"" + name +
                                  "\" is no interface with an address; there are " + allowed);
}

// Returns the name of this host.
std::string own_name() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// Returns whether this host can listen at an address. If not, errno says why.
bool can_bind(const addrinfo& at) {
  const int socket = ::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol);
  if (socket == -1) return false;
  const bool is_bound = bind(socket, at.ai_addr, at.ai_addrlen) == 0;
  const int error = errno;
  ::close(socket);
  errno = error;
  return is_bound;
}

// Refuses a name at which this host cannot listen. If the name has no address, Gloo would read a
// list that nobody made; if the address is of another host, it would lose memory.
void check_hostname(const std::string& name, const std::string& what) {
  const auto refuse_name = [&](const std::string& why) {
    refuse(BP_INVALID_ARGUMENT,
           what + " \"" + name + "\" " + why + "; give the option interface, or another hostname");
  };
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &list);
  if (error != 0) refuse_name(std::string("has no address (") + gai_strerror(error) + ")");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    if (can_bind(*at)) return;
  }
  refuse_name(std::string("has no address at which this host can listen (") + std::strerror(errno) +
              ")");
}

// Gives threads that the calling thread makes meanwhile the policy SCHED_BATCH. The loop of Gloo
// spins while another thread of the process writes to a connection. If the loop has just taken the
// processor of that thread, it spins for a tick of the scheduler, 4 ms. A thread of this policy
// does not take the processor of one that runs.
class BatchPolicy {
 public:
  BatchPolicy() {
    sched_param none{};
    is_set_ = pthread_getschedparam(pthread_self(), &before_, &parameters_) == 0 &&
              before_ == SCHED_OTHER &&
              pthread_setschedparam(pthread_self(), SCHED_BATCH, &none) == 0;
  }
  ~BatchPolicy() {
    if (is_set_) pthread_setschedparam(pthread_self(), before_, &parameters_);
  }
  BatchPolicy(const BatchPolicy&) = delete;

 private:
  int before_ = SCHED_OTHER;
  sched_param parameters_{};
  bool is_set_ = false;
};

}  // namespace

ListenOptions read_listen_options(const bp_process_group_desc& desc, const char* table_name) {
  ListenOptions options;
  for (const auto& [key, value] : read_group_options(desc, table_name, kKeys)) {
    if (key == shm::kOption) {
      options.shares_memory = shm::read_option(value);
      continue;
    }
    if (value.empty()) {
      refuse(BP_INVALID_ARGUMENT,
             "create: option " + std::string(key) + " is empty; it must be a name");
    }
    (key == kKeys[0] ? options.interface_name : options.hostname) = value;
  }
  if (!options.interface_name.empty() && !options.hostname.empty()) {
    refuse(BP_INVALID_ARGUMENT,
           "create: the options interface and hostname are given; only one of them is allowed");
  }
  return options;
}

std::shared_ptr<gloo::transport::tcp::Device> listen(const ListenOptions& options, bool is_local,
                                                     const char* call) {
  gloo::transport::tcp::attr attr;
  if (!options.interface_name.empty()) {
    check_interface(options.interface_name, call);
    attr.iface = options.interface_name;
  } else if (!options.hostname.empty()) {
    check_hostname(options.hostname, std::string(call) + ": option hostname:");
    attr.hostname = options.hostname;
  } else if (is_local) {
    attr.hostname = "127.0.0.1";
  } else {
    attr.hostname = own_name();
    check_hostname(attr.hostname, std::string(call) + ": the name of this host,");
  }
  const BlockedPipeSignal blocked;  // The device makes a thread that writes.
  const BatchPolicy batch;
  try {
    return std::make_shared<gloo::transport::tcp::Device>(
        gloo::transport::tcp::CreateDeviceAttr(attr));
  } catch (const std::exception& e) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": this host cannot listen at \"" +
                                    attr.hostname + attr.iface + "\": " + e.what());
  }
}

QuickLoop::QuickLoop(std::shared_ptr<gloo::transport::tcp::Device> device)
    : device_(std::move(device)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (timer_ == -1) return;
  constexpr timespec kPeriod{.tv_sec = 0, .tv_nsec = 500'000};
  const itimerspec periodic{.it_interval = kPeriod, .it_value = kPeriod};
  timerfd_settime(timer_, 0, &periodic, nullptr);
  device_->registerDescriptor(timer_, EPOLLIN, this);
}

QuickLoop::~QuickLoop() {
  if (timer_ == -1) return;
  std::unique_lock lock(mutex_);
  is_stopping_ = true;
  ended_.wait(lock, [this] { return is_ended_; });
  ::close(timer_);
}

// Only the thread of the loop can take the timer away without waiting for a turn.
void QuickLoop::handleEvents(int) {
  uint64_t turns = 0;
  static_cast<void>(::read(timer_, &turns, sizeof(turns)) == sizeof(turns));
  const std::lock_guard lock(mutex_);
  if (!is_stopping_ || is_ended_) return;
  device_->unregisterDescriptor(timer_, this);
  is_ended_ = true;
  ended_.notify_all();
}

}  // namespace bp::cpu
