#include "registry/layers/replays.hpp"

#include <algorithm>
#include <iterator>

namespace bp::layers {

void Replays::begin(bp_stream* origin, const bp_capture_desc* desc) {
  Capture& capture = captures_[origin];
  capture = {};
  capture.hazards.add_stream(origin, nullptr);
  Recorded& recorded = capture.recorded;
  if (desc != nullptr && desc->slot_count != 0) {
    recorded.slots.assign(desc->slots, desc->slots + desc->slot_count);
  }
}

void Replays::add(bp_stream* origin, const std::vector<Access>& accesses) {
  const auto found = captures_.find(origin);
  if (found == captures_.end()) return;
  std::vector<Access>& all = found->second.recorded.accesses;
  std::ranges::copy_if(accesses, std::back_inserter(all),
                       [](const Access& access) { return !access.where.is_empty(); });
}

Hazards* Replays::hazards(bp_stream* origin) {
  const auto found = captures_.find(origin);
  return found == captures_.end() ? nullptr : &found->second.hazards;
}

void Replays::end(bp_stream* origin, bp_graph* graph) {
  const auto found = captures_.find(origin);
  if (found == captures_.end()) return;
  Recorded recorded = std::move(found->second.recorded);
  captures_.erase(found);
  if (graph == nullptr) return;
  // Much of a graph touches the same bytes. A replay is one piece of work, so each access counts
  // once.
  std::ranges::sort(recorded.accesses);
  recorded.accesses.erase(std::unique(recorded.accesses.begin(), recorded.accesses.end()),
                          recorded.accesses.end());
  graphs_[graph] = std::make_shared<const Recorded>(std::move(recorded));
}

void Replays::instantiate(bp_graph* graph, bp_graph_instance* instance) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return;
  instances_[instance] = {found->second, found->second->slots};
}

void Replays::update(bp_graph_instance* instance, bp_graph* graph) {
  const auto known = instances_.find(instance);
  const auto from = graphs_.find(graph);
  if (known == instances_.end() || from == graphs_.end()) return;
  known->second.recorded = from->second;
  known->second.bound = from->second->slots;
}

void Replays::bind(bp_graph_instance* instance, uint64_t slot, const bp_buffer_ref& range) {
  const auto known = instances_.find(instance);
  if (known != instances_.end() && slot < known->second.bound.size()) {
    known->second.bound[slot] = range;
  }
}

std::vector<Access> Replays::accesses(bp_graph_instance* instance) const {
  const auto known = instances_.find(instance);
  if (known == instances_.end()) return {};
  const Recorded& recorded = *known->second.recorded;
  std::vector<Access> all = recorded.accesses;
  for (Access& access : all) {
    Footprint& where = access.where;
    for (size_t i = 0; i < recorded.slots.size(); ++i) {
      const bp_buffer_ref& slot = recorded.slots[i];
      const bp_buffer_ref& bound = known->second.bound[i];
      if (where.buffer != slot.buffer || where.begin < slot.byte_offset ||
          where.end > slot.byte_offset + slot.size_bytes) {
        continue;
      }
      where.buffer = bound.buffer;
      where.begin = where.begin - slot.byte_offset + bound.byte_offset;
      where.end = where.end - slot.byte_offset + bound.byte_offset;
      break;
    }
  }
  return all;
}

bp_event* Replays::mark(bp_graph_instance* instance) {
  const auto known = instances_.find(instance);
  return known == instances_.end() ? nullptr : reinterpret_cast<bp_event*>(&known->second);
}

}  // namespace bp::layers
