#include "registry/layers/site.hpp"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string_view>

namespace bp::layers {
namespace {

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%" PRIx64, value);
  return text;
}

std::string frame_words(void* frame) {
  // A return address may lie behind the last byte of its function.
  const char* const code = static_cast<const char*>(frame) - 1;
  const auto address = reinterpret_cast<uintptr_t>(code);
  Dl_info info{};
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) {
    return hex(address);
  }
  std::string place = std::string(file_name(info.dli_fname)) + "+" +
                      hex(address - reinterpret_cast<uintptr_t>(info.dli_fbase));
  if (info.dli_sname == nullptr) return place;
  return std::string(info.dli_sname) + " (" + place + ")";
}

}  // namespace

Site Site::here(int skip) {
  constexpr int kOwn = 1;  // This function.
  std::array<void*, kFrames + 8> all{};
  const int count = backtrace(all.data(), static_cast<int>(all.size()));
  Site site;
  const int first = std::min(kOwn + skip, count);
  site.count_ = std::min(count - first, kFrames);
  std::copy_n(all.begin() + first, site.count_, site.frames_.begin());
  return site;
}

std::string Site::words() const {
  std::string text;
  for (int i = 0; i < count_; ++i) {
    text += (i == 0 ? "" : " < ") + frame_words(frames_[static_cast<size_t>(i)]);
  }
  return text;
}

}  // namespace bp::layers
