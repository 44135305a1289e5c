// The functions of the host, and the two ways across its border: check() turns a status of the host
// into an exception, guarded() turns an exception into a status for the host.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "backplane/runtime/error.hpp"
#include "ort_types.h"

namespace bpo {

// The API versions that this library asks for: the newest that the host has, from the first one
// down. 1.23 has all that is needed too, but does not say which graphs are inside of nodes.
inline constexpr uint32_t kNewestApi = 29;
inline constexpr uint32_t kOldestApi = 24;

enum LogLevel : int32_t { kVerbose = 0, kInfo = 1, kWarning = 2, kError = 3 };

// A function of ONNX Runtime failed, or this library refuses with a code of ONNX Runtime.
struct OrtError : bp::Error {
  using bp::Error::Error;
};

// The functions that ort_slots.def lists, and the version for which they were read.
struct Ort {
  uint32_t version = 0;
#define ORT_API(index, since, result, name, arguments) result(*name) arguments = nullptr;
#define ORT_EP_API ORT_API
#include "ort_slots.def"

  // Negotiates the version. Throws OrtError with a sentence if the host is older than kOldestApi.
  static Ort load(const OrtApiBase& base);

  // Throws OrtError with the sentence of `status` unless it is NULL, and releases it. `call` names
  // the function.
  void check(OrtStatus* status, const char* call) const;

  // Makes a status of the code that belongs to `code`.
  OrtStatus* fail(bp_status code, const char* message) const;

  void log(const OrtLogger* logger, LogLevel level, const std::string& message) const;
};

// Runs `body`, and returns what it throws as a status.
template <typename Body>
OrtStatus* guarded(const Ort& ort, Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return nullptr;
  } catch (const bp::Error& e) {
    return ort.fail(e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return ort.fail(BP_OUT_OF_MEMORY, "out of host memory");
  } catch (const std::exception& e) {
    return ort.fail(BP_INTERNAL, e.what());
  }
}

// Pairs of texts, which the host keeps.
class Pairs {
 public:
  explicit Pairs(const Ort& ort) : ort_(ort) { ort.CreateKeyValuePairs(&pairs_); }
  Pairs(const Ort& ort, OrtKeyValuePairs* owned) : ort_(ort), pairs_(owned) {}
  ~Pairs() { ort_.ReleaseKeyValuePairs(pairs_); }
  Pairs(const Pairs&) = delete;
  Pairs& operator=(const Pairs&) = delete;

  void add(const char* key, const std::string& value) {
    ort_.AddKeyValuePair(pairs_, key, value.c_str());
  }
  const OrtKeyValuePairs* get() const { return pairs_; }

 private:
  const Ort& ort_;
  OrtKeyValuePairs* pairs_ = nullptr;
};

}  // namespace bpo
