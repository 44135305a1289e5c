// Turns statuses and ops into names, and names of ops back.
#include <iterator>
#include <string_view>

#include "backplane/host.h"
#include "registry/calls/op_rows.hpp"
#include "registry/calls/runtime_ops.hpp"

namespace {

constexpr const char* kStatusNames[] = {
    "ok",       "invalid argument", "unsupported",   "out of memory", "device lost",
    "timeout",  "aborted",          "incompatible",  "not found",     "already exists",
    "internal", "data failure",     "stream failed",
};
static_assert(std::size(kStatusNames) == BP_STREAM_FAILED + 1);

}  // namespace

const char* bp_status_name(bp_status status) {
  if (status < 0) return "vendor status";
  return status <= BP_STREAM_FAILED ? kStatusNames[status] : "unknown status";
}

const char* bp_op_name(uint32_t op) {
  const bp::core::OpRow* row = bp::core::find_op(op);
  return row == nullptr ? bp::core::runtime_op_name(op) : row->name;
}

uint32_t bp_op_next(uint32_t op) {
  uint32_t next = 0;
  const auto consider = [&](const bp::core::OpRow& row) {
    if (row.op > op && (next == 0 || row.op < next)) next = row.op;
  };
  for (const bp::core::OpRow& row : bp::core::op_rows()) consider(row);
  if (next != 0) return next;
  for (const bp::core::OpRow* row : bp::core::runtime_op_rows()) consider(*row);
  return next;
}

uint32_t bp_kernel_op(const bp_kernel* kernel) {
  return kernel == nullptr ? 0 : bp::core::op_of(*kernel);
}

uint32_t bp_op_from_name(const char* name) {
  for (const bp::core::OpRow& row : bp::core::op_rows()) {
    if (name != nullptr && std::string_view(name) == row.name) return row.op;
  }
  const uint32_t op = name == nullptr ? 0 : bp::core::runtime_op_number(name);
  return bp::core::find_op(op) == nullptr ? 0 : op;
}
