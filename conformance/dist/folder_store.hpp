// A bp_store in a folder, in which the processes of one machine find each other: a file for each
// key.
//
// Rules:
//   Threads    A store may be used from any thread, and each process has its own object.
//   Errors     The entries of the table return statuses, and have no text to add.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "backplane/collective.h"

namespace bp::conformance::dist {

class FolderStore {
 public:
  // The folder exists.
  explicit FolderStore(std::string folder);
  FolderStore(const FolderStore&) = delete;

  // Returns the table for a group with this prefix.
  const bp_store* table_for(const std::string& prefix);

  // Returns the first key that a backend used and that begins with no prefix of a group, or "".
  // [COLLECTIVE-4] forbids such keys.
  std::string foreign_key() const;

  // put(), get() and try_get() are for the suite's own keys too.
  bool put(const std::string& key, const std::string& value) const;
  bool get(const std::string& key, uint64_t timeout_ns, std::string& out_value) const;
  bool try_get(const std::string& key, std::string& out_value) const;

  // Looks whether a backend may use the key.
  void check_key(const std::string& key);

 private:
  std::string path_of(const std::string& key) const;

  const std::string folder_;
  bp_store table_{};
  mutable std::mutex mutex_;
  std::vector<std::string> prefixes_;  // Guarded by mutex_.
  std::string foreign_key_;            // Guarded by mutex_.
};

}  // namespace bp::conformance::dist
