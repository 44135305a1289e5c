// The equations of Einsum.
#pragma once

#include <string>
#include <vector>

#include "runtime/io/onnx/call.hpp"

namespace bp::onnx {

// Returns the sum of products that `equation` describes, such as "bij,bjk->bik". Letters name axes;
// "..." stands for axes that broadcast. Without "->" the result has the letters that are there
// once.
Tensor einsum(const Call& call, const std::string& equation, const std::vector<Tensor>& inputs);

}  // namespace bp::onnx
