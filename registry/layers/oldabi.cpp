// oldabi: cuts every struct that crosses the boundary to its size in an earlier minor, and refuses
// bits of requests that this minor does not know. So each side meets an older other side, and
// nobody has to build one.
#include <algorithm>

#include "registry/boundary/fail.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/properties.hpp"
#include "registry/layers/released.hpp"

namespace bp::layers {
namespace {

class OldAbiLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status check() override {
    uint64_t minor = BP_ABI_MINOR_MIN;
    const bp_status status = options().number("oldabi", "minor", BP_ABI_MINOR, minor);
    minor_ = static_cast<uint32_t>(minor);
    if (status != BP_OK) return status;
    if (minor_ < BP_ABI_MINOR_MIN) {
      return fail(BP_INVALID_ARGUMENT, "layer option oldabi.minor is '" + options().text("minor") +
                                           "'; the oldest that is served is " +
                                           std::to_string(BP_ABI_MINOR_MIN));
    }
    const std::string& side = options().text("side");
    if (!side.empty() && side != "host" && side != "backend" && side != "both") {
      return fail(BP_INVALID_ARGUMENT,
                  "layer option oldabi.side is '" + side + "', allowed are backend, host and both");
    }
    cuts_host_ = side != "backend";
    cuts_backend_ = side != "host";
    return BP_OK;
  }

  const bp_host* wrap_host(const bp_host* next) override {
    wrap_host_table(*next, *this, host_);
    if (cuts_host_) cut(host_.table, minor_);
    return &host_.table;
  }

  void on_registrar(bp_registrar& behind) override {
    if (cuts_host_) cut(behind, minor_);
  }

  void on_backend(bp_backend& front) override {
    if (cuts_backend_) cut(front, minor_);
  }

  uint32_t shown_minor(uint32_t minor) const override {
    return cuts_backend_ ? std::min(minor, minor_) : minor;
  }

  bool hides(AnyTable table) const override {
    return cuts_backend_ &&
           std::visit(
               [&]<typename Table>(Wrapped<Table>*) { return released_size<Table>(minor_) == 0; },
               table);
  }

  void on_table(AnyTable table) override {
    if (!cuts_backend_) return;
    visit_table<bp_device_ops>(table,
                               [](auto& t) { replace<&OldAbiLayer::properties>(t.properties); });
    visit_table<bp_allocator_ops>(table,
                                  [](auto& t) { replace<&OldAbiLayer::allocate>(t.allocate); });
    visit_table<bp_event_ops>(table,
                              [](auto& t) { replace<&OldAbiLayer::create_event>(t.create); });
    std::visit([&](auto* wrapped) { cut(wrapped->table, minor_); }, table);
  }

  bool on_kernel(WrappedKernel& kernel) override {
    if (cuts_backend_) cut(kernel.kernel, minor_);
    return true;
  }

  bp_status properties(const bp_device_ops& next, bp_device* device,
                       const bp_device_properties** out_properties) {
    return copies_.get(next, device, out_properties, [&](ShownProperties& shown) {
      cut(shown.properties, minor_);
      for (bp_heap& heap : shown.heaps) cut(heap, minor_);
    });
  }

  bp_status allocate(const bp_allocator_ops& next, bp_device* device, const bp_allocate_desc* desc,
                     bp_buffer** out_buffer) {
    const bp_status status = check_bits(desc, &bp_allocate_desc::usage, "memory.allocate: usage");
    return status == BP_OK ? next.allocate(next.self, device, desc, out_buffer) : status;
  }

  bp_status create_event(const bp_event_ops& next, bp_device* device, const bp_event_desc* desc,
                         bp_event** out_event) {
    const bp_status status = check_bits(desc, &bp_event_desc::flags, "event.create: flags");
    return status == BP_OK ? next.create(next.self, device, desc, out_event) : status;
  }

 private:
  // Refuses what the older side does not know, as that side would.
  template <typename Desc>
  bp_status check_bits(const Desc* desc, uint32_t Desc::*member, const char* what) const {
    if (desc == nullptr || desc->struct_size < sizeof(Desc)) return BP_OK;
    const uint32_t unknown = desc->*member & ~released_bits<Desc>(minor_);
    if (unknown == 0) return BP_OK;
    return fail(BP_INVALID_ARGUMENT, std::string(what) + " has bits " + std::to_string(unknown) +
                                         ", which ABI 0." + std::to_string(minor_) +
                                         " does not know");
  }

  uint32_t minor_ = 0;
  bool cuts_host_ = true, cuts_backend_ = true;
  Wrapped<bp_host> host_{};
  PropertiesCopies copies_;
};

constexpr OptionInfo kOldAbiOptions[] = {
    {"minor", "of the ABI that is pretended; default the oldest that is served"},
    {"side", "which side is older: backend, host or both; default both"}};

}  // namespace

constinit const LayerInfo kOldAbiLayer{"oldabi", "cuts structs to their size in an earlier minor",
                                       kOldAbiOptions, make_layer<OldAbiLayer>};

}  // namespace bp::layers
