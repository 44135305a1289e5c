// The line of a launch in a recording, as values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/cases/engine/op_case.hpp"

namespace bp::conformance {

struct RecordedTensor {
  std::string_view name;  // The name of the frame's member; several tensors of one name make a
                          // list.
  Role role = Role::kInput;
  bp_dtype dtype = 0;
  Shape shape, strides;
  uint64_t buffer = 0;  // The number of the buffer; 0 if there is none, as for a tensor without
                        // elements.
  uint64_t byte_offset = 0;
};

struct RecordedLaunch {
  uint32_t op = 0;
  uint64_t number = 0;
  std::string kernel;
  bp_launch_flags flags = 0;
  std::vector<RecordedTensor> tensors;  // The tensors in the order of the frame.
  std::vector<Attribute> attributes;    // The attributes and the inline scalars.

  std::string op_name() const;

  // Returns words such as "launch 17 (softmax)".
  std::string words() const;
};

// Reads a launch. Throws UsageError, which names the wrong member.
RecordedLaunch read_launch(const nlohmann::json& line);

// The bytes from the lowest to the highest element; none if there are no elements.
struct ByteSpan {
  uint64_t begin = 0, end = 0;
};
ByteSpan span_of(const RecordedTensor& tensor);

// Calls visit(element, byte in the buffer) for each element in row-major order.
template <typename Visit>
void visit_elements(const RecordedTensor& tensor, uint64_t size_bytes, Visit&& visit) {
  const auto size = static_cast<int64_t>(size_bytes);
  const int64_t count = element_count(tensor.shape);
  std::vector<int64_t> index(tensor.shape.size(), 0);
  int64_t offset = 0;
  for (int64_t element = 0; element < count; ++element) {
    visit(element, tensor.byte_offset + static_cast<uint64_t>(offset * size));
    for (size_t axis = index.size(); axis-- > 0;) {
      offset += tensor.strides[axis];
      if (++index[axis] < tensor.shape[axis]) break;
      offset -= tensor.strides[axis] * tensor.shape[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace bp::conformance
