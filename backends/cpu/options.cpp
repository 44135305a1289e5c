#include "backends/cpu/options.hpp"

#include "backplane/shell/options.hpp"

namespace bp::cpu {

int read_thread_count(std::string_view text) {
  constexpr int kMaxThreadCount = 1024;
  return static_cast<int>(read_number("threads", text, 1, kMaxThreadCount));
}

Options read_options(const bp_host& host) {
  Options options;
  if (const auto value = find_option(host, "threads")) {
    options.thread_count = read_thread_count(*value);
  }
  return options;
}

}  // namespace bp::cpu
