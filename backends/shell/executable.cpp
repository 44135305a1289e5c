#include "backplane/shell/executable.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "backplane/shell/args_size.hpp"
#include "backplane/shell/boundary.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/kernel_choice.hpp"
#include "backplane/shell/lookup.hpp"
#include "backplane/shell/workspace.hpp"

namespace bp {

Executable::Executable(const CompilerBackend& backend, SharedConstants& shared,
                       const CompileTarget& target, const CompileRequest& request, Program program)
    : backend_(backend),
      shared_(shared),
      target_(target),
      device_(target.device),
      generation_(target.is_described() ? 0 : generation_of(backend.devices, target.device)),
      request_(request),
      program_(std::move(program)) {
  places_.resize(program_.values.size());
  argument_of_.resize(program_.values.size());
  for (const bp_value_role role : {BP_VALUE_INPUT, BP_VALUE_OUTPUT}) {
    for (size_t i = 0; i < program_.values.size(); ++i) {
      if (program_.values[i].role == role) argument_of_[i] = argument_count_++;
    }
  }
  try {
    resolve();
    if (!target_.is_described()) {
      upload_constants();
      is_loaded_ = true;
    }
  } catch (...) {
    free_memory();
    throw;
  }
  request_.should_stop = nullptr;
  request_.call = "launch";
  make_kernel();
}

Executable::~Executable() { free_memory(); }

bool Executable::is_lost() const {
  return !target_.is_described() && generation_ != generation_of(backend_.devices, device_);
}

uint64_t Executable::shared_constant_bytes() const {
  uint64_t size_bytes = 0;
  for (const auto& constant : held_) size_bytes += constant->size_bytes;
  return size_bytes;
}

void Executable::free(bp_buffer* buffer, bp_stream* stream) const {
  static_cast<void>(backend_.memory.deallocate(backend_.memory.self, buffer, stream));
}

// A new stream may have the handle of a destroyed one, whose work still runs. So a stream waits for
// the event of its handle first.
void Executable::mark_use(bp_stream* stream) {
  const bp_event_ops& events = backend_.events;
  bp_event* event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(uses_, stream, &Use::stream);
    if (found != uses_.end()) event = found->event.get();
  }
  if (event != nullptr) {
    static_cast<void>(backend_.streams.wait_event(backend_.streams.self, stream, event));
    static_cast<void>(events.record(events.self, event, stream));
    return;
  }
  if (const bp_status status = events.create(events.self, device_, nullptr, &event);
      status != BP_OK) {
    throw StatusError(status, "program: event.create failed");
  }
  static_cast<void>(events.record(events.self, event, stream));
  OwnedEvent owned(event,
                   [events](bp_event* e) { static_cast<void>(events.destroy(events.self, e)); });
  const std::lock_guard lock(mutex_);
  uses_.push_back({stream, std::move(owned)});  // Another thread may have added one too.
}

// ---- Compilation --------------------------------------------------------------------------------

// Chooses the kernels at the preferred extents and at the ends of the ranges, and the places of
// temporaries that are large enough for all extents.
void Executable::resolve() {
  for (size_t i = 0; i < program_.nodes.size(); ++i) {
    const bp_reason refusal = target_.limits.refusal_of_ranges;
    if (refusal == nullptr || !program_.names_extents(i)) continue;
    throw StatusError(BP_UNSUPPORTED, named("node " + std::to_string(i) + ": " + refusal));
  }
  const ExtentNumbers bounds = program_.extents.bounds();
  const Program largest = program_.at(bounds);
  const std::vector<uint64_t> sizes_bytes = sizes_of_values(largest);
  constexpr uint64_t kMostBytes = uint64_t{1} << 60;
  if (std::ranges::any_of(sizes_bytes, [](uint64_t bytes) { return bytes > kMostBytes; })) {
    throw StatusError(BP_UNSUPPORTED, named("the largest extents make a value too large"));
  }
  most_ = place_temporaries(largest, sizes_bytes);
  check_chip_memory();
  plans_.assign(program_.nodes.size(), {});
  preferred_ = make_resolved(program_.extents.preferred());
  workspace_bytes_ = preferred_->workspace_bytes();
  if (program_.extents.empty()) return;
  for (const ExtentNumbers& numbers : {program_.extents.smallest(), program_.extents.largest()}) {
    if (numbers == preferred_->numbers()) continue;
    recent_.push_back(make_resolved(numbers));
    workspace_bytes_ = std::max(workspace_bytes_, recent_.back()->workspace_bytes());
  }
}

void Executable::check_chip_memory() const {
  const uint64_t chip_bytes = target_.limits.chip_memory_bytes;
  if (chip_bytes == 0 || most_.size_bytes <= chip_bytes) return;
  throw StatusError(BP_UNSUPPORTED,
                    named("the temporaries of the program need " +
                          std::to_string(most_.size_bytes) + " bytes, and the chip memory has " +
                          std::to_string(chip_bytes) + "; compile a smaller part of the program"));
}

void Executable::make_kernel() {
  kernel_.struct_size = sizeof(bp_kernel);
  kernel_.struct_type = BP_STRUCT_KERNEL;
  kernel_.state = this;
  kernel_.name = "program";
  kernel_.spec_revision = kSpecRevision;
  kernel_.args_size_bytes = kProgramArgsBytes;
  kernel_.flags = BP_KERNEL_CAPTURABLE | BP_KERNEL_DETERMINISTIC;
  kernel_.flags &= preferred_->kernel_flags();
  for (const auto& resolved : recent_) kernel_.flags &= resolved->kernel_flags();
  kernel_.layouts = BP_LAYOUT_ANY;
  kernel_.workspace_size = [](const bp_kernel* self, bp_device*, bp_launch_flags, const void* args,
                              uint64_t* required, uint64_t* preferred) {
    auto* const e = static_cast<Executable*>(self->state);
    return guarded(*e->backend_.host, [&]() -> bp_status {
      const uint64_t bytes = e->workspace_bytes_for(static_cast<const bp_program_args*>(args));
      if (required != nullptr) *required = bytes;
      if (preferred != nullptr) *preferred = bytes;
      return BP_OK;
    });
  };
  kernel_.launch = [](const bp_kernel* self, const bp_launch* launch, const void* args) {
    auto* const e = static_cast<Executable*>(self->state);
    return guarded(*e->backend_.host, [&]() -> bp_status {
      if (launch == nullptr || args == nullptr) {
        throw StatusError(BP_INVALID_ARGUMENT, "program: launch or args is NULL");
      }
      const auto& frame = *static_cast<const bp_program_args*>(args);
      if (e->backend_.captures == nullptr || !e->backend_.captures->is_capturing(launch->stream)) {
        return e->launch(*launch, frame, false);
      }
      return e->launch_in_capture(*self, *launch, args);
    });
  };
}

}  // namespace bp
