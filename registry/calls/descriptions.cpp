#include "registry/calls/descriptions.hpp"

#include "backplane/host.h"
#include "registry/boundary/fail.hpp"
#include "registry/calls/call.hpp"
#include "registry/calls/runtime_ops.hpp"

// NOLINTNEXTLINE(google-build-using-namespace): the function below is the namespace's C API.
using namespace bp::core;

bp_status bp_op_describe(uint32_t op, const bp_op_desc** out_desc) {
  if (out_desc == nullptr) return bp::is_null("bp_op_describe: out_desc");
  const OpRow* row = find_op(op);
  if (row == nullptr) return unknown_op(op);
  *out_desc = is_runtime_op(*row) ? &runtime_desc(*row) : &descriptions()[row->index];
  return BP_OK;
}
