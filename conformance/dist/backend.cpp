#include "conformance/dist/backend.hpp"

#include <algorithm>

#include "backplane/staged.h"

namespace bp::conformance::dist {

std::string failure_text(bp_status status) {
  return std::string(bp_status_name(status)) + ": " + bp_error_text();
}

Backend::Backend(const WorkerSetup& setup) {
  const bp_registry_desc desc{
      .struct_size = sizeof(bp_registry_desc),
      .struct_type = BP_STRUCT_REGISTRY_DESC,
      .layers = setup.layers.empty() ? nullptr : setup.layers.c_str(),
      .layer_options = setup.layer_options.empty() ? nullptr : setup.layer_options.c_str()};
  bp_registry* registry = nullptr;
  const bp_status status = bp_registry_create(&desc, &registry);
  if (status != BP_OK) throw RankError("no registry: " + failure_text(status));
  registry_.reset(registry);

  std::vector<bp_option> options;
  for (const auto& [key, value] : setup.options) options.push_back({key.c_str(), value.c_str()});
  load(setup.plugin, options, targets_);
  if (targets_.empty()) throw RankError("the plugin loads, but has no device");
  if (!setup.device.empty()) {
    std::erase_if(targets_, [&](const bp_target* target) {
      return setup.device != std::to_string(target->index) && setup.device != target->name;
    });
    if (targets_.empty()) throw RankError("the plugin has no device \"" + setup.device + "\"");
  }
  if (!setup.transport.empty()) {
    stage(setup.transport);
    return;
  }
  for (uint64_t i = 0; i < bp_target_process_groups_count(targets_[0]); ++i) {
    tables_.push_back(bp_target_process_groups(targets_[0], i));
    names_.emplace_back(tables_.back()->name);
  }
}

const bp_plugin* Backend::load(const std::string& plugin, const std::vector<bp_option>& options,
                               std::vector<const bp_target*>& out_targets) {
  const bp_plugin* loaded = nullptr;
  const bp_status status =
      bp_registry_load(registry_.get(), plugin.c_str(), options.size(), options.data(), &loaded);
  if (status != BP_OK) throw RankError(plugin + " does not load: " + failure_text(status));
  ++plugin_count_;
  for (uint64_t i = 0; i < bp_registry_target_count(registry_.get()); ++i) {
    const bp_target* const target = bp_registry_target(registry_.get(), i);
    if (target->plugin == loaded) out_targets.push_back(target);
  }
  return loaded;
}

void Backend::stage(const std::string& transport) {
  std::vector<const bp_target*> hosts;
  load(transport, {}, hosts);
  if (hosts.empty()) throw RankError("the transport " + transport + " has no device");
  for (uint64_t i = 0; i < bp_target_process_groups_count(hosts[0]); ++i) {
    const char* const name = bp_target_process_groups(hosts[0], i)->name;
    const bp_process_group_ops* staged = nullptr;
    const bp_status status = bp_staged_groups(targets_[0], hosts[0], name, &staged);
    if (status != BP_OK) {
      throw RankError("no staged groups over " + transport + ": " + failure_text(status));
    }
    tables_.push_back(staged);
    names_.emplace_back(name);
  }
}

const bp_process_group_ops& Backend::table(const std::string& name) const {
  const auto found = name.empty() ? names_.begin() : std::ranges::find(names_, name);
  if (found != names_.end()) return *tables_[static_cast<size_t>(found - names_.begin())];
  std::string all;
  for (const std::string& one : names_) all += (all.empty() ? "" : ", ") + one;
  throw RankError("there is no table \"" + name + "\" of process groups; " +
                  (all.empty() ? "the device has none" : "the device has " + all));
}

}  // namespace bp::conformance::dist
