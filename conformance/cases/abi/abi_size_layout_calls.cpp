// The sized calls of layouts that the host describes.
#include <memory>

#include "conformance/cases/abi/abi_size_calls.hpp"
#include "conformance/cases/layouts/block_fixtures.hpp"

namespace bp::conformance {

SizedCall make_bp_layout_ops_from_desc(Context& t) {
  const auto description =
      std::make_shared<Description>(*formats_of(t).front(), Shape{formats_of(t).front()->elements});
  return sized_call<bp_layout_desc>(description->desc, [&t, description](bp_layout_desc* at) {
    const bp_layout* made = t.sentinel<bp_layout>();
    const bp_status status = describe(t, *at, &made);
    if (status == BP_OK) {
      const OwnedLayout end(made, {&layout_table(t)});
    } else {
      t.expect(made == t.sentinel<bp_layout>(), "out_layout after a failure");
    }
    return status;
  });
}

}  // namespace bp::conformance
