#include "simulation/network_file.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <vector>

#include "registry/files/json_depth.hpp"
#include "registry/files/read_file.hpp"

namespace bp::simulate {
namespace {

constexpr std::array<std::pair<const char*, Shape>, 5> kShapes{{{"ring", Shape::kRing},
                                                                {"torus", Shape::kTorus},
                                                                {"switch", Shape::kSwitch},
                                                                {"fat_tree", Shape::kFatTree},
                                                                {"rails", Shape::kRails}}};

class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  NetworkOptions options;
  SimulatedDevice device;

  void read(const YAML::Node& root) {
    check_keys(root, "",
               {"nodes", "ranks_per_node", "nics_per_node", "node", "network", "device",
                "slow_ranks", "slow_links"});
    read_count(root, "", "nodes", options.node_count);
    read_count(root, "", "ranks_per_node", options.ranks_per_node);
    read_count(root, "", "nics_per_node", options.nics_per_node);
    if (const YAML::Node node = root["node"]) {
      check_keys(node, "node.", {"bandwidth", "latency_s"});
      read_number(node, "node.", "bandwidth", options.node_bandwidth);
      read_number(node, "node.", "latency_s", options.node_latency_s);
    }
    if (const YAML::Node network = root["network"]) read_network(network);
    if (const YAML::Node given = root["device"]) read_device(given);
    for (const YAML::Node& slow : entries(root, "slow_ranks")) read_slow_rank(slow);
    for (const YAML::Node& slow : entries(root, "slow_links")) read_slow_link(slow);
  }

  [[noreturn]] void refuse(int line, const std::string& why) const {
    throw NetworkError("", name_ + ":" + std::to_string(line) + ": " + why);
  }

  // Returns the line of a key, or of the section that lacks it, or 1.
  int line_of(std::string key) const {
    while (!lines_.contains(key) && key.find('.') != std::string::npos) {
      key.resize(key.rfind('.'));
    }
    const auto place = lines_.find(key);
    return place == lines_.end() ? 1 : place->second;
  }

 private:
  static int line(const YAML::Node& node) { return node.Mark().line + 1; }

  [[noreturn]] void refuse_key(const YAML::Node& node, const std::string& key,
                               const std::string& allowed) const {
    refuse(line(node), "the key \"" + key + "\" is unknown; allowed: " + allowed);
  }

  // Checks that `node` is a map with known keys, and keeps their lines.
  void check_keys(const YAML::Node& node, const std::string& section,
                  const std::vector<std::string_view>& known) {
    std::string allowed;
    for (const std::string_view key : known) {
      if (!allowed.empty()) allowed += ", ";
      allowed += key;
    }
    if (!node.IsMap()) refuse(line(node), "a map is needed here; allowed keys: " + allowed);
    for (const auto& pair : node) {
      const std::string key = pair.first.as<std::string>();
      if (std::ranges::find(known, key) == known.end()) {
        refuse_key(pair.first, key, allowed);
      }
      if (!lines_.try_emplace(section + key, line(pair.first)).second && !is_in_list_) {
        refuse(line(pair.first), "the key \"" + key + "\" is given twice");
      }
    }
  }

  template <class T>
  bool read_value(const YAML::Node& map, const std::string& section, const char* key, T& value,
                  const char* allowed) {
    const YAML::Node node = map[key];
    if (!node) return false;
    if (!node.IsScalar() || !YAML::convert<T>::decode(node, value)) {
      const std::string given = node.IsScalar() ? node.as<std::string>() : "no single value";
      refuse(line(node), section + key + " is " + given + "; allowed: " + allowed);
    }
    return true;
  }

  bool read_number(const YAML::Node& map, const std::string& section, const char* key,
                   double& value) {
    return read_value(map, section, key, value, "a number");
  }

  bool read_count(const YAML::Node& map, const std::string& section, const char* key,
                  uint32_t& value) {
    int64_t number = value;
    constexpr const char* kAllowed = "an integer from 0 to 1048576";
    if (!read_value(map, section, key, number, kAllowed)) return false;
    if (number < 0 || number > 1 << 20) {
      refuse(line(map[key]),
             section + key + " is " + std::to_string(number) + "; allowed: " + kAllowed);
    }
    value = static_cast<uint32_t>(number);
    return true;
  }

  void read_network(const YAML::Node& network) {
    const std::string section = "network.";
    check_keys(network, section,
               {"shape", "bandwidth", "latency_s", "leaf_nodes", "oversubscription",
                "core_latency_s", "sizes"});
    std::string shape;
    std::string allowed;
    for (const auto& [name, value] : kShapes) {
      if (!allowed.empty()) allowed += ", ";
      allowed += name;
    }
    if (!read_value(network, section, "shape", shape, allowed.c_str())) {
      refuse(line(network), "network has no shape; allowed: " + allowed);
    }
    const auto* place = std::ranges::find(
        kShapes, shape, [](const auto& each) { return std::string_view(each.first); });
    if (place == kShapes.end()) {
      refuse(line(network["shape"]), "network.shape is " + shape + "; allowed: " + allowed);
    }
    options.shape = place->second;
    read_number(network, section, "bandwidth", options.bandwidth);
    read_number(network, section, "latency_s", options.latency_s);
    const bool has_leaves = read_count(network, section, "leaf_nodes", options.leaf_nodes);
    read_number(network, section, "oversubscription", options.oversubscription);
    read_number(network, section, "core_latency_s", options.core_latency_s);
    if (options.shape == Shape::kFatTree && !has_leaves) {
      refuse(line(network), "network has no leaf_nodes; a fat_tree needs them");
    }
    read_sizes(network);
    refuse_what_has_no_effect(network);
  }

  void read_sizes(const YAML::Node& network) {
    const YAML::Node sizes = network["sizes"];
    if (!sizes) return;
    for (const YAML::Node& size : sizes) {
      int64_t number = 0;
      if (!YAML::convert<int64_t>::decode(size, number) || number < 1 || number > 1 << 20) {
        refuse(line(sizes), "network.sizes is not a list of integers from 1 to 1048576");
      }
      options.sizes.push_back(static_cast<uint32_t>(number));
    }
  }

  void refuse_what_has_no_effect(const YAML::Node& network) {
    const auto need = [&](const char* key, Shape shape, const char* name) {
      if (!network[key] || options.shape == shape) return;
      refuse(line(network[key]),
             std::string("network.") + key + " is for the shape " + name + " alone; remove it");
    };
    for (const char* key : {"leaf_nodes", "oversubscription", "core_latency_s"}) {
      need(key, Shape::kFatTree, "fat_tree");
    }
    need("sizes", Shape::kTorus, "torus");
  }

  void read_device(const YAML::Node& given) {
    const std::string section = "device.";
    check_keys(given, section, {"flops", "efficiency", "memory_bandwidth", "memory_bytes"});
    for (const auto& [key, value] : {std::pair{"flops", &device.flops},
                                     {"efficiency", &device.efficiency},
                                     {"memory_bandwidth", &device.memory_bandwidth},
                                     {"memory_bytes", &device.memory_bytes}}) {
      const bool is_given = read_number(given, section, key, *value);
      const bool is_right = *value > 0 && *value <= std::numeric_limits<double>::max();
      if (is_given && !is_right) {
        refuse(line(given[key]),
               section + key + " is " + std::to_string(*value) + "; allowed: above 0");
      }
    }
    if (device.efficiency > 1) {
      refuse(line(given["efficiency"]), "device.efficiency is " +
                                            std::to_string(device.efficiency) +
                                            "; allowed: above 0, at most 1");
    }
  }

  YAML::Node entries(const YAML::Node& root, const char* key) {
    const YAML::Node list = root[key];
    if (list && !list.IsSequence()) refuse(line(list), std::string(key) + " is not a list");
    is_in_list_ = true;
    return list ? list : YAML::Node(YAML::NodeType::Sequence);
  }

  void read_slow_rank(const YAML::Node& entry) {
    check_keys(entry, "slow_ranks.", {"rank", "factor"});
    SlowRank slow;
    if (!read_count(entry, "", "rank", slow.rank)) refuse(line(entry), "a slow rank has no rank");
    read_factor(entry, slow.factor);
    options.slow_ranks.push_back(slow);
  }

  void read_slow_link(const YAML::Node& entry) {
    check_keys(entry, "slow_links.", {"rank", "node", "to", "factor"});
    SlowLink slow;
    uint32_t number = 0;
    if (read_count(entry, "", "rank", number)) slow.rank = number;
    if (read_count(entry, "", "node", number)) slow.node = number;
    if (read_count(entry, "", "to", number)) slow.to = number;
    read_factor(entry, slow.factor);
    options.slow_links.push_back(slow);
  }

  void read_factor(const YAML::Node& entry, double& factor) {
    if (!read_number(entry, "", "factor", factor)) refuse(line(entry), "the entry has no factor");
  }

  const std::string name_;
  std::map<std::string, int> lines_;
  bool is_in_list_ = false;  // Entries of lists have the same keys.
};

}  // namespace

Cluster parse_cluster(const std::string& text, const std::string& name,
                      std::optional<uint32_t> node_count) {
  if (const std::string defect = json_depth_defect(text); !defect.empty()) {
    throw NetworkError("", name + ": " + defect);
  }
  Reader reader(name);
  try {
    reader.read(YAML::Load(text));
  } catch (const YAML::Exception& e) {
    reader.refuse(e.mark.is_null() ? 1 : e.mark.line + 1, e.msg);
  }
  if (node_count) reader.options.node_count = *node_count;
  try {
    return {Network(reader.options), reader.device};
  } catch (const NetworkError& e) {
    reader.refuse(reader.line_of(e.key()), e.what());
  }
}

Cluster read_cluster(const std::string& path, std::optional<uint32_t> node_count) {
  constexpr uint64_t kMostBytes = 1 << 20;
  std::string text;
  if (const std::string defect = read_file(path, kMostBytes, text); !defect.empty()) {
    throw NetworkError("", path + ": " + defect);
  }
  return parse_cluster(text, path, node_count);
}

}  // namespace bp::simulate
