// For every function that takes or fills a struct whose size another build may see otherwise: a
// valid struct, and one call with it. boundary.def, written from the headers, lists the functions;
// one without a maker here does not compile.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

// A struct, and what is called with it.
struct SizedCall {
  std::vector<std::byte> bytes;  // A valid struct as this build has it.

  // Makes the call with the struct at `at`, and ends what came of it. Adds a finding if the call
  // fails and wrote an out parameter. 1 KiB in front of `at` may be written.
  std::function<bp_status(void* at)> run;
};

template <typename Struct>
SizedCall sized_call(const Struct& valid, std::function<bp_status(Struct*)> run) {
  SizedCall call;
  call.bytes.resize(sizeof(Struct));
  std::memcpy(call.bytes.data(), &valid, sizeof(Struct));
  call.run = [run = std::move(run)](void* at) { return run(static_cast<Struct*>(at)); };
  return call;
}

using MakeSizedCall = SizedCall (*)(Context&);

// Each ends the case as NotSupported where the device has no such table or function.
#define BP_REQUEST(table, slot, desc, first) SizedCall make_##table##_##slot(Context& t);
#define BP_OUT(table, slot, result, first) SizedCall make_##table##_##slot(Context& t);
#define BP_NESTED(request, first) SizedCall make_##request(Context& t);
#include "conformance/boundary.def"

// What the host hands to the entry and to register_all().
SizedCall make_bp_host(Context& t);
SizedCall make_bp_entry_request(Context& t);
SizedCall make_bp_entry_reply(Context& t);
SizedCall make_bp_registrar(Context& t);

// Of a struct that is offered: in the first release that has it.
uint32_t first_size_of(std::string_view name);

// The cases of what is offered, behind those of single structs.
void add_abi_offer_cases(std::vector<Case>& cases);

}  // namespace bp::conformance
