#include "backends/vulkan/cache_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace bp::vulkan {
namespace {

constexpr char kMagic[8] = {'B', 'P', 'V', 'K', 'P', 'C', '0', '1'};

struct Header {
  char magic[8];
  uint64_t size_bytes, hash;
};

// The driver's header, with the layout of VkPipelineCacheHeaderVersionOne.
struct DriverHeader {
  uint32_t size_bytes, version, vendor_id, device_id;
  uint8_t uuid[16];
};
constexpr uint32_t kDriverHeaderVersion = 1;

uint64_t hash_of(const std::vector<std::byte>& data) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : data) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
  return hash;
}

bool is_of(const std::vector<std::byte>& data, const CacheIdentity& identity) {
  DriverHeader header{};
  if (data.size() < sizeof(header)) return false;
  std::memcpy(&header, data.data(), sizeof(header));
  return header.version == kDriverHeaderVersion && header.vendor_id == identity.vendor_id &&
         header.device_id == identity.device_id &&
         std::memcmp(header.uuid, identity.uuid.data(), sizeof(header.uuid)) == 0;
}

bool write_all(int file, const void* bytes, size_t size) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(file, next, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

// Replaces a file as registry/files/whole_file.hpp does; a plugin cannot call its host's code. It
// writes a draft with a unique name, follows no link, and then renames the draft. It does not call
// fsync(), because the hash shows damage.
bool replace_file(const std::string& path, const Header& header,
                  const std::vector<std::byte>& data) {
  std::string draft = path + ".XXXXXX";
  const int file = ::mkostemp(draft.data(), O_CLOEXEC);
  if (file < 0) return false;
  bool is_written =
      write_all(file, &header, sizeof(header)) && write_all(file, data.data(), data.size());
  is_written = ::close(file) == 0 && is_written;
  if (is_written && std::rename(draft.c_str(), path.c_str()) == 0) return true;
  const int error = errno;
  ::unlink(draft.c_str());
  errno = error;
  return false;
}

}  // namespace

std::vector<std::byte> read_cache(const std::string& path, const CacheIdentity& identity,
                                  std::string& out_warning) {
  std::error_code error;
  // Opening a FIFO would wait for a writer.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    out_warning = "the pipeline cache " + path + " is no regular file, and is not used";
    return {};
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  Header header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  std::vector<std::byte> data;
  bool is_whole = file && !error && std::memcmp(header.magic, kMagic, sizeof(kMagic)) == 0 &&
                  header.size_bytes == file_bytes - sizeof(header);
  if (is_whole) {
    data.resize(header.size_bytes);
    file.read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(data.size()));
    is_whole = file && hash_of(data) == header.hash;
  }
  if (!is_whole) {
    out_warning = "the pipeline cache " + path + " is damaged, and is not used";
    return {};
  }
  if (!is_of(data, identity)) {
    out_warning = "the pipeline cache " + path + " is of another device or driver, and is not used";
    return {};
  }
  return data;
}

bool write_cache(const std::string& path, const std::vector<std::byte>& data,
                 std::string& out_warning) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.size_bytes = data.size();
  header.hash = hash_of(data);
  if (replace_file(path, header, data)) return true;
  out_warning = "the pipeline cache " + path + " cannot be written: " + std::strerror(errno);
  return false;
}

}  // namespace bp::vulkan
