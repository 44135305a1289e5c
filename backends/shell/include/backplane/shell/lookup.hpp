// The devices and objects behind the handles that the host passes in.
//
//   struct Stream : MortalHandle<Device> {
//     static constexpr uint32_t kMagic = 0x53747265;
//     explicit Stream(Device& its_device) : MortalHandle(kMagic, its_device) {}
//     ...
//   };
//   Stream& s = live_object_of<Stream>(handle, "stream.query", "stream");
//
// Rules:
//   Threads    Every function may be called from any thread.
//   Errors     A function that takes the name of an entry, `call`, throws StatusError: of
//              BP_INVALID_ARGUMENT for a handle that is NULL or not of this backend, and of
//              BP_DEVICE_LOST as it says. `what` is the name of the argument. No function makes a
//              string before it throws.
//   Objects    An object begins with a member `magic`, which is Object::kMagic as long as the
//              object lives. No other kind of object of the backend has that number.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "backplane/device.h"
#include "backplane/shell/entry.hpp"
#include "backplane/shell/generation.hpp"

namespace bp {

// ---- Lost devices -------------------------------------------------------------------------------

// Refuses the call, because `subject` is lost. A device that knows why it was lost has loss(),
// which ends the sentence, or is empty. A backend whose devices need another sentence has a
// function of this name and these arguments in the namespace of its Device.
template <typename Device>
[[noreturn]] void refuse_lost(const Device& device, const char* call, const std::string& subject) {
  std::string text = std::string(call) + ": " + subject + " is lost until it is reset";
  if constexpr (requires { device.loss(); }) text += device.loss();
  refuse(BP_DEVICE_LOST, text);
}

// Returns whether a device is lost. A type without is_lost() is a device that is never lost.
template <typename Device>
bool is_lost(const Device& device) {
  static_assert(sizeof(Device) != 0, "an incomplete type would seem to be never lost");
  if constexpr (requires { device.is_lost(); }) {
    return device.is_lost();
  } else {
    return false;
  }
}

// ---- Devices ------------------------------------------------------------------------------------

// Returns the device of `devices` behind a handle; NULL if it is none of them.
template <typename Device>
Device* find_device(std::span<const std::unique_ptr<Device>> devices, const bp_device* handle) {
  for (const std::unique_ptr<Device>& device : devices) {
    if (reinterpret_cast<const bp_device*>(device.get()) == handle) return device.get();
  }
  return nullptr;
}

// The devices of an instance, which has them in `cards`, a vector of owning pointers, or has its
// only one in `device`. It is a base for traits.
template <typename ItsInstance, typename ItsDevice>
struct Cards {
  using Instance = ItsInstance;
  using Device = ItsDevice;

  static std::span<const std::unique_ptr<Device>> all(const Instance& i) {
    if constexpr (requires { i.cards; }) {
      return i.cards;
    } else {
      return {&i.device, 1};
    }
  }
  static uint64_t device_count(const Instance& i) { return all(i).size(); }
  static bp_device* device_at(const Instance& i, uint64_t index) {
    return reinterpret_cast<bp_device*>(all(i)[index].get());
  }

  // Returns the device behind a handle; NULL if it is none of the instance.
  static Device* find(const Instance& i, const bp_device* handle) {
    return find_device(all(i), handle);
  }

  // Returns the device behind a handle, also if the device is lost.
  static Device& any_device_of(const Instance& i, const bp_device* handle, const char* call,
                               const char* what = "device") {
    Device* const device = find(i, handle);
    if (device != nullptr) return *device;
    refuse(BP_INVALID_ARGUMENT,
           std::string(call) + ": " + what + " is NULL or not one of this backend");
  }

  // Returns the device behind a handle. Throws StatusError if the device is lost.
  static Device& device_of(const Instance& i, const bp_device* handle, const char* call,
                           const char* what = "device") {
    Device& device = any_device_of(i, handle, call, what);
    if (is_lost(device)) refuse_lost(device, call, std::string("the ") + what);
    return device;
  }
};

// ---- Objects ------------------------------------------------------------------------------------

// What a handle begins with.
template <typename ItsDevice>
struct DeviceHandle {
  DeviceHandle(uint32_t its_magic, ItsDevice& its_device) : magic(its_magic), device(&its_device) {}

  uint32_t magic;
  ItsDevice* device;
};

// What a handle begins with, where a device can be lost and reset. A handle lives as long as one
// generation of its device.
template <typename ItsDevice>
struct MortalHandle : DeviceHandle<ItsDevice> {
  MortalHandle(uint32_t its_magic, ItsDevice& its_device)
      : DeviceHandle<ItsDevice>(its_magic, its_device), generation(its_device.generation()) {}

  uint64_t generation;  // Of the device when the handle was made.
};

// Throws StatusError of BP_DEVICE_LOST if the device of a handle is lost, and if the handle is of
// an earlier generation of its device.
template <typename Device>
void require_alive(const DeviceHandle<Device>& handle, const char* call, const char* what) {
  if (!is_lost(*handle.device)) return;
  refuse_lost(*handle.device, call, std::string(what) + " belongs to a device that");
}
template <typename Device>
void require_alive(const Device& device, uint64_t generation, const char* call, const char* what) {
  if (device.is_lost()) {
    refuse_lost(device, call, std::string(what) + " belongs to a device that");
  }
  if (generation == device.generation()) return;
  refuse(BP_DEVICE_LOST, std::string(call) + ": " + what + " was made before its device was reset");
}
template <typename Device>
void require_alive(const MortalHandle<Device>& handle, const char* call, const char* what) {
  require_alive(*handle.device, handle.generation, call, what);
}

// Returns whether require_alive() would refuse a handle.
template <typename Device>
bool is_dead(const DeviceHandle<Device>& handle) {
  return is_lost(*handle.device);
}
template <typename Device>
bool is_dead(const MortalHandle<Device>& handle) {
  return is_lost(*handle.device) || handle.generation != handle.device->generation();
}

// Returns the object behind a handle, which may be of a lost device; NULL if the handle is not of
// this backend. An object with heir() may go on as another object after a reset of its device, as
// the default stream does.
template <typename Object, typename Handle>
Object* object_of(Handle* handle) {
  auto* const object = reinterpret_cast<Object*>(handle);
  if (object == nullptr || object->magic != Object::kMagic) return nullptr;
  if constexpr (requires { object->heir(); }) {
    if (object->generation != object->device->generation()) return &object->heir();
  }
  return object;
}

// Returns the object behind a handle, which may be of a lost device.
template <typename Object, typename Handle>
Object& checked_object_of(Handle* handle, const char* call, const char* what) {
  Object* const object = object_of<Object>(handle);
  if (object != nullptr) return *object;
  refuse(BP_INVALID_ARGUMENT,
         std::string(call) + ": " + what + " is NULL or not one of this backend");
}

// Returns the object behind a handle. Throws StatusError as require_alive() does.
template <typename Object, typename Handle>
Object& live_object_of(Handle* handle, const char* call, const char* what) {
  Object& object = checked_object_of<Object>(handle, call, what);
  require_alive(object, call, what);
  return object;
}

}  // namespace bp
