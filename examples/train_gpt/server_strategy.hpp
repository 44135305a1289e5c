// Asynchronous training with a parameter server (ps).
#pragma once

#include <memory>

#include "train_gpt/strategy.hpp"

// Every rank of `group` calls it. The last ranks serve. Throws for a choice that does not fit them.
std::unique_ptr<Strategy> make_server_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                               const Options& options,
                                               const bp::distributed::ProcessGroup& group);
