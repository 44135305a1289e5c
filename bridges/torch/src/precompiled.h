// The headers of PyTorch, compiled once.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>
