#include "backends/cpu/mpi/operation.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "backends/cpu/mpi/library.hpp"

namespace bp::mpi {

Block::Block(size_t size_bytes)
    : data_(static_cast<std::byte*>(std::malloc(std::max<size_t>(size_bytes, 1)))),
      size_bytes_(size_bytes) {
  if (data_ == nullptr) throw std::bad_alloc();
}

Block::~Block() { std::free(data_); }

Block::Block(Block&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

std::byte* Block::release() { return std::exchange(data_, nullptr); }

Pending::Pending(const Api& api, Communicator* communicator, const RequestDesc& desc, Block block)
    : api_(&api), block_(std::move(block)) {
  check(api, api.begin(communicator, &desc, &request_), BP_INTERNAL, "an operation does not begin");
}

Pending::~Pending() {
  if (request_ != nullptr) api_->abandon(request_, block_.release());
}

Pending::Pending(Pending&& other) noexcept
    : api_(other.api_),
      block_(std::move(other.block_)),
      request_(std::exchange(other.request_, nullptr)) {}

Pending& Pending::operator=(Pending&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(block_, other.block_);
  std::swap(request_, other.request_);
  return *this;
}

bool Pending::is_done() {
  if (request_ == nullptr) return true;
  bool is_over = false;
  const int error = api_->test(request_, &is_over);
  if (is_over) request_ = nullptr;
  if (error == kFinalized) block_.release();  // MPI may still write to it.
  check(*api_, error, BP_ABORTED, "an operation has failed");
  return is_over;
}

void Pending::cancel() {
  if (request_ == nullptr) return;
  if (api_->cancel(std::exchange(request_, nullptr)) == kFinalized) block_.release();
}

}  // namespace bp::mpi
