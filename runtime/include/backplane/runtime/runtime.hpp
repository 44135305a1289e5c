// Includes every header of the runtime.
#pragma once

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/capture.hpp"
#include "backplane/runtime/data.hpp"
#include "backplane/runtime/device.hpp"
#include "backplane/runtime/distributed/ddp.hpp"
#include "backplane/runtime/distributed/fsdp.hpp"
#include "backplane/runtime/distributed/launch.hpp"
#include "backplane/runtime/distributed/process_group.hpp"
#include "backplane/runtime/distributed/store.hpp"
#include "backplane/runtime/error.hpp"
#include "backplane/runtime/nn.hpp"
#include "backplane/runtime/ops.hpp"
#include "backplane/runtime/optim.hpp"
#include "backplane/runtime/progress.hpp"
#include "backplane/runtime/safetensors.hpp"
#include "backplane/runtime/tensor.hpp"
