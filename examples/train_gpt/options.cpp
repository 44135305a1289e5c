#include "train_gpt/options.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <type_traits>
#include <variant>

#include "output.hpp"

namespace {

constexpr const char* kHelp = R"(
  --device NAME        the device to train on, such as cpu or cpu:0 (default: cpu)
  --data FILE          the text (default: Pride and Prejudice, which came with this program)
  --seed N             of the weights, the windows, the dropout and the sample (default: 1)

  --layers N           transformer blocks (default: 4)
  --width N            of each position (default: 256)
  --heads N            of attention; a divisor of the width (default: 4)
  --context N          characters that the model sees at once (default: 128)
  --tie-weights        the head has the weight of the token embedding, and none of its own

  --steps N            of training; the schedule ends there (default: 2000)
  --stop N             ends after this step, as an interruption would (default: the last step)
  --batch N            windows in a step (default: 8)
  --lr X               the peak of a cosine schedule that ends at a tenth of it (default: 0.001)
  --warmup N           steps in which the rate rises (default: 100)
  --weight-decay X     of AdamW (default: 0.1)
  --dropout X          chance (default: 0)
  --capture            captures a whole step after two eager ones, and replays it
  --clip X             norm that gradients are scaled down to; 0: off (default: 0)
  --eval-every N       steps between validations (default: 250)
  --eval-batches N     batches of a validation (default: 10)

  --checkpoint FILE    where weights and all else that a run needs go
  --save-every N       steps between checkpoints (default: 500)
  --resume             continues from the checkpoint, and adds to the log
  --log FILE           a line "step,loss,lr" for each step, as CSV

  --sample N           characters to write at the end (default: 500)
  --prompt TEXT        what they continue (default: a line break)
  --temperature X      above 1 bolder, below 1 more careful (default: 0.8)
  --top-k N            chooses among the N likeliest characters; 0: all (default: 20)
  --explain            says at the end which ops did not run on kernels of the device
  --help               this text

The last line says how the ops were served: by kernels of the device, by decompositions, or on the
host.
)";

std::string help_of(const MoreOptions& more) {
  return "usage: " + more.program + " [OPTION ...]\n" + more.help + kHelp;
}

[[noreturn]] void usage_error(const MoreOptions& more, const std::string& what) {
  std::cerr << what << "\n\n" << help_of(more);
  std::exit(2);
}

using Target = std::variant<std::string*, int64_t*, double*>;
struct Named {
  const char* name;
  Target target;
  double least = 0;
};

struct Flag {
  const char* name;
  bool* target;
};

template <typename T>
void parse_number(const MoreOptions& more, const Named& option, const std::string& text, T& value) {
  std::istringstream stream(text);
  stream >> std::noskipws >> value;
  if (stream && stream.eof() && static_cast<double>(value) >= option.least) return;
  std::ostringstream least;
  least << option.least;
  usage_error(more, std::string(option.name) + " is '" + text +
                        "'; allowed: " + (std::is_integral_v<T> ? "whole numbers" : "numbers") +
                        " from " + least.str());
}

}  // namespace

Options parse(int argc, char** argv, const MoreOptions& more) {
  Options o;
  o.program = more.program;
  std::vector<Named> table = {
      {"--device", &o.device},
      {"--data", &o.data},
      {"--seed", &o.seed},
      {"--layers", &o.layers, 1},
      {"--width", &o.width, 1},
      {"--heads", &o.heads, 1},
      {"--context", &o.context, 1},
      {"--steps", &o.steps},
      {"--stop", &o.stop, 1},
      {"--batch", &o.batch, 1},
      {"--lr", &o.lr},
      {"--warmup", &o.warmup},
      {"--weight-decay", &o.weight_decay},
      {"--dropout", &o.dropout},
      {"--clip", &o.clip},
      {"--eval-every", &o.eval_every, 1},
      {"--eval-batches", &o.eval_batches, 1},
      {"--checkpoint", &o.checkpoint},
      {"--save-every", &o.save_every, 1},
      {"--log", &o.log},
      {"--sample", &o.sample},
      {"--prompt", &o.prompt},
      {"--temperature", &o.temperature, 1e-3},
      {"--top-k", &o.top_k},
  };
  for (const auto& [name, target] : more.texts) table.push_back({name, target});
  std::vector<Flag> flags = {{"--resume", &o.resume},
                             {"--explain", &o.explain},
                             {"--capture", &o.capture},
                             {"--tie-weights", &o.ties_weights}};
  for (const auto& [name, target] : more.flags) flags.push_back({name, target});
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::fputs(help_of(more).c_str(), stdout);
      flush_standard_output();
      std::exit(0);
    }
    const auto flag = std::ranges::find(flags, name, &Flag::name);
    if (flag != flags.end()) {
      *flag->target = true;
      continue;
    }
    const auto found = std::ranges::find(table, name, &Named::name);
    if (found == table.end()) usage_error(more, "unknown option: " + name);
    if (++i == argc) usage_error(more, name + " needs a value");
    if (auto* const* text = std::get_if<std::string*>(&found->target)) {
      **text = argv[i];
    } else if (auto* const* whole = std::get_if<int64_t*>(&found->target)) {
      parse_number(more, *found, argv[i], **whole);
    } else {
      parse_number(more, *found, argv[i], *std::get<double*>(found->target));
    }
  }
  if (o.resume && o.checkpoint.empty()) usage_error(more, "--resume needs --checkpoint FILE");
  if (o.stop == 0 || o.stop > o.steps) o.stop = o.steps;
  return o;
}
