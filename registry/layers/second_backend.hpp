// Loads a backend beside the one that a layer stands in front of. It runs launches again, on copies
// of their tensors.
//
//   buffer of the first:  ...|begin ------ tensors of the launch ------ end|...
//   bytes, in host memory:   |---------------------------------------------|
//   buffer of the second: |..|---------------------------------------------|   aligned as there
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backplane/registry.hpp"
#include "registry/layers/layer.hpp"
#include "registry/layers/record_frame.hpp"

namespace bp::layers {

// The part of one buffer that the tensors of a launch cover.
struct Part {
  uint64_t begin = UINT64_MAX, end = 0;
  std::vector<unsigned char> bytes;  // The bytes from `begin` to `end`.
};

using Parts = std::map<bp_buffer*, Part>;

// Returns the parts that these tensors cover, filled with zeros.
Parts parts_of(const std::vector<FrameTensor>& arguments);

// Fills the parts from the buffers, after the work submitted to `stream`. Waits for the stream.
bp_status read_parts(const bp_allocator_ops& memory, bp_stream* stream, Parts& parts);

class SecondBackend {
 public:
  // Loads the backend of this name or path. Its lines of log go where the layer's lines go.
  bp_status load(const Setup& setup, const std::string& name_or_path);
  void unload();

  // Returns the name of its first device.
  const char* device_name() const { return target_->name; }

  // Runs the op on copies of the parts, and writes the results back into the parts. A failure of
  // the work belongs to this call alone.
  Status run(const core::OpRow& row, bp_launch_flags flags, const void* args, Parts& parts);

 private:
  Status submit(const core::OpRow& row, bp_launch_flags flags, const void* args, Parts& parts);
  using Blocks = std::map<bp_buffer*, BlockHandle>;
  Status fill(const Parts& parts, Blocks& blocks);

  std::unique_ptr<Registry> registry_;
  const bp_target* target_ = nullptr;
};

}  // namespace bp::layers
