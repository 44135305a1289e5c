#include "backends/cpu/groups/listener.hpp"

#include <gloo/transport/tcp/device.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string_view>
#include <vector>

#include "backends/cpu/groups/pipe_signal.hpp"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/group_checks.hpp"

namespace bp::cpu {
namespace {

constexpr std::string_view kKeys[] = {"interface", "hostname"};

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

// Refuses a name that has no address. Gloo would read a list that nobody made.
void check_hostname(const std::string& name, const std::string& what) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &list);
  if (error == 0) return freeaddrinfo(list);
  refuse(BP_INVALID_ARGUMENT, what + " \"" + name + "\" has no address (" + gai_strerror(error) +
                                  "); give the option interface or hostname");
}

}  // namespace

ListenOptions read_listen_options(const bp_process_group_desc& desc, const char* table_name) {
  ListenOptions options;
  for (const auto& [key, value] : read_group_options(desc, table_name, kKeys)) {
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

std::shared_ptr<gloo::transport::Device> listen(const ListenOptions& options, bool is_local,
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
  try {
    return gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& e) {
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": this host cannot listen at \"" +
                                    attr.hostname + attr.iface + "\": " + e.what());
  }
}

}  // namespace bp::cpu
