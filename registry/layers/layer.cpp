#include "registry/layers/layer.hpp"

#include "registry/boundary/prefix.hpp"
#include "registry/layers/slots.hpp"

namespace bp::layers {
namespace {

constexpr std::string_view kSlotNames[] = {
#define BP_WORDS(words) #words
// NOLINTNEXTLINE(bugprone-macro-parentheses): these are words.
#define BP_SLOT(table, noun, slot, presence, gone) BP_WORDS(noun.slot),
#include "registry/boundary/slots.def"
#undef BP_WORDS
    "kernel.supports",  "kernel.workspace_size", "kernel.launch",       "kernel.prepare",
    "kernel.plan_info", "kernel.plan_pack",      "kernel.plan_release",
};
static_assert(std::size(kSlotNames) == kSlotCount);

}  // namespace

void Layer::set_backend_name(const std::string& name, const char* layer_name) {
  backend_name_ = name;
  source_ = name + "/" + layer_name;
}

void wrap_host_table(const bp_host& next, Layer& layer, Wrapped<bp_host>& ours) {
  core::copy_prefix(next, ours.next);
  ours.layer = &layer;
  ours.table = ours.next;
  ours.table.self = &ours;
  pass_on<bp_host, &bp_host::set_error>(ours.table.set_error);
  pass_on<bp_host, &bp_host::log_line>(ours.table.log_line);
  pass_on<bp_host, &bp_host::get_option>(ours.table.get_option);
  pass_on<bp_host, &bp_host::allocate>(ours.table.allocate);
  pass_on<bp_host, &bp_host::deallocate>(ours.table.deallocate);
  pass_on<bp_host, &bp_host::op_find>(ours.table.op_find);
  pass_on<bp_host, &bp_host::op_describe>(ours.table.op_describe);
}

std::string_view slot_name(Slot slot) { return kSlotNames[static_cast<uint32_t>(slot)]; }

}  // namespace bp::layers
