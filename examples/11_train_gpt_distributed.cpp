// 11_train_gpt_distributed - trains the transformer of 04_train_gpt on several devices at once.
//
//   bp-launch -n 4 11_train_gpt_distributed --steps 200
//   mpirun -n 4 -x MASTER_ADDR=node0 11_train_gpt_distributed --device 'cuda:{}'
//
// Each rank has its part of each batch, and the whole model (--strategy ddp) or a part of it
// (fsdp). Gradients are averaged over the ranks while backward() runs. Or ranks have parts of each
// layer (tp), or both (2d). Or they have some blocks each, through which micro-batches run (pp), or
// all of it at once (3d), or parts of each sequence (cp). The losses are those of 04_train_gpt, but
// for the order of sums. A model with mixtures of experts (ep) has the losses of the same model on
// one rank. With a parameter server (ps) each worker goes at its own pace, so only one worker has
// the losses of one device. Rank 0 writes the log. Checkpoints are one file, or a folder to which
// each rank writes its part. A run that continues may have another number of ranks, and another
// strategy, but ep goes on as ep. A job that bp-launch or torchrun starts again goes on from its
// latest checkpoint:
//
//   bp-launch -n 2:4 11_train_gpt_distributed --strategy fsdp --checkpoint run1/ --save-every 50
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <vector>

#include "backplane/runtime/distributed/launch.hpp"
#include "backplane/runtime/runtime.hpp"
#include "output.hpp"
#include "train_gpt/model.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/saves.hpp"
#include "train_gpt/schedule_recorder.hpp"
#include "train_gpt/steps.hpp"
#include "train_gpt/strategy.hpp"
#include "train_gpt/text.hpp"

namespace {

namespace bd = bp::distributed;

constexpr const char* kHelp = R"(
  Ranks are processes, which a launcher starts: bp-launch -n 4 11_train_gpt_distributed ...
  It writes no sample, captures no steps and explains no ops: use 04_train_gpt for these.
  In --device, {} stands for the number of the rank on its machine, as in cuda:{}. When bp-launch
  goes on without ranks that were lost, the others keep their numbers.

  --strategy NAME      ddp: each rank has the whole model and a part of each batch (default: ddp)
                       fsdp: each rank has a part of the model as well
                       tp: each rank has a part of each layer, and the whole batch
                       2d: fsdp over groups of ranks, each of which is tp
                       pp: each rank has some of the blocks, and micro-batches run through the ranks
                       3d: ddp, or fsdp with --shard-stage, over groups of ranks, each of which is
                       pp with ranks that are tp
                       cp: each rank has the whole model, and a part of each sequence
                       ep: another model, whose blocks have mixtures of experts: each rank has some
                       experts, and a part of each batch. One rank trains the same model
                       ps: the last ranks are parameter servers. The others have parts of each
                       batch, and do not wait for each other. The log has the losses of rank 0
  --shard-stage N      what fsdp and 2d shard: 1: the state of the optimizer, 2: gradients as well,
                       3: parameters as well (default: 3). With it 3d is fsdp, and not ddp, over
                       groups of ranks. 1 exchanges gradients once a step there, and 2 and 3 once
                       for each micro-batch
  --tensor-ranks N     the ranks that share a layer in 2d and 3d (default: 2)
  --pipeline-ranks N   the ranks in a pipeline of 3d (default: 2)
  --schedule NAME      the order of micro-batches in pp and 3d: gpipe, 1f1b, interleaved (with two
                       stages on each rank) or zb, a zero-bubble schedule (default: 1f1b)
  --micro-batches N    the parts of a batch in pp and 3d (default: the ranks in a pipeline)
  --context-kind NAME  how the ranks attend in cp: ring: keys and values go round, or all-to-all:
                       each rank has some heads, whose number the ranks divide (default: ring)
  --experts N          the experts of each block in ep, on all ranks (default: 8)
  --top-k-experts K    the experts that each token chooses in ep (default: 2)
  --expert-exchange NAME
                       what ranks of ep send: padded: all slots of the experts, or packed: the
                       tokens, behind their number, for which the host waits (default: padded)
  --servers N          the ranks that serve in ps (default: 1)
  --staleness N        the steps that a worker of ps may be ahead of the slowest one; 0: they take
                       each step together (default: 0)
  --checkpoint FOLDER/ with a slash at its end, or the name of a folder: each rank writes its part
                       to FOLDER/step_N, and no rank has the whole model. In a restart the run
                       goes on from the latest checkpoint, also without --resume
  --keep N             checkpoints that stay in FOLDER; 0: all (default: 2)
  --async-save         writes to FOLDER while training goes on
  --group TABLE        how the ranks are joined, such as gloo or mpi, which needs mpirun (default:
                       the device's first way)
  --transport DEVICE   a device of the host, such as cpu, whose groups carry the calls through host
                       memory (default: the device's own groups, or cpu where it has none)
  --record-schedule FILE
                       writes what rank R does in each step to FILE.R, for bp-simulate; not in ps
)";

struct Choices {
  StrategyChoice strategy;
  SaveChoice saves;
  std::string group, transport, record;
};

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// Options of 04_train_gpt that would have no effect.
void refuse_what_is_lacking(const Options& o) {
  const Options defaults;
  const bool wants_sample = o.sample != defaults.sample || o.prompt != defaults.prompt ||
                            o.temperature != defaults.temperature || o.top_k != defaults.top_k;
  if (wants_sample) fail("--sample, --prompt, --temperature and --top-k are those of 04_train_gpt");
  if (o.capture || o.explain) fail("--capture and --explain are those of 04_train_gpt");
}

std::string with_rank(std::string device, uint32_t slot) {
  const size_t place = device.find("{}");
  return place == std::string::npos ? device : device.replace(place, 2, std::to_string(slot));
}

std::shared_ptr<bd::Store> make_store(const bd::Launch& launch) {
  const uint16_t port = launch.world_size == 1 ? uint16_t{0} : launch.master_port;
  return std::make_shared<bd::TcpStore>(launch.master_host, port, launch.rank == 0,
                                        launch.world_size);
}

// Returns part `rank` of `size` of the windows of a batch.
Tokens part_of(const Tokens& batch, uint32_t rank, uint32_t size) {
  const auto part = static_cast<std::ptrdiff_t>(batch.inputs.size() / size);
  const auto of = [&](const std::vector<int64_t>& all) {
    const auto first = all.begin() + part * static_cast<std::ptrdiff_t>(rank);
    return std::vector<int64_t>(first, first + part);
  };
  return {of(batch.inputs), of(batch.targets)};
}

// Returns the group with which ranks agree on checkpoints. A thread must not make calls on the
// device of the model beside those of the model.
bd::ProcessGroup group_of_saves(const SaveChoice& choice, const bd::Launch& launch,
                                const std::shared_ptr<bd::Store>& store,
                                const bd::ProcessGroup& group) {
  if (!choice.is_asynchronous) return group;
  return {bp::Device("cpu"), launch.rank, launch.world_size, store, {.name = "saves"}};
}

double loss_of_validation(Strategy& strategy, const Text& text, const Options& options) {
  const auto loss = [&](const Windows& windows) { return strategy.loss(windows); };
  return validate(strategy.model(), loss, text, options);
}

class Training {
 public:
  Training(const Options& options, const Text& text, const bd::Launch& launch,
           const bd::ProcessGroup& group, Strategy& strategy, bp::AdamW* optimizer, Saves& saves,
           ScheduleRecorder* recorder)
      : o_(options),
        text_(text),
        launch_(launch),
        group_(group),
        strategy_(strategy),
        optimizer_(optimizer),
        saves_(saves),
        recorder_(recorder) {}

  void run(int64_t done) {
    const bp::CosineSchedule schedule{
        .peak = o_.lr, .least = o_.lr / 10, .warmup = o_.warmup, .total = o_.steps};
    strategy_.begin(schedule, done);
    const bool is_first = launch_.rank == 0;
    LossLog log(is_first ? o_.log : "", "step,loss,lr", done);
    std::optional<bp::ProgressBar> bar;
    if (is_first) bar.emplace(static_cast<uint64_t>(o_.stop - done), "training");
    const auto start = std::chrono::steady_clock::now();
    std::string note;
    std::vector<double> seconds;  // Of each step, without validation and checkpoints.
    for (int64_t step = done + 1; step <= o_.stop; ++step) {
      if (strategy_.computes()) {
        const auto step_start = std::chrono::steady_clock::now();
        const double lr = schedule.lr(step), loss = take_recorded(step, lr);
        seconds.push_back(seconds_since(step_start));
        if (step % o_.eval_every == 0 || step == o_.stop) note_validation();
        if (is_first) {
          log.add(step, {loss, lr});
          note = note_of(loss, static_cast<double>(step - done) / seconds_since(start));
          bar->step(note);
        }
      }
      save_if_due(step);
    }
    saves_.finish();
    if (is_first) bar->finish(note);
    if (is_first && !seconds.empty()) say_median(std::move(seconds));
  }

 private:
  static double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // The first steps make plans and fill caches, so a quarter of the steps does not count.
  static void say_median(std::vector<double> seconds) {
    seconds.erase(seconds.begin(),
                  seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 4));
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::ranges::nth_element(seconds, middle);
    std::printf("a step takes %.1f ms (the median of the last %zu)\n", *middle * 1e3,
                seconds.size());
  }

  // All ranks meet for a checkpoint, and at the end.
  void save_if_due(int64_t step) {
    const bool is_due = step % o_.save_every == 0 && !o_.checkpoint.empty();
    if (!is_due && step != o_.stop) return;
    strategy_.meet();
    saves_.save(strategy_, optimizer_, step);
  }

  double take_recorded(int64_t step, double lr) {
    if (recorder_ != nullptr) recorder_->begin_step();
    const double loss = take(step, lr);
    if (recorder_ != nullptr) recorder_->end_step();
    return loss;
  }

  // Takes a step, and returns the mean loss of all ranks that take it together.
  double take(int64_t step, double lr) {
    const auto number = static_cast<uint64_t>(step) * strategy_.data_size() + strategy_.data_rank();
    group_.device().generator().set_seed(hashed(static_cast<uint64_t>(o_.seed) + 2, number));
    for (const bp::Tensor& tensor : strategy_.parameters()) tensor.set_grad({});
    const Tokens tokens =
        part_of(training_batch(text_, o_, step), strategy_.data_rank(), strategy_.data_size());
    const bp::Tensor loss = strategy_.loss_and_gradients(to_device(tokens, o_.context));
    if (o_.clip > 0) strategy_.clip(o_.clip);
    strategy_.update(optimizer_, lr);
    if (!strategy_.steps_together()) return loss.item<double>();
    const bp::Tensor mean = loss.clone();
    group_.all_reduce(mean, bd::Reduction::kAverage).join();
    return mean.item<double>();
  }

  void note_validation() {
    if (launch_.rank != 0 && !strategy_.runs_together()) return;
    char text[128];
    std::snprintf(text, sizeof(text), ", validation %.4f",
                  loss_of_validation(strategy_, text_, o_));
    validated_ = text;
  }

  std::string note_of(double loss, double rate) const {
    char line[128];
    std::snprintf(line, sizeof(line), "loss %.4f%s, %.0f tokens/s", loss, validated_.c_str(),
                  rate * static_cast<double>(o_.batch * o_.context));
    return line;
  }

  const Options& o_;
  const Text& text_;
  const bd::Launch& launch_;
  const bd::ProcessGroup& group_;
  Strategy& strategy_;
  bp::AdamW* const optimizer_;  // May be null.
  Saves& saves_;
  ScheduleRecorder* const recorder_;  // May be null.
  std::string validated_;
};

int run(const Options& options, const Choices& choices) {
  refuse_what_is_lacking(options);
  if (!choices.record.empty() && choices.strategy.name == "ps") {
    fail("--record-schedule is for other strategies than ps, whose servers take no steps");
  }
  const bd::Launch launch = bd::read_launch(std::getenv);
  const bp::Device device(with_rank(options.device, launch.slot));
  const bp::DeviceGuard guard(device);
  bp::manual_seed(static_cast<uint64_t>(options.seed));
  const Text text = read_text(options);
  const std::shared_ptr<bd::Store> store = make_store(launch);
  std::optional<ScheduleRecorder> recorder;
  if (!choices.record.empty()) {
    recorder.emplace(choices.record, launch.rank, launch.world_size, device);
  }
  const bd::ProcessGroup group(device, launch.rank, launch.world_size, store,
                               {.table_name = choices.group,
                                .transport = choices.transport,
                                .observer = recorder ? recorder->observer() : nullptr});
  const std::unique_ptr<Strategy> strategy =
      make_strategy(choices.strategy, static_cast<int64_t>(text.vocabulary.size()), options, group);
  if (options.batch % strategy->data_size() != 0) {
    fail("--batch is " + std::to_string(options.batch) + ", for " +
         std::to_string(strategy->data_size()) + " ranks; allowed: a multiple of their number");
  }
  const std::shared_ptr<bp::AdamW> optimizer =
      strategy->make_optimizer({.lr = options.lr, .weight_decay = options.weight_decay});
  Saves saves(choices.saves, options, text, group_of_saves(choices.saves, launch, store, group));
  const int64_t done = saves.resume(launch, *strategy, optimizer.get());
  if (launch.rank == 0) {
    std::printf("%u ranks of %s, joined by %s: %s, with layers of %lld parameters, seed %lld\n",
                launch.world_size, device.name(), group.table_name(), choices.strategy.name.c_str(),
                static_cast<long long>(strategy->model().parameter_count()),
                static_cast<long long>(options.seed));
    if (done > 0) {
      std::printf("continues behind step %lld\n", static_cast<long long>(done));
    } else if (launch.restart_count > 0) {
      std::printf("restart %u: there is no checkpoint, so the run begins anew\n",
                  launch.restart_count);
    }
  }
  Training(options, text, launch, group, *strategy, optimizer.get(), saves,
           recorder ? &*recorder : nullptr)
      .run(done);
  if (launch.rank == 0 || strategy->runs_together()) {
    const double loss = loss_of_validation(*strategy, text, options);
    if (launch.rank == 0) {
      std::printf("validation loss %.4f after %lld steps\n", loss,
                  static_cast<long long>(std::max(done, options.stop)));
    }
  }
  group.barrier();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Choices choices;
    Options options = parse(argc, argv,
                            {.program = "11_train_gpt_distributed",
                             .help = kHelp,
                             .texts = {{"--strategy", &choices.strategy.name},
                                       {"--shard-stage", &choices.strategy.shard_stage},
                                       {"--tensor-ranks", &choices.strategy.tensor_ranks},
                                       {"--pipeline-ranks", &choices.strategy.pipeline_ranks},
                                       {"--schedule", &choices.strategy.schedule},
                                       {"--micro-batches", &choices.strategy.micro_batches},
                                       {"--context-kind", &choices.strategy.context_kind},
                                       {"--experts", &choices.strategy.experts},
                                       {"--top-k-experts", &choices.strategy.top_k_experts},
                                       {"--expert-exchange", &choices.strategy.expert_exchange},
                                       {"--servers", &choices.strategy.servers},
                                       {"--staleness", &choices.strategy.staleness},
                                       {"--keep", &choices.saves.keep},
                                       {"--group", &choices.group},
                                       {"--transport", &choices.transport},
                                       {"--record-schedule", &choices.record}},
                             .flags = {{"--async-save", &choices.saves.is_asynchronous}}});
    options.variant = variant_of(choices.strategy);
    const int code = run(options, choices);
    flush_standard_output();
    return code;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "11_train_gpt_distributed: %s\n", e.what());
    return 1;
  }
}
