#include "backends/cpu/groups/exchange.hpp"

#include <utility>

namespace bp::cpu {

Exchange::Exchange(gloo::Context& context, uint64_t slot, std::vector<std::byte> sent,
                   size_t item_bytes)
    : sent_(std::move(sent)), received_(sent_.size()) {
  // Gloo only reads what it sends.
  from_ = context.createUnboundBuffer(const_cast<std::byte*>(sent_.data()), sent_.size());
  for (int step = 1; step < context.size; ++step) {
    const int next = (context.rank + step) % context.size;
    const int previous = (context.rank + context.size - step) % context.size;
    std::byte* const part = received_.data() + static_cast<size_t>(previous) * item_bytes;
    to_.push_back(context.createUnboundBuffer(part, item_bytes));
    to_.back()->recv(previous, slot);
    from_->send(next, slot, static_cast<size_t>(next) * item_bytes, item_bytes);
    ++to_leave_;
  }
}

const std::vector<std::byte>& Exchange::receive() {
  for (; come_ < to_.size(); ++come_) to_[come_]->waitRecv();
  return received_;
}

void Exchange::finish() {
  for (; to_leave_ > 0; --to_leave_) from_->waitSend();
}

std::vector<std::byte> exchange(gloo::Context& context, uint64_t slot, std::vector<std::byte> sent,
                                size_t item_bytes) {
  Exchange all(context, slot, std::move(sent), item_bytes);
  std::vector<std::byte> received = all.receive();
  all.finish();
  return received;
}

}  // namespace bp::cpu
