// PyTorch's store, where ranks find each other, as the one that the library asks for.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backplane/collective.h"

namespace bpt {

class StoreAdapter {
 public:
  explicit StoreAdapter(c10::intrusive_ptr<c10d::Store> store);
  StoreAdapter(const StoreAdapter&) = delete;
  StoreAdapter& operator=(const StoreAdapter&) = delete;

  const bp_store* get() const { return &ops_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  bp_store ops_{};
};

}  // namespace bpt
