// Training in a pipeline of ranks, alone (pp) or in a product with tensor and data parallelism
// (3d).
#pragma once

#include <memory>

#include "train_gpt/strategy.hpp"

// Every rank of `group` calls it. Throws for a choice that does not fit the ranks or the model.
std::unique_ptr<Strategy> make_pipeline_strategy(const StrategyChoice& choice, int64_t vocabulary,
                                                 const Options& options,
                                                 const bp::distributed::ProcessGroup& group);
