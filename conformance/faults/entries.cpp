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

// A device with coherent memory has nothing to flush or to invalidate, a map of fewer bytes is at
// the same address, and a default stream is made once.
bool Entry::can_have(std::string_view kind) const {
  const bool is_hint = name == "flush" || name == "invalidate";
  const bool is_of_range = kind.starts_with("short") || kind.starts_with("offset_");
  if (is_of_range && (is_hint || (name == "map" && kind.starts_with("short")))) return false;
  if (kind == "skipped") return !signature.has_out && !is_hint;
  if (kind == "twice") return signature.has_new_handle && name != "default_stream";
  if (kind == "out_on_failure") return signature.has_out;
  if (kind == "number_off") return signature.has_number_out && !signature.waits;
  if (kind == "early") return signature.waits;
  if (kind == "short1" || kind == "short16") return signature.has_range;
  if (kind.starts_with("offset_")) return signature.has_range;
  return true;  // A status can always be wrong.
}

}  // namespace bp::faults
