// Valid structs and calls with them, for every function that takes or fills a struct whose size may
// differ between builds. boundary.def, which is made from the headers, lists the functions. A
// listed function that has no maker here fails to compile.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "conformance/case.hpp"

namespace bp::conformance {

// A struct, and the call that it is for.
struct SizedCall {
  std::vector<std::byte> bytes;  // A valid struct with the size of this build.

  // Makes the call with the struct at `at`, and ends what the call made. Adds a finding if the call
  // fails and wrote an out parameter. The call may write 1 KiB in front of `at`.
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

// Each maker ends the case as NotSupported if the device lacks the table or the function.
#define BP_REQUEST(table, slot, desc, first) SizedCall make_##table##_##slot(Context& t);
#define BP_OUT(table, slot, result, first) SizedCall make_##table##_##slot(Context& t);
#define BP_NESTED(request, first) SizedCall make_##request(Context& t);
#include "conformance/boundary.def"

// Make the structs that the host passes to the entry and to register_all().
SizedCall make_bp_host(Context& t);
SizedCall make_bp_entry_request(Context& t);
SizedCall make_bp_entry_reply(Context& t);
SizedCall make_bp_registrar(Context& t);

// Returns the size that an offered struct had in the first release that has it.
uint32_t first_size_of(std::string_view name);

// Adds the cases of offers, which come after those of single structs.
void add_abi_offer_cases(std::vector<Case>& cases);

}  // namespace bp::conformance
