#include "registry/layers/stack.hpp"

#include <algorithm>
#include <string_view>

#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/layers/layered_backend.hpp"

namespace bp::layers {
namespace {

struct Named {
  const LayerInfo* info;
  Options options;
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
  }
  return parts;
}

// Returns text like "leak, trace".
template <typename Range, typename Name>
std::string joined(const Range& range, Name&& name) {
  std::string text;
  for (const auto& item : range) text += (text.empty() ? "" : ", ") + std::string(name(item));
  return text;
}

bp_status unknown_layer(const std::string& name) {
  return fail(BP_NOT_FOUND,
              "layers: there is no layer '" + name + "'; there are " +
                  joined(all_layers(), [](const LayerInfo* info) { return info->name; }));
}

bp_status given_twice(const std::string& name, const std::string& text) {
  return fail(BP_INVALID_ARGUMENT, "layers: '" + name + "' is given twice in '" + text + "'");
}

bp_status read_names(const std::string& text, std::vector<Named>& out) {
  for (const std::string& name : split(text)) {
    const LayerInfo* info = find_layer(name);
    if (info == nullptr) return unknown_layer(name);
    if (std::ranges::count(out, info, &Named::info) != 0) {
      return given_twice(name, text);
    }
    out.push_back({info, {}});
  }
  return BP_OK;
}

// Reads one option, such as "trace.file=x.json".
bp_status read_option(const std::string& text, std::vector<Named>& layers) {
  const size_t equals = text.find('=');
  const size_t dot = text.find('.');
  if (equals == text.npos || dot > equals) {
    return fail(BP_INVALID_ARGUMENT, "layer option '" + text + "' is not LAYER.KEY=VALUE");
  }
  const std::string name = text.substr(0, dot), key = text.substr(dot + 1, equals - dot - 1);
  const LayerInfo* info = find_layer(name);
  if (info == nullptr) return unknown_layer(name);
  if (std::ranges::find(info->options, key, &OptionInfo::key) == info->options.end()) {
    return fail(BP_NOT_FOUND,
                "layer option '" + text.substr(0, equals) + "': " + name + " has " +
                    (info->options.empty() ? "no options"
                                           : joined(info->options, [](const OptionInfo& option) {
                                               return option.key;
                                             })));
  }
  const auto layer = std::ranges::find(layers, info, &Named::info);
  if (layer == layers.end()) {
    return fail(BP_INVALID_ARGUMENT,
                "layer option '" + text + "': its layer is not in use; in use are " +
                    joined(layers, [](const Named& n) { return n.info->name; }));
  }
  if (layer->options.has(key)) {
    return fail(BP_INVALID_ARGUMENT, "layer option '" + name + "." + key + "' is given twice");
  }
  layer->options.set(key, text.substr(equals + 1));
  return BP_OK;
}

bp_status read_choice(const Choice& choice, std::vector<Named>& out) {
  bp_status status = read_names(choice.layers, out);
  if (status != BP_OK || out.empty()) return status;
  for (const std::string& option : split(choice.options)) {
    status = read_option(option, out);
    if (status != BP_OK) return status;
  }
  return BP_OK;
}

}  // namespace

Stack::Stack() = default;
Stack::~Stack() = default;

bp_status Stack::make(const Choice& choice, const Setup& setup) {
  std::vector<Named> named;
  bp_status status = read_choice(choice, named);
  if (status != BP_OK) return status;
  for (Named& each : named) {
    Setup own = setup;
    own.options = std::move(each.options);
    backends_.push_back(
        std::make_unique<LayeredBackend>(each.info->name, each.info->make(std::move(own))));
    status = backends_.back()->layer().check();
    if (status != BP_OK) return status;
  }
  names_ = choice.layers.empty() ? "" : joined(named, [](const Named& n) { return n.info->name; });
  std::erase(names_, ' ');
  return BP_OK;
}

const bp_host* Stack::wrap_host(const bp_host* host) {
  for (const auto& backend : backends_) host = backend->layer().wrap_host(host);
  return host;
}

bp_status Stack::put_on(const bp_backend& backend, const bp_backend** out_front) {
  const bp_backend* front = &backend;
  for (auto layered = backends_.rbegin(); layered != backends_.rend(); ++layered) {
    const bp_status status = (*layered)->begin(*front);
    if (status != BP_OK) {
      const std::string words = core::take_error();
      static_cast<void>(front->shutdown(front->self, UINT64_MAX));
      return fail(status, words);
    }
    front = (*layered)->backend();
  }
  *out_front = front;
  return BP_OK;
}

uint32_t Stack::shown_minor(uint32_t minor) const {
  for (const auto& backend : backends_) minor = backend->layer().shown_minor(minor);
  return minor;
}

const Layer* Stack::find(std::string_view name) const {
  const auto found =
      std::ranges::find(backends_, name, [](const auto& b) { return std::string_view(b->name()); });
  return found == backends_.end() ? nullptr : &(*found)->layer();
}

bp_status check_choice(const Choice& choice) {
  std::vector<Named> named;
  return read_choice(choice, named);
}

}  // namespace bp::layers
