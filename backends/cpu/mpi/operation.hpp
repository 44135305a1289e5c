// One operation of MPI with the memory that it uses.
//
// MPI cannot end an operation whose other ranks do not come, and goes on to use its memory. So an
// operation never has memory of the caller, only a block of its own, which the module frees later
// if need be.
#pragma once

#include <cstddef>
#include <utility>

#include "backends/cpu/mpi/api.hpp"

namespace bp::mpi {

// Memory of an operation, from std::malloc().
class Block {
 public:
  explicit Block(size_t size_bytes);  // Throws std::bad_alloc.
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  std::byte* release();  // It must be given to std::free().

 private:
  std::byte* data_;
  size_t size_bytes_;
};

// One thread uses an operation.
class Pending {
 public:
  // Begins the operation, whose memory and arrays are in `block`. Throws StatusError.
  Pending(const Api& api, Communicator* communicator, const RequestDesc& desc, Block block);
  // Abandons an operation that is not over.
  ~Pending();
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&& other) noexcept;

  // Returns whether the operation is over. Throws StatusError if MPI says that it has failed.
  bool is_done();
  std::byte* data() const { return block_.data(); }

  // Takes the memory of an operation that is over.
  Block take_block() { return std::move(block_); }

  // Ends a receive that no message has met.
  void cancel();

 private:
  const Api* api_;
  Block block_;
  Request* request_ = nullptr;
};

}  // namespace bp::mpi
