// How the calls on a target were served, in words.
#include "registry/dispatch_report.hpp"

#include <utility>

#include "registry/fail.hpp"
#include "registry/guard.hpp"
#include "registry/out_text.hpp"
#include "registry/state.hpp"

namespace bp::core {
namespace {

struct Sum {
  uint64_t native = 0, decomposed = 0, host_fallback = 0, copied_scalars = 0;

  void add(const DispatchCounts& counts) {
    native += counts.native;
    decomposed += counts.decomposed;
    host_fallback += counts.host_fallback;
    copied_scalars += counts.copied_scalars;
  }
  [[nodiscard]] uint64_t launches() const { return native + decomposed + host_fallback; }
  [[nodiscard]] bool is_native() const { return decomposed == 0 && host_fallback == 0; }
};

std::string counts_text(const Sum& sum) {
  std::string text = std::to_string(sum.launches()) + " launches: " + std::to_string(sum.native) +
                     " native, " + std::to_string(sum.decomposed) + " decomposed, " +
                     std::to_string(sum.host_fallback) + " on the host";
  if (sum.copied_scalars != 0) {
    text += "; " + std::to_string(sum.copied_scalars) + " inline scalars were copied to the device";
  }
  return text;
}

// The explanation without its first line, which names the target once more.
std::string lines_of(const std::string& reason) {
  const size_t end = reason.find('\n');
  return end == std::string::npos ? "" : reason.substr(end);
}

std::string report(const Target& target, bool has_reasons) {
  Sum all;
  std::string lines;
  for (const OpRow& row : op_rows()) {
    Sum one;
    one.add(target.counts[row.index]);
    all.add(target.counts[row.index]);
    if (has_reasons && !one.is_native()) {
      lines += "\n" + std::string(row.name) + ": " + counts_text(one);
      lines += lines_of(target.reasons.of(row.index));
    }
  }
  return std::string(target.name) + ": " + counts_text(all) + lines;
}

}  // namespace

void FirstReasons::keep(uint32_t op_index, std::string text) {
  const std::lock_guard lock(mutex_);
  texts_.try_emplace(op_index, std::move(text));
}

std::string FirstReasons::of(uint32_t op_index) const {
  const std::lock_guard lock(mutex_);
  const auto found = texts_.find(op_index);
  return found == texts_.end() ? "" : found->second;
}

}  // namespace bp::core

bp_status bp_target_report(const bp_target* target, bp_report_flags flags, uint64_t capacity,
                           char* text, uint64_t* out_size) {
  return bp::core::guarded([&]() -> bp_status {
    if (target == nullptr) return bp::is_null("target");
    if ((flags & ~static_cast<bp_report_flags>(BP_REPORT_REASONS)) != 0) {
      return bp::fail(BP_INVALID_ARGUMENT,
                      "flags is " + std::to_string(flags) + "; allowed is BP_REPORT_REASONS");
    }
    const auto& impl = *static_cast<const bp::core::Target*>(target);
    return bp::core::write_text(bp::core::report(impl, (flags & BP_REPORT_REASONS) != 0), capacity,
                                text, out_size);
  });
}
