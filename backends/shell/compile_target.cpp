#include "backplane/shell/compile_target.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>

#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

constexpr const char* kNoRanges =
    "the described device takes no ranges; compile the program for each shape";
constexpr const char* kDescription = "a description of a device";

// Names the kernels by what decides which programs they run. Options of a load may change them.
std::array<uint64_t, 2> words_of_kernels(const CompilerBackend& backend) {
  Fingerprint words;
  for (const bp_kernel* kernel : backend.kernels) {
    words.add(std::string_view(kernel->name == nullptr ? "" : kernel->name));
    words.add((uint64_t{kernel->op} << 32) | kernel->flags);
    words.add(kernel->layout_claim_count);
  }
  return words.value();
}

std::string text_of(const CompilerLimits& limits) {
  std::string text;
  if (limits.chip_memory_bytes != 0) {
    text += ", a chip memory of " + std::to_string(limits.chip_memory_bytes) + " bytes";
  }
  if (limits.refusal_of_ranges != nullptr) text += ", fixed shapes";
  return text;
}

}  // namespace

CompileTarget target_of_device(const CompilerBackend& backend, bp_device* device) {
  const bp_device_ops& devices = backend.devices;
  const bp_device_properties* properties = nullptr;
  const bool is_known = devices.properties != nullptr &&
                        devices.properties(devices.self, device, &properties) == BP_OK;
  const char* const name = is_known ? properties->name : nullptr;
  return {.device = device,
          .limits = backend.limits,
          .names = {backend.identity,
                    (name == nullptr ? "a device without a name" : name) + text_of(backend.limits)},
          .layouts = backend.layouts};
}

std::vector<uint64_t> description_of(const CompilerBackend& backend, const CompileTarget& target) {
  std::vector<uint64_t> words{target.limits.chip_memory_bytes,
                              target.limits.refusal_of_ranges != nullptr ? 1u : 0u,
                              target.layouts != nullptr ? 1u : 0u};
  for (const uint64_t word : words_of_kernels(backend)) words.push_back(word);
  write_bytes(std::as_bytes(std::span(target.names.device)), words);
  return bytes_with_head({target.names.build, kDescription}, words);
}

CompileTarget target_of_bytes(const CompilerBackend& backend, const void* data, uint64_t size_bytes,
                              const std::string& call) {
  const std::string name = call + ": target";
  const std::vector<uint64_t> words =
      bytes_without_head({backend.identity, kDescription}, data, size_bytes, name);
  size_t position = 0;
  CompileTarget target;
  target.limits.chip_memory_bytes = next_word(words, position);
  if (next_word(words, position) != 0) target.limits.refusal_of_ranges = kNoRanges;
  const bool has_layouts = next_word(words, position) != 0;
  if (has_layouts) target.layouts = backend.layouts;
  std::array<uint64_t, 2> kernels{};
  for (uint64_t& word : kernels) word = next_word(words, position);
  if (kernels != words_of_kernels(backend) || (has_layouts && backend.layouts == nullptr)) {
    throw StatusError(BP_UNSUPPORTED,
                      name +
                          ": the backend was loaded with other options, and has other kernels "
                          "than the device that is described");
  }
  target.names = {backend.identity, read_text(words, position)};
  return target;
}

}  // namespace bp
