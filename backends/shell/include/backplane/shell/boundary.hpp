// The one place where C++ becomes C: no exception crosses the boundary.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "backplane/backend.h"

namespace bp {

// A failure with its text, for code below the boundary that cannot return a status.
class StatusError : public std::exception {
 public:
  StatusError(bp_status status, std::string text) : status_(status), text_(std::move(text)) {}
  bp_status status() const { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  bp_status status_;
  std::string text_;
};

// Runs `body`, which returns a bp_status or throws, and leaves the text of a thrown failure in the
// host's error slot.
template <typename Body>
bp_status guarded(const bp_host& host, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const StatusError& e) {
    return host.set_error(host.self, e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return host.set_error(host.self, BP_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& e) {
    return host.set_error(host.self, BP_INTERNAL, e.what());
  } catch (...) {
    return host.set_error(host.self, BP_INTERNAL, "unknown exception");
  }
}

// Throws StatusError if a link behind `next` has BP_STRUCT_MUST_UNDERSTAND. `name` names the struct
// that the links qualify.
inline void check_links(const void* next, const std::string& name) {
  uint32_t count = 0;
  for (auto* link = static_cast<const bp_struct_header*>(next); link != nullptr;
       link = static_cast<const bp_struct_header*>(link->next)) {
    if (++count > BP_MAX_LINKS) {
      throw StatusError(BP_INCOMPATIBLE, name + ": its chain has more than " +
                                             std::to_string(BP_MAX_LINKS) +
                                             " links, or leads back into itself");
    }
    if ((link->struct_type & BP_STRUCT_MUST_UNDERSTAND) != 0) {
      throw StatusError(BP_INCOMPATIBLE,
                        name + ": its chain has a link of type " +
                            std::to_string(link->struct_type) +
                            " that must be understood, and this backend does not know it");
    }
  }
}

// Reads a request of the function named `call`, written by any build of the host. A NULL request
// reads as all zero. The request must have the type `struct_type`; `argument` is its name in error
// texts. Throws StatusError.
template <typename Desc>
Desc read_desc(const Desc* theirs, uint32_t first_size_bytes, uint32_t struct_type,
               const char* call, const char* argument = "desc") {
  Desc ours{};
  if (theirs == nullptr) return ours;
  const std::string name = std::string(call) + ": " + argument;
  uint32_t offset = 0;
  const bp_status status = bp_struct_read(theirs, first_size_bytes, &ours, sizeof(Desc), &offset);
  if (status != BP_OK && offset == offsetof(Desc, next)) check_links(theirs->next, name);
  if (status != BP_OK) {
    throw StatusError(status, name + ": at byte " + std::to_string(offset) +
                                  " it differs from what this backend can read");
  }
  if (ours.struct_type != struct_type) {
    throw StatusError(BP_INVALID_ARGUMENT, name + ": struct_type is " +
                                               std::to_string(ours.struct_type) + ", not " +
                                               std::to_string(struct_type));
  }
  return ours;
}

// Throws StatusError if stride_bytes, the stride of an array, is smaller than the struct_size of
// its item `item`. `name` names the stride.
inline void check_stride(const void* item, uint64_t stride_bytes, const std::string& name) {
  uint32_t size_bytes = 0;
  std::memcpy(&size_bytes, item, sizeof(size_bytes));
  if (stride_bytes >= size_bytes) return;
  throw StatusError(BP_INVALID_ARGUMENT, name + " is " + std::to_string(stride_bytes) +
                                             ", and one of its items has a struct_size of " +
                                             std::to_string(size_bytes));
}

// Throws StatusError unless the caller made room for an offer of some released build. `name` names
// the out parameter.
template <typename Offer>
void check_offer(const Offer* theirs, uint32_t first_size_bytes, const std::string& name) {
  if (theirs == nullptr) throw StatusError(BP_INVALID_ARGUMENT, name + " is NULL");
  if (theirs->struct_size < first_size_bytes || theirs->struct_size > BP_MAX_STRUCT_BYTES) {
    throw StatusError(BP_INCOMPATIBLE, name + ": struct_size is " +
                                           std::to_string(theirs->struct_size) + "; " +
                                           std::to_string(first_size_bytes) + " to " +
                                           std::to_string(BP_MAX_STRUCT_BYTES) + " are allowed");
  }
  check_links(theirs->next, name);
}

// Copies as much of `ours` as the caller's build knows to an out parameter that check_offer()
// accepted. The header of the out parameter stays as the caller wrote it.
template <typename Offer>
void write_offer(const Offer& ours, Offer* theirs) {
  constexpr size_t kHeader = sizeof(bp_struct_header);
  std::memcpy(reinterpret_cast<char*>(theirs) + kHeader,
              reinterpret_cast<const char*>(&ours) + kHeader,
              std::min<size_t>(theirs->struct_size, sizeof(Offer)) - kHeader);
}

}  // namespace bp
