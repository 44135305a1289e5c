#include "backends/vulkan/backend.hpp"

#include <cstddef>
#include <string_view>

#include "backends/vulkan/device.hpp"
#include "backends/vulkan/kernels/list.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/compiler.hpp"
#include "backplane/shell/first_size.hpp"
#include "elementwise_list.hpp"

namespace bp::vulkan {
namespace {

// More streams than these can have work at once; they take turns.
constexpr size_t kMaxWorkers = 16;

// Adds what a host takes: an older one lacks members.
bp_status add_optional_tables(const Instance& i, const bp_registrar& r) {
  bp_status status = BP_OK;
  const auto add = [&](auto* function, const auto& table) {
    if (status == BP_OK && function != nullptr) {
      status = function(r.self, 0, nullptr, &table, nullptr);
    }
  };
  add(r.add_graph, i.graphs);
  add(r.add_compiler, i.compilation);
  add(r.add_device_guard, i.guard);
  return status;
}

bp_status register_all(void* self, const bp_registrar* registrar) {
  return entry(self, [&](const Instance& i) -> bp_status {
    require(registrar, "register_all: registrar");
    bp_registrar known{};  // What this build knows of it: an older host's is shorter.
    if (bp_struct_read(registrar, kFirstSize<bp_registrar>, &known, sizeof(known), nullptr) !=
        BP_OK) {
      refuse(BP_INCOMPATIBLE, "register_all: the registrar cannot be read");
    }
    void* const r = registrar->self;
    bp_status status = registrar->add_device(r, 0, nullptr, &i.devices, nullptr);
    if (status == BP_OK) status = registrar->add_allocator(r, 0, nullptr, &i.allocator, nullptr);
    if (status == BP_OK) {
      status = registrar->add_streams(r, 0, nullptr, &i.streams, &i.events, nullptr);
    }
    if (status == BP_OK) status = add_optional_tables(i, known);
    for (const bp_kernel& kernel : i.kernels) {
      const bp_kernel* const row = &kernel;
      if (status == BP_OK) status = registrar->add_kernels(r, 0, nullptr, 1, &row, nullptr);
    }
    return status;
  });
}

bp_status get_extension(void* self, const char* name, uint32_t version,
                        const void** out_extension) {
  return entry(self, [&](const Instance& i) {
    require(name, "get_extension: name");
    require(out_extension, "get_extension: out_extension");
    if (std::string_view(name) != BP_TEST_FAULT_NAME || version != BP_TEST_FAULT_VERSION) {
      refuse(BP_NOT_FOUND, "get_extension: there is no \"" + std::string(name) + "\" version " +
                               std::to_string(version) +
                               "; there is \"" BP_TEST_FAULT_NAME "\" version 1");
    }
    *out_extension = &i.faults;
    return BP_OK;
  });
}

bp_status shutdown(void* self) {
  delete &instance(self);
  return BP_OK;
}

std::string devices_text(const std::vector<Physical>& found) {
  if (found.empty()) return "there is none that can be used";
  std::string text = "there are";
  for (size_t k = 0; k < found.size(); ++k) {
    text += (k == 0 ? " " : ", ") + std::to_string(k) + ": " + found[k].name;
  }
  return text;
}

// All devices, or the one that was chosen. Why there are not more is a line in the log.
void open_devices(Instance& i) {
  const std::vector<Physical>& found = i.survey.devices;
  for (const std::string& remark : i.survey.remarks) {
    i.host->log(i.host->self, BP_LOG_WARNING, remark.c_str());
  }
  if (i.options.device.has_value() && *i.options.device >= found.size()) {
    refuse(BP_INVALID_ARGUMENT, "option device: there is no device " +
                                    std::to_string(*i.options.device) + "; " + devices_text(found));
  }
  if (i.options.has_validation && !found.empty() && !i.survey.has_validation_layer) {
    refuse(BP_UNSUPPORTED, std::string("option validation: the layer ") + kValidationLayer +
                               " is not installed; install vulkan-validationlayers");
  }
  for (uint32_t k = 0; k < found.size(); ++k) {
    if (i.options.device.value_or(k) != k) continue;
    i.cards.push_back(std::make_unique<Device>(i, found[k]));
  }
}

template <typename Ops>
Ops with_self(Ops ops, void* self) {
  ops.self = self;
  return ops;
}

}  // namespace

Instance::Instance(const bp_host* its_host)
    : host(its_host),
      options(read_options(*its_host)),
      survey(survey_machine()),
      backend{
          .struct_size = sizeof(bp_backend),
          .struct_type = BP_STRUCT_BACKEND,
          .self = this,
          .name = "backplane.vulkan",
          .version = "0.1.0",
          .register_all = register_all,
          .shutdown = shutdown,
          .get_extension = get_extension,
      },
      devices(with_self(kDevices, this)),
      allocator(with_self(kAllocator, this)),
      streams(with_self(kStreams, this)),
      events(with_self(kEvents, this)),
      guard(with_self(kGuard, this)),
      faults(with_self(kFaults, this)),
      executor(kMaxWorkers) {
  for (const bp_kernel* kernel : kElementwiseKernels) kernels.push_back(*kernel);
  for (const bp_kernel* kernel : kKernels) kernels.push_back(*kernel);
  for (bp_kernel& kernel : kernels) kernel.state = this;
  open_devices(*this);
  put_captures(*this);
  make_compiler(*this);
}

// Running work is waited for. What waits for an event that nobody can signal any more is aborted.
Instance::~Instance() {
  compiler.reset();
  captures.reset();
  const auto settle = [&] {
    executor.wait_idle();
    for (const std::unique_ptr<Device>& device : cards) device->settle();
    executor.wait_idle();
  };
  settle();
  for (const std::unique_ptr<Device>& device : cards) device->abandon_work();
  settle();
  executor.stop();
}

}  // namespace bp::vulkan

bp_status bp_backend_entry(const bp_entry_request* request, bp_entry_reply* out_reply) {
  if (request == nullptr || request->host == nullptr) return BP_INVALID_ARGUMENT;
  const bp_host& host = *request->host;
  return bp::guarded(host, [&] {
    bp::vulkan::require(out_reply, "entry: out_reply");
    if (!bp_abi_is_served(request)) {
      bp::vulkan::refuse(BP_INCOMPATIBLE, "backplane.vulkan serves ABI " +
                                              std::to_string(BP_ABI_MAJOR) + "." +
                                              std::to_string(BP_ABI_MINOR) + " only");
    }
    // The end of the last member of the first release: it must not grow when the struct does.
    if (out_reply->struct_size < bp::kFirstSize<bp_entry_reply>) {
      bp::vulkan::refuse(BP_INCOMPATIBLE, "entry: out_reply is too short");
    }
    out_reply->backend = &(new bp::vulkan::Instance(&host))->backend;
    out_reply->abi_major = BP_ABI_MAJOR;
    out_reply->abi_minor = BP_ABI_MINOR;
    return bp_status{BP_OK};
  });
}
