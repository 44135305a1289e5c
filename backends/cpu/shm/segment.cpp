#include "backends/cpu/shm/segment.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <sstream>
#include <string_view>
#include <utility>

#include "backplane/shell/boundary.hpp"

namespace bp::shm {
namespace {

constexpr const char* kCall = "create";
constexpr const char* kPlaceKey = "shm/at/0";  // Of the file of rank 0.

std::string has_key(uint32_t rank) { return "shm/has/" + std::to_string(rank); }

std::string random_kind() {
  std::random_device random;
  std::ostringstream kind;
  kind << "backplane.cpu.ranks" << std::hex;
  for (int i = 0; i < 4; ++i) kind << "." << random();
  return kind.str();
}

// The file of rank 0, open until all ranks have it.
class Origin {
 public:
  explicit Origin(uint64_t size_bytes) : kind_(random_kind()) {
    try {
      file_.emplace(kCall, kind_, size_bytes);
      mapping_ = std::make_unique<Mapping>(kCall, *file_, size_bytes);
    } catch (const StatusError&) {  // The system has no room. Messages have to do.
    }
  }

  // Returns what the others need to know; "" if there is no file.
  std::string place() const {
    if (mapping_ == nullptr) return "";
    return std::to_string(getpid()) + " " + std::to_string(file_->descriptor()) + " " + kind_;
  }
  std::unique_ptr<Mapping> take() { return std::move(mapping_); }

 private:
  const std::string kind_;
  std::optional<MemoryFile> file_;
  std::unique_ptr<Mapping> mapping_;
};

// Opens the file that another rank has described. Returns nothing if this process cannot.
std::unique_ptr<Mapping> open_place(const std::string& place, uint64_t size_bytes) {
  std::istringstream words(place);
  int process = 0, descriptor = -1;
  std::string kind;
  if (!(words >> process >> descriptor >> kind)) return nullptr;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  // Its name is read first: to open another file than this could have effects.
  std::array<char, 256> target{};
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  const std::string_view name(target.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
  if (name.find(kind) == name.npos) return nullptr;
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return nullptr;
  std::unique_ptr<Mapping> mapping;
  try {
    mapping =
        std::make_unique<Mapping>(kCall, MemoryFile(kCall, kind, size_bytes, opened), size_bytes);
  } catch (const StatusError&) {  // It is another file, or there is no room.
  }
  close(opened);
  return mapping;
}

}  // namespace

std::unique_ptr<Mapping> share(const SegmentPlan& plan) {
  std::optional<Origin> origin;
  std::unique_ptr<Mapping> mapping;
  if (plan.rank == 0) {
    if (plan.is_wanted) origin.emplace(plan.size_bytes);
    plan.put(kPlaceKey, origin ? origin->place() : "");
    if (origin) mapping = origin->take();
  } else {
    const std::string place = plan.get(kPlaceKey, 0);
    if (plan.is_wanted) mapping = open_place(place, plan.size_bytes);
  }
  plan.put(has_key(plan.rank), mapping == nullptr ? "no" : "yes");
  bool have_all = true;
  for (uint32_t rank = 0; rank < plan.world_size; ++rank) {
    have_all &= plan.get(has_key(rank), rank) == "yes";
  }
  return have_all ? std::move(mapping) : nullptr;
}

}  // namespace bp::shm
