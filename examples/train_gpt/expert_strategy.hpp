// Training of a mixture of experts that are shared out over the ranks (ep).
#pragma once

#include <memory>
#include <string>

#include "train_gpt/strategy.hpp"

// Every rank of `group` calls it. Throws for a choice that does not fit the ranks.
std::unique_ptr<Strategy> make_expert_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                               const Options& options,
                                               const bp::distributed::ProcessGroup& group);
