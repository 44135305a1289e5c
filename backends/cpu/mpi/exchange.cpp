#include "backends/cpu/mpi/exchange.hpp"

#include <algorithm>
#include <utility>

namespace bp::mpi {

Exchange::Exchange(Channel& channel, int tag, size_t capacity)
    : channel_(channel), tag_(tag), in_(channel.size), has_come_(channel.size) {
  for (uint32_t peer = 0; peer < channel.size; ++peer) {
    if (peer != channel.rank) in_[peer] = channel.receive(static_cast<int>(peer), tag, capacity);
  }
}

void Exchange::send(uint32_t peer, Block message, size_t size_bytes) {
  out_.push_back(channel_.send(peer, tag_, std::move(message), size_bytes));
}

bool Exchange::poll() {
  bool is_whole = true;
  for (uint32_t peer = 0; peer < channel_.size; ++peer) {
    if (!in_[peer] || has_come_[peer]) continue;
    has_come_[peer] = channel_.ends(*in_[peer]);
    is_whole &= has_come_[peer];
  }
  std::erase_if(out_, [&](Pending& sent) { return channel_.ends(sent); });
  return is_whole && out_.empty();
}

}  // namespace bp::mpi
