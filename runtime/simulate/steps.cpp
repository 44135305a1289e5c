#include "runtime/simulate/steps.hpp"

#include "backplane/runtime/error.hpp"
#include "runtime/simulate/stage_program.hpp"

namespace bp::simulate {
namespace {

// The numbers of ranks with two of their three coordinates given.
class Numbers {
 public:
  explicit Numbers(const Layout& layout) : l_(layout) {}

  uint32_t rank(uint32_t tensor, uint32_t data, uint32_t pipe) const {
    return tensor + l_.tensor * (data + l_.data * pipe);
  }
  std::vector<uint32_t> tensor_group(uint32_t data, uint32_t pipe) const {
    std::vector<uint32_t> ranks;
    for (uint32_t t = 0; t < l_.tensor; ++t) ranks.push_back(rank(t, data, pipe));
    return ranks;
  }
  std::vector<uint32_t> data_group(uint32_t tensor, uint32_t pipe) const {
    std::vector<uint32_t> ranks;
    for (uint32_t d = 0; d < l_.data; ++d) ranks.push_back(rank(tensor, d, pipe));
    return ranks;
  }
  std::vector<uint32_t> pipe_group(uint32_t tensor, uint32_t data) const {
    std::vector<uint32_t> ranks;
    for (uint32_t p = 0; p < l_.pipe; ++p) ranks.push_back(rank(tensor, data, p));
    return ranks;
  }

 private:
  const Layout& l_;
};

uint32_t add_group(Schedule& schedule, Group group) {
  schedule.groups.push_back(std::move(group));
  return static_cast<uint32_t>(schedule.groups.size() - 1);
}

// Rank 0 of both other axes stands for each pipeline rank.
void add_representatives(Schedule& schedule, const Layout& l) {
  const Numbers numbers(l);
  Group pipe{numbers.pipe_group(0, 0), {}};
  for (uint32_t other = 1; other < l.tensor * l.data; ++other) {
    pipe.beside.push_back(numbers.pipe_group(other % l.tensor, other / l.tensor));
  }
  const uint32_t forward = add_group(schedule, pipe);
  const uint32_t backward = add_group(schedule, std::move(pipe));
  for (uint32_t p = 0; p < l.pipe; ++p) {
    SimulatedRank rank{numbers.rank(0, 0, p), p, std::vector<uint32_t>(kAxisCount)};
    Group tensor{numbers.tensor_group(0, p), {}}, data{numbers.data_group(0, p), {}};
    for (uint32_t d = 1; d < l.data; ++d) tensor.beside.push_back(numbers.tensor_group(d, p));
    for (uint32_t t = 1; t < l.tensor; ++t) data.beside.push_back(numbers.data_group(t, p));
    rank.groups[kTensorAxis] = add_group(schedule, std::move(tensor));
    rank.groups[kGatherAxis] = add_group(schedule, data);
    rank.groups[kReduceAxis] = add_group(schedule, std::move(data));
    rank.groups[kForwardAxis] = forward;
    rank.groups[kBackwardAxis] = backward;
    schedule.ranks.push_back(std::move(rank));
  }
}

void add_all(Schedule& schedule, const Layout& l) {
  const Numbers numbers(l);
  for (uint32_t p = 0; p < l.pipe; ++p) {
    for (uint32_t d = 0; d < l.data; ++d) {
      for (uint32_t t = 0; t < l.tensor; ++t) {
        schedule.ranks.push_back({numbers.rank(t, d, p), p, std::vector<uint32_t>(kAxisCount)});
      }
    }
  }
  const auto join = [&](uint8_t axis, const std::vector<uint32_t>& ranks) {
    const uint32_t group = add_group(schedule, {ranks, {}});
    for (const uint32_t rank : ranks) schedule.ranks[rank].groups[axis] = group;
  };
  for (uint32_t p = 0; p < l.pipe; ++p) {
    for (uint32_t d = 0; d < l.data; ++d) join(kTensorAxis, numbers.tensor_group(d, p));
    for (uint32_t t = 0; t < l.tensor; ++t) {
      join(kGatherAxis, numbers.data_group(t, p));
      join(kReduceAxis, numbers.data_group(t, p));
    }
  }
  for (uint32_t d = 0; d < l.data; ++d) {
    for (uint32_t t = 0; t < l.tensor; ++t) {
      join(kForwardAxis, numbers.pipe_group(t, d));
      join(kBackwardAxis, numbers.pipe_group(t, d));
    }
  }
}

}  // namespace

Ranks ranks_for(const Network& network) {
  return network.has_stragglers() ? Ranks::kAll : Ranks::kRepresentatives;
}

Schedule make_step(const Job& job, const Layout& layout, const Network& network, Ranks ranks) {
  check(job, layout);
  if (layout.ranks() > network.rank_count()) {
    throw Error(BP_INVALID_ARGUMENT, "the layout has " + std::to_string(layout.ranks()) +
                                         " ranks, and the network has " +
                                         std::to_string(network.rank_count()) +
                                         "; allowed: at most those of the network");
  }
  Schedule schedule;
  schedule.streams = stream_names();
  const distributed::PipelineSchedule pipeline = distributed::make_pipeline_schedule(
      layout.pipeline, layout.pipe, micro_batches_of(job, layout), layout.stages_per_rank);
  for (uint32_t p = 0; p < layout.pipe; ++p) {
    schedule.programs.push_back(make_stage_program(job, layout, pipeline, p, schedule.labels));
  }
  if (ranks == Ranks::kAll) {
    add_all(schedule, layout);
  } else {
    add_representatives(schedule, layout);
  }
  return schedule;
}

}  // namespace bp::simulate
