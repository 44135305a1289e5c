// CRC-32C, the checksum of blocks of checkpoints (RFC 3720, appendix B.4): it finds every error of
// up to 32 bits that lie behind each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bp::distributed {

uint32_t crc32c(const void* bytes, size_t size);

// The same for processors without an instruction for it.
uint32_t crc32c_by_tables(const void* bytes, size_t size);

}  // namespace bp::distributed
