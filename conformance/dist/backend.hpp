// The backend under test as one rank has loaded it, with its tables of process groups.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backplane/host.h"
#include "conformance/runner/setup.hpp"

namespace bp::conformance::dist {

// Thrown if a rank cannot go on; the text says why.
struct RankError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Returns "BP_TIMEOUT: rank 2 did not come", with the text of the calling thread's error slot.
std::string failure_text(bp_status status);

class Backend {
 public:
  // Throws RankError.
  explicit Backend(const WorkerSetup& setup);
  Backend(const Backend&) = delete;

  // Returns the devices that the ranks take in turn: that of the setup, or all of the plugin.
  const std::vector<const bp_target*>& targets() const { return targets_; }

  // Returns the tables that are judged: those of the first device, or staged groups over those of
  // the transport.
  const std::vector<const bp_process_group_ops*>& tables() const { return tables_; }
  // Returns the name by which people and --table know a table: that of the transport, if the groups
  // are staged.
  const std::vector<std::string>& table_names() const { return names_; }

  // Returns 1, or 2 with a transport.
  int64_t plugin_count() const { return plugin_count_; }

  // Throws RankError. "" is the first table.
  const bp_process_group_ops& table(const std::string& name) const;

 private:
  struct RegistryEnd {
    void operator()(bp_registry* registry) const {
      static_cast<void>(bp_registry_destroy(registry));
    }
  };

  const bp_plugin* load(const std::string& plugin, const std::vector<bp_option>& options,
                        std::vector<const bp_target*>& out_targets);
  void stage(const std::string& transport);

  std::unique_ptr<bp_registry, RegistryEnd> registry_;
  int64_t plugin_count_ = 0;
  std::vector<const bp_target*> targets_;
  std::vector<const bp_process_group_ops*> tables_;
  std::vector<std::string> names_;
};

}  // namespace bp::conformance::dist
