#include "conformance/faults/entries.hpp"

namespace bp::faults {
namespace {

template <typename Table, typename... Arguments>
constexpr Signature read_signature(bp_status (*Table::*)(void*, Arguments...),
                                   std::string_view entry) {
  return signature_of<Arguments...>(entry);
}

constexpr Entry kEntries[] = {
#define BP_ENTRY(table, type, entry) {#table, #entry, read_signature(&type::entry, #entry)},
#include "conformance/faults/entries.def"
};

}  // namespace

std::span<const Entry> entries() { return kEntries; }

bool Entry::can_have(std::string_view kind) const {
  if (kind == "skipped") return !signature.has_out;
  if (kind == "twice") return signature.has_new_handle;
  if (kind == "out_on_failure") return signature.has_out;
  if (kind == "number_off") return signature.has_number_out && !signature.waits;
  if (kind == "early") return signature.waits;
  if (kind == "short1" || kind == "short16") return signature.has_range;
  if (kind.starts_with("offset_")) return signature.has_range;
  return true;  // A status can always be wrong.
}

}  // namespace bp::faults
