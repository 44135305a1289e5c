// The counts of a fault, in a file that another process reads.
#pragma once

#include <string>

#include "conformance/faults/fault.hpp"

namespace bp::mutants {

class SharedSightings {
 public:
  SharedSightings() = default;
  ~SharedSightings();
  SharedSightings(const SharedSightings&) = delete;

  // Maps the file. Returns false if it does not exist or is too small.
  bool open(const std::string& path);

  // Without a file, the counts are this object's own.
  faults::Sightings* get() { return shared_ != nullptr ? shared_ : &own_; }

 private:
  faults::Sightings* shared_ = nullptr;
  faults::Sightings own_;
};

}  // namespace bp::mutants
