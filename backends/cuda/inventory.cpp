#include "backends/cuda/inventory.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "backends/cuda/visible.hpp"

namespace bp::cuda {
namespace {

constexpr int kLowestMajor = 8;  // What this build has code for: 8.0 and, by way of PTX, newer.

struct Found {
  Site site;
  int major, minor;
  std::string uuid;  // If NVML described the device.
};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

const char* const kNone =
    "the NVIDIA driver has no device; if there is a GPU, look at nvidia-smi and at "
    "CUDA_VISIBLE_DEVICES";

// Returns why a driver of this version cannot run this build, or "" if it can.
std::string why_too_old(int version) {
  constexpr int kWanted = CUDART_VERSION;  // The linked runtime's version.
  if (version == 0 || version / 1000 >= kWanted / 1000) return "";
  return "the NVIDIA driver serves CUDA " + version_text(version) + ", and this build needs " +
         version_text(kWanted) + ": install a newer driver";
}

// ---- Devices by NVML ----------------------------------------------------------------------------

// Converts a bus id such as "00000000:3B:00.0" to CUDA's form.
std::string short_bus_id(const char* text) {
  std::string id = text;
  if (id.size() > 12) id.erase(0, id.size() - 12);
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return std::tolower(c); });
  return id;
}

// Returns NVML's device with this index, or nothing if NVML cannot describe it or CUDA has it in
// parts.
std::optional<Found> find_by_nvml(const Driver& driver, unsigned index) {
  NvmlDevice device = nullptr;
  NvmlPciInfo place{};
  std::array<char, 96> name{}, uuid{};
  Found found{};
  unsigned is_in_parts = 0, pending = 0;
  const auto is_ok = [](int code) { return code == kNvmlSuccess; };
  if (!is_ok(driver.nvmlDeviceGetHandleByIndex(index, &device)) ||
      !is_ok(driver.nvmlDeviceGetName(device, name.data(), name.size())) ||
      !is_ok(driver.nvmlDeviceGetUUID(device, uuid.data(), uuid.size())) ||
      !is_ok(driver.nvmlDeviceGetPciInfo(device, &place)) ||
      !is_ok(driver.nvmlDeviceGetCudaComputeCapability(device, &found.major, &found.minor))) {
    return std::nullopt;
  }
  const int mig = driver.nvmlDeviceGetMigMode(device, &is_in_parts, &pending);
  if (mig != kNvmlNotSupported && (mig != kNvmlSuccess || is_in_parts != 0)) return std::nullopt;
  found.site = {.name = name.data(), .bus_id = short_bus_id(place.bus_id)};
  found.uuid = uuid.data();
  return found;
}

// Returns the devices of `list` that CUDA shows, or nothing if only CUDA can tell.
std::optional<std::vector<Found>> only_visible(const std::vector<Found>& list) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return list;
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  const bool has_bus_order = order != nullptr && std::string_view(order) == "PCI_BUS_ID";
  std::vector<Listed> listed;
  for (const Found& found : list) listed.push_back({found.site.name, found.uuid});
  const std::optional<std::vector<size_t>> places = visible_devices(visible, has_bus_order, listed);
  if (!places.has_value()) return std::nullopt;
  std::vector<Found> shown;
  for (const size_t place : *places) shown.push_back(list[place]);
  return shown;
}

// Returns nothing if NVML is missing, or does not know which devices CUDA would show.
std::optional<std::vector<Found>> list_by_nvml(const Driver& driver, std::string& too_old) {
  if (driver.nvmlInit() != kNvmlSuccess) return std::nullopt;
  std::optional<std::vector<Found>> list;
  unsigned count = 0;
  int version = 0;
  if (driver.nvmlDeviceGetCount(&count) == kNvmlSuccess &&
      driver.nvmlSystemGetCudaDriverVersion(&version) == kNvmlSuccess) {
    too_old = why_too_old(version);
    list.emplace();
    for (unsigned index = 0; index < count && list.has_value(); ++index) {
      std::optional<Found> found = find_by_nvml(driver, index);
      if (found.has_value()) {
        list->push_back(std::move(*found));
      } else {
        list.reset();
      }
    }
  }
  driver.nvmlShutdown();
  return list.has_value() ? only_visible(*list) : std::nullopt;
}

// ---- Devices by CUDA ----------------------------------------------------------------------------

// Returns why cudaGetDeviceCount() failed, and what to do.
std::string why_none(const Driver& driver, cudaError_t error) {
  int version = 0;
  driver.cudaDriverGetVersion(&version);
  if (error == cudaErrorNoDevice) return kNone;
  std::string too_old = why_too_old(version);
  if (error == cudaErrorInsufficientDriver && !too_old.empty()) return too_old;
  return failure_text(driver, error, "no device: cudaGetDeviceCount");
}

std::vector<Found> list_by_cuda(const Driver& driver, std::vector<std::string>& reasons) {
  int count = 0;
  std::vector<Found> list;
  if (const cudaError_t error = driver.cudaGetDeviceCount(&count); error != cudaSuccess) {
    driver.cudaGetLastError();
    reasons.push_back(why_none(driver, error));
    return list;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties{};
    const cudaError_t error = driver.cudaGetDeviceProperties(&properties, ordinal);
    if (error != cudaSuccess) {
      driver.cudaGetLastError();
      const std::string what = "device " + std::to_string(ordinal) + " is left out";
      reasons.push_back(failure_text(driver, error, what.c_str()));
      continue;
    }
    std::array<char, 32> bus_id{};
    driver.cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), ordinal);
    list.push_back({{properties.name, bus_id.data(), ordinal}, properties.major, properties.minor});
  }
  return list;
}

// ---- Devices that the backend uses --------------------------------------------------------------

std::vector<std::string> names_of(const std::vector<Found>& list) {
  std::vector<std::string> names;
  for (const Found& found : list) names.push_back(found.site.name);
  return names;
}

}  // namespace

std::vector<Site> find_sites(const Driver& driver, const Options& options,
                             std::vector<std::string>& reasons) {
  std::vector<Site> sites;
  std::string too_old = driver.missing;
  std::optional<std::vector<Found>> list;
  if (too_old.empty()) list = list_by_nvml(driver, too_old);
  if (!too_old.empty()) {
    reasons.push_back(too_old);
    return sites;
  }
  if (!list.has_value()) list = list_by_cuda(driver, reasons);
  if (list->empty()) {
    if (reasons.empty()) reasons.emplace_back(kNone);
    return sites;
  }
  options.devices.check(names_of(*list));
  for (size_t index = 0; index < list->size(); ++index) {
    const Found& found = (*list)[index];
    if (!options.devices.has(index)) continue;
    if (found.major < kLowestMajor) {
      reasons.push_back("device " + std::to_string(index) + ", " + found.site.name +
                        ", is left out: its compute capability is " + std::to_string(found.major) +
                        "." + std::to_string(found.minor) + ", and this build has code for " +
                        std::to_string(kLowestMajor) + ".0 and newer");
      continue;
    }
    sites.push_back(found.site);
  }
  return sites;
}

}  // namespace bp::cuda
