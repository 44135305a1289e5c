#include "backends/cpu/mpi/letter.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "backplane/shell/entry.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::mpi {
namespace {

constexpr uint64_t kFirstBytes = 4096, kPartBytes = 512 << 10;
constexpr size_t kRunning = 3;

struct Header {
  uint64_t count;
  uint64_t dtype;
};

uint64_t bytes_of(const RankCall& call) {
  return call.count * static_cast<uint64_t>(dtype_size_bytes(call.dtype));
}

void check_header(const Header& sent, const RankCall& call) {
  if (sent.count == call.count && sent.dtype == call.dtype) return;
  refuse(BP_INVALID_ARGUMENT,
         "rank " + std::to_string(call.root) + " sends " + std::to_string(sent.count) +
             " elements of dtype " + std::to_string(sent.dtype) + ", rank " +
             std::to_string(call.rank) + " receives " + std::to_string(call.count) + " of dtype " +
             std::to_string(call.dtype));
}

}  // namespace

Letter::Letter(Channel& channel, const RankCall& call, uint64_t sequence)
    : channel_(channel),
      call_(call),
      memory_(call.kind == BP_COLLECTIVE_SEND ? call.send.get() : call.receive.get()),
      is_send_(call.kind == BP_COLLECTIVE_SEND),
      tag_(tag_of(Topic::kLetter, sequence)),
      size_bytes_(bytes_of(call)) {
  begin_part();
}

// The first part has a header before its elements.
void Letter::begin_part() {
  const bool is_first = begun_ == 0 && parts_.empty() && !has_header_;
  const uint64_t header_bytes = is_first ? sizeof(Header) : 0;
  const uint64_t size = std::min(is_first ? kFirstBytes : kPartBytes, size_bytes_ - begun_);
  if (is_send_) {
    Block block(header_bytes + size);
    const Header header{call_.count, call_.dtype};
    if (is_first) std::memcpy(block.data(), &header, sizeof(header));
    if (size != 0) std::memcpy(block.data() + header_bytes, memory_.address() + begun_, size);
    parts_.push_back(
        {size, channel_.send(call_.root, tag_, std::move(block), header_bytes + size)});
  } else {
    // Another letter than this one may come.
    const uint64_t capacity = header_bytes + (is_first ? kFirstBytes : size);
    parts_.push_back({size, channel_.receive(static_cast<int>(call_.root), tag_, capacity)});
  }
  begun_ += size;
}

void Letter::finish_part(const Part& part) {
  const std::byte* from = part.operation.data();
  if (!std::exchange(has_header_, true) && !is_send_) {
    Header header{};
    std::memcpy(&header, from, sizeof(header));
    check_header(header, call_);
    from += sizeof(header);
  }
  if (!is_send_ && part.size_bytes != 0) {
    std::memcpy(memory_.address() + ended_, from, part.size_bytes);
  }
  ended_ += part.size_bytes;
}

bool Letter::poll(bool /*is_its_turn*/) {
  while (!parts_.empty() && channel_.ends(parts_.front().operation)) {
    finish_part(parts_.front());
    parts_.pop_front();
  }
  // A receiver knows only from the header that there are more parts.
  const bool may_begin = is_send_ || has_header_;
  while (may_begin && begun_ < size_bytes_ && parts_.size() < kRunning) begin_part();
  return parts_.empty() && begun_ == size_bytes_;
}

bool Letter::awaits(uint32_t rank) const { return !is_send_ && rank == call_.root && !has_header_; }

}  // namespace bp::mpi
