// The address on which the ranks of a process listen.
#pragma once

#include <gloo/transport/device.h>

#include <memory>
#include <string>

#include "backplane/collective.h"

namespace bp::cpu {

// An option that is empty was not given.
struct ListenOptions {
  std::string interface_name, hostname;
};

// Reads the options of a desc for the table `table_name`. Throws StatusError.
ListenOptions read_listen_options(const bp_process_group_desc& desc, const char* table_name);

// Makes the device of Gloo that listens there: at the interface or the host name that the options
// have, else at the loopback address if all ranks are local, else at the address of this host's
// name. Throws StatusError of BP_INVALID_ARGUMENT, whose text begins with `call`, if this host has
// no such address.
std::shared_ptr<gloo::transport::Device> listen(const ListenOptions& options, bool is_local,
                                                const char* call);

}  // namespace bp::cpu
