// Fuzzes the reader of ONNX models. Either the model is refused with a text that names it and says
// why, or it has been checked: reading it again gives the same nodes.
#include <string>

#include "api/fuzz/fuzz.hpp"
#include "backplane/runtime/onnx.hpp"
#include "runtime/test_device.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using bp::fuzz::check;
  const std::string_view bytes = bp::fuzz::text_of(data, size);
  try {
    const auto model = bp::OnnxModel::parse(bytes, "m.onnx", bp::test_device(), false);
    const auto again = bp::OnnxModel::parse(bytes, "m.onnx", bp::test_device(), false);
    check(model.nodes().size() == again.nodes().size(), "a second reading gives the same nodes");
    for (const bp::OnnxNodeInfo& node : model.nodes()) {
      check(node.is_supported == node.reason.empty(), "a node that cannot run has a reason",
            node.op_type);
    }
  } catch (const bp::Error& e) {
    const std::string_view words = e.what();
    check(words.starts_with("m.onnx: ") && words.size() > 12,
          "a refusal names the model and says why", words);
  }
  return 0;
}
