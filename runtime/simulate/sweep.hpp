// Tries all layouts of a job on a network.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/simulate/report.hpp"

namespace bp::simulate {

// Returns a time below that of make_step(): (m + (p - 1) / v) times what the layers of a rank
// compute for a micro-batch and what tensor-parallel calls of a forward take on the idle network.
// Embeddings, head, optimizer and all other calls take more.
double least_seconds(const Job& job, const Layout& layout, Costs& costs);

struct Candidate {
  Layout layout;
  Report report;
};

struct Sweep {
  std::vector<Candidate> best;   // The least step first.
  uint32_t simulated_count = 0;  // Layouts that fit and may be among the best.
  uint32_t too_large_count = 0;  // Layouts that need more memory than a device has.
  uint32_t too_slow_count = 0;   // Layouts that are not simulated: least_seconds() is too much.
};

// Tries all tensor * data * pipe = `ranks` whose numbers divide those of the job, with tensor
// groups inside a node, micro-batches of 1, 2, 4 and 8 sequences, selective and full recomputation,
// sequence parallelism wherever there is tensor parallelism, and FSDP stages 1 and 3, the latter
// without pipelines only. Pipelines are "1f1b", and "interleaved" with 2 and 4 stages on a rank
// where layers and micro-batches allow it. Keeps the `keep` best ones. Throws bp::Error if none
// fits.
Sweep sweep(const Job& job, const Network& network, uint32_t ranks, size_t keep = 10);

// Returns text like "tensor 8, data 16, pipe 8 (interleaved, 2 stages each), ...".
std::string text_of(const Layout& layout);

std::string table_of(const Sweep& sweep);
std::string json_of(const Sweep& sweep);

}  // namespace bp::simulate
