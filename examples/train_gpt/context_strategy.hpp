// Training with the sequences cut over the ranks (cp).
#pragma once

#include <memory>

#include "train_gpt/strategy.hpp"

// Every rank of `group` calls it. Throws for a choice that does not fit the ranks or the model.
std::unique_ptr<Strategy> make_context_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                                const Options& options,
                                                const bp::distributed::ProcessGroup& group);
