// Memory of the host between pages without access: a read or write beyond it ends the process, and
// so the case.
//
//   | no access | data() ............. size_bytes() | no access |
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <new>
#include <system_error>

namespace bp::conformance {

class FencedPages {
 public:
  // Allocates at least `size_bytes`, which are zero at first.
  explicit FencedPages(size_t size_bytes) : size_bytes_((size_bytes + kPage - 1) / kPage * kPage) {
    void* const pages = mmap(nullptr, size_bytes_ + 2 * kPage, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    pages_ = static_cast<std::byte*>(pages);
    // Without the fence no fault would be found, and the case would pass.
    if (mprotect(pages_, kPage, PROT_NONE) != 0 ||
        mprotect(pages_ + kPage + size_bytes_, kPage, PROT_NONE) != 0) {
      const std::system_error error(errno, std::generic_category(), "mprotect");
      munmap(pages_, size_bytes_ + 2 * kPage);
      throw error;
    }
  }
  ~FencedPages() { munmap(pages_, size_bytes_ + 2 * kPage); }
  FencedPages(const FencedPages&) = delete;
  FencedPages& operator=(const FencedPages&) = delete;

  std::byte* data() { return pages_ + kPage; }
  size_t size_bytes() const { return size_bytes_; }  // A multiple of kPage.

  static constexpr size_t kPage = size_t{1} << 16;  // The size is at least a page of any machine.

 private:
  size_t size_bytes_;
  std::byte* pages_;
};

// Memory that ends at such a fence.
class PageEnd {
 public:
  // Allocates `size_bytes`, at most kRoom, which are zero at first.
  explicit PageEnd(size_t size_bytes) : size_bytes_(size_bytes), pages_(kRoom) {}

  std::byte* data() { return pages_.data() + kRoom - size_bytes_; }
  size_t size() const { return size_bytes_; }

  static constexpr size_t kRoom = FencedPages::kPage;

 private:
  size_t size_bytes_;
  FencedPages pages_;
};

}  // namespace bp::conformance
