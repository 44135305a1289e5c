// mask: hides kernels, dtypes, slots, tables and profiles of a backend. So a user can see what a
// program does without them: it uses another kernel, a decomposition, or the host.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "backplane/host.h"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/calls/call.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/files/json_depth.hpp"
#include "registry/files/read_file.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/properties.hpp"
#include "registry/layers/slots.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

constexpr const char* kKeys[] = {"kernels", "dtypes", "slots", "tables", "profiles"};
constexpr uint64_t kMaxFileBytes = 1 << 20;
enum Key { kKernels, kDtypes, kSlots, kTables, kProfiles };

class MaskLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status check() override {
    for (size_t i = 0; i < std::size(kKeys); ++i) hidden_[i] = options().list(kKeys[i]);
    if (options().has("file")) {
      const bp_status status = read_file(options().text("file"));
      if (status != BP_OK) return status;
    }
    for (const std::string& name : hidden_[kDtypes]) {
      // A backend may add the dtype of a vendor later.
      if (is_vendor_name(name) || bp_dtype_from_name(name.c_str()) != 0) continue;
      return fail(BP_INVALID_ARGUMENT, "layer mask: '" + name + "' is no dtype, such as bf16");
    }
    return BP_OK;
  }

  bool hides(AnyTable table) const override {
    return std::visit(
        []<typename Table>(Wrapped<Table>* wrapped) {
          const auto& layer = static_cast<const MaskLayer&>(*wrapped->layer);
          return layer.fits(kTables, table_noun<Table>());
        },
        table);
  }

  void on_table(AnyTable table) override {
    visit_table<bp_device_ops>(table,
                               [](auto& t) { replace<&MaskLayer::properties>(t.properties); });
    std::visit([&](auto* wrapped) { hide_slots(wrapped->table); }, table);
  }

  bool on_kernel(WrappedKernel& kernel) override {
    bp_kernel& k = kernel.kernel;
    if (fits(kKernels, k.name == nullptr ? "" : k.name) || fits(kKernels, op_words(k.op))) {
      return false;
    }
    if (hidden_[kDtypes].empty()) return true;
    if (k.dtype_rows == nullptr || k.dtype_count == 0) {
      replace<&MaskLayer::supports>(k.supports);
      return true;
    }
    return keep_rows(k);
  }

  bp_status properties(const bp_device_ops& next, bp_device* device,
                       const bp_device_properties** out_properties) {
    return copies_.get(next, device, out_properties, [&](ShownProperties& shown) {
      std::erase_if(shown.dtypes, [&](bp_dtype dtype) { return is_hidden(dtype); });
      std::erase_if(shown.profiles, [&](const char* name) { return fits(kProfiles, name); });
    });
  }

  bp_reason supports(const WrappedKernel& kernel, bp_device* device, bp_launch_flags flags,
                     const void* args) {
    const core::OpRow* row = core::find_op(core::op_of(kernel.kernel));
    for (uint32_t i = 0; row != nullptr && i < row->tensor_count; ++i) {
      if (has_hidden(args, row->tensors[i])) return "the layer mask hides a dtype of this call";
    }
    const bp_kernel* next = kernel.next;
    const bool is_asked = next->struct_size > offsetof(bp_kernel, supports) && next->supports;
    return is_asked ? next->supports(next, device, flags, args) : nullptr;
  }

 private:
  bool fits(Key key, std::string_view name) const {
    return std::ranges::any_of(hidden_[key],
                               [&](const std::string& glob) { return fits_glob(name, glob); });
  }

  bool is_hidden(bp_dtype dtype) const {
    const char* const name = bp_dtype_name(dtype);
    return name != nullptr && std::ranges::count(hidden_[kDtypes], name) != 0;
  }

  bool has_hidden(const void* args, const core::TensorArgument& argument) const {
    if (!core::has_member(args, argument.offset)) return false;
    if (!argument.is_list()) {
      const bp_tensor* tensor = core::tensor_at(args, argument);
      return tensor != nullptr && is_hidden(tensor->dtype);
    }
    const core::TensorList list = core::list_at(args, argument);
    return std::any_of(list.items, list.items + list.count, [&](const bp_tensor* tensor) {
      return tensor != nullptr && is_hidden(tensor->dtype);
    });
  }

  template <typename Table>
  void hide_slots(Table& table) const {
#define BP_SLOT(slot_table, noun, slot, presence, gone)                     \
  if constexpr (std::is_same_v<Table, slot_table>) {                        \
    if (fits(kSlots, slot_name(Slot::noun##_##slot))) table.slot = nullptr; \
  }
#include "registry/boundary/slots.def"
  }

  // Removes the rows with a hidden dtype from the claims. Returns false if no row is left.
  bool keep_rows(bp_kernel& k) {
    auto rows = std::make_unique<std::vector<bp_dtype>>();
    for (uint32_t row = 0; row < k.dtype_row_count; ++row) {
      const bp_dtype* first = k.dtype_rows + size_t{row} * k.dtype_count;
      const bool is_kept =
          std::none_of(first, first + k.dtype_count, [&](bp_dtype d) { return is_hidden(d); });
      if (is_kept) rows->insert(rows->end(), first, first + k.dtype_count);
    }
    k.dtype_row_count = static_cast<uint32_t>(rows->size() / k.dtype_count);
    k.dtype_rows = rows->data();
    rows_.push_back(std::move(rows));
    return k.dtype_row_count != 0;
  }

  bp_status read_file(const std::string& path) {
    const auto wrong = [&](const std::string& why) {
      return fail(BP_INVALID_ARGUMENT, "layer option mask.file: " + path + ": " + why);
    };
    std::string text;
    std::string defect = bp::read_file(path, kMaxFileBytes, text);
    if (!defect.empty()) {
      return fail(BP_NOT_FOUND, "layer option mask.file: " + path + ": " + defect);
    }
    defect = json_depth_defect(text);
    if (!defect.empty()) return wrong(defect);
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) return wrong("not a JSON object");
    for (const auto& [key, names] : json.items()) {
      const auto known = std::ranges::find(kKeys, key);
      if (known == std::end(kKeys)) {
        return wrong("'" + key +
                     "' is not known; there are kernels, dtypes, slots, tables, profiles");
      }
      if (!names.is_array()) return wrong("'" + key + "' is not a list of texts");
      for (const nlohmann::json& name : names) {
        if (!name.is_string()) return wrong("'" + key + "' is not a list of texts");
        hidden_[known - std::begin(kKeys)].push_back(name.get<std::string>());
      }
    }
    return BP_OK;
  }

  std::vector<std::string> hidden_[std::size(kKeys)];
  PropertiesCopies copies_;
  std::vector<std::unique_ptr<std::vector<bp_dtype>>> rows_;  // The rows of changed claims.
};

constexpr OptionInfo kMaskOptions[] = {
    {"kernels", "globs of the names or ops of kernels, separated by ':'"},
    {"dtypes", "names of dtypes: f64:bf16"},
    {"slots", "globs of slots, such as memory.copy_peer"},
    {"tables", "globs of tables, such as graph or virtual_memory"},
    {"profiles", "globs of profiles that the device does not claim"},
    {"file", "a JSON object with lists of these names"}};

}  // namespace

constinit const LayerInfo kMaskLayer{"mask", "hides kernels, dtypes, slots and tables",
                                     kMaskOptions, make_layer<MaskLayer>};

}  // namespace bp::layers
