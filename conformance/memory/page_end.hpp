// Bytes in front of a page that nobody may touch: whoever reads or writes behind them ends the
// process, and with it the case.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace bp::conformance {

class PageEnd {
 public:
  // The last `size_bytes` of the pages, zero at first. `size_bytes` is at most kRoom.
  explicit PageEnd(size_t size_bytes) : size_bytes_(size_bytes) {
    void* const pages =
        mmap(nullptr, kRoom + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    pages_ = static_cast<std::byte*>(pages);
    static_cast<void>(mprotect(pages_ + kRoom, kPage, PROT_NONE));
  }
  ~PageEnd() { munmap(pages_, kRoom + kPage); }
  PageEnd(const PageEnd&) = delete;
  PageEnd& operator=(const PageEnd&) = delete;

  std::byte* data() { return pages_ + kRoom - size_bytes_; }
  size_t size() const { return size_bytes_; }

  static constexpr size_t kPage = size_t{1} << 16;  // At least a page of any machine.
  static constexpr size_t kRoom = kPage;

 private:
  size_t size_bytes_;
  std::byte* pages_;
};

}  // namespace bp::conformance
