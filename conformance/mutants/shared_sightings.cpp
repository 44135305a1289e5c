#include "conformance/mutants/shared_sightings.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bp::mutants {

SharedSightings::~SharedSightings() {
  if (shared_ != nullptr) munmap(shared_, sizeof(*shared_));
}

bool SharedSightings::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  struct stat status {};
  constexpr size_t kBytes = sizeof(faults::Sightings);
  void* mapped = MAP_FAILED;
  if (fstat(file, &status) == 0 && static_cast<size_t>(status.st_size) >= kBytes) {
    mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (mapped == MAP_FAILED) return false;
  shared_ = static_cast<faults::Sightings*>(mapped);
  return true;
}

}  // namespace bp::mutants
