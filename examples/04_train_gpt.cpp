// 04_train_gpt - trains a character-level transformer on a novel, and lets it write.
//
// The text is data/pride_and_prejudice.txt (see data/README.md). The program trains on the first
// nine tenths and validates with the last tenth. The windows of the text that a step sees depend
// only on the seed and the number of the step, so an interrupted run continues bit for bit.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>

#include "backplane/runtime/runtime.hpp"
#include "output.hpp"
#include "train_gpt/checkpoint.hpp"
#include "train_gpt/model.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/steps.hpp"
#include "train_gpt/text.hpp"

namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// ---- Training ----------------------------------------------------------------------------------

double per_second(int64_t count, double seconds) {
  return count > 0 ? static_cast<double>(count) / seconds : 0;
}

void train(const Options& o, const Text& text, Gpt& model, bp::AdamW& optimizer, int64_t done) {
  const bp::CosineSchedule schedule{
      .peak = o.lr, .least = o.lr / 10, .warmup = o.warmup, .total = o.steps};
  LossLog log(o.log, "step,loss,lr", done);
  bp::ProgressBar bar(static_cast<uint64_t>(o.stop - done), "training");
  std::string note, validated;
  Steps steps(model, optimizer, o);
  double seconds = 0, rate = 0;
  for (int64_t step = done + 1; step <= o.stop; ++step) {
    const auto start = std::chrono::steady_clock::now();
    const double lr = schedule.lr(step);
    const double loss = steps.take(training_batch(text, o, step), step, lr);
    // The first steps also prepare what all later steps use, so they are not timed.
    if (step > done + steps.warm_count()) {
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    log.add(step, {loss, lr});
    char line[128];
    if (step % o.eval_every == 0 || step == o.stop) {
      std::snprintf(line, sizeof(line), ", validation %.4f", validate(model, text, o));
      validated = line;
    }
    rate = per_second(step - done - steps.warm_count(), seconds);
    std::snprintf(line, sizeof(line), "loss %.4f%s, %.0f tokens/s", loss, validated.c_str(),
                  rate * static_cast<double>(o.batch * o.context));
    note = line;
    bar.step(note);
    const bool is_due = step % o.save_every == 0 || step == o.stop;
    if (is_due && !o.checkpoint.empty()) save(o, text, model, optimizer, step);
  }
  bar.finish(note);
  std::printf("trained at %.0f tokens/s: %.1f steps/s of %llu %s, %.0f launches/s\n",
              rate * static_cast<double>(o.batch * o.context), rate,
              static_cast<unsigned long long>(steps.work_count()),
              steps.is_captured() ? "captured nodes" : "launches",
              rate * static_cast<double>(steps.work_count()));
}

// ---- Writing -----------------------------------------------------------------------------------

// Chooses a token by the logits of all tokens. `chance` is in [0, 1).
int64_t choose(std::vector<float> logits, const Options& o, double chance) {
  std::vector<int64_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  const auto logit = [&](int64_t token) { return logits[static_cast<size_t>(token)]; };
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < order.size()) {
    order.resize(static_cast<size_t>(o.top_k));
  }
  const auto weight = [&](int64_t token) {
    return std::exp((logit(token) - logit(order[0])) / o.temperature);
  };
  double total = 0;
  for (const int64_t token : order) total += weight(token);
  double left = chance * total;
  for (const int64_t token : order) {
    if ((left -= weight(token)) < 0) return token;
  }
  return order.back();
}

std::string write(Gpt& model, const Text& text, const Options& o) {
  const bp::NoGradGuard no_grad;
  model.train(false);
  std::vector<int64_t> tokens = text.encode(o.prompt);
  std::string written = o.prompt;
  bp::ProgressBar bar(static_cast<uint64_t>(o.sample), "writing");
  for (int64_t i = 0; i < o.sample; ++i) {
    const auto length = std::min(static_cast<int64_t>(tokens.size()), o.context);
    const std::vector<int64_t> seen(tokens.end() - length, tokens.end());
    const bp::Tensor logits = model(bp::from_host<int64_t>(seen, {1, length}));
    const auto number = hashed(static_cast<uint64_t>(o.seed) + 1, static_cast<uint64_t>(i));
    const double chance = static_cast<double>(number >> 11) * 0x1p-53;
    tokens.push_back(
        choose(logits.select(0, 0).select(0, length - 1).to_vector<float>(), o, chance));
    written += text.vocabulary[static_cast<size_t>(tokens.back())];
    bar.step();
  }
  bar.finish();
  return written;
}

int run(const Options& options) {
  const bp::Device device(options.device);
  const bp::DeviceGuard guard(device);
  bp::manual_seed(static_cast<uint64_t>(options.seed));
  const Text text = read_text(options);
  if (options.prompt.empty()) fail("--prompt is empty; allowed: at least one character");
  text.encode(options.prompt);

  Gpt model(static_cast<int64_t>(text.vocabulary.size()), options);
  bp::AdamW optimizer(model.parameters(), {.lr = options.lr, .weight_decay = options.weight_decay});
  const int64_t done = options.resume ? resume(options, text, model, optimizer) : 0;
  std::printf("%s: %zu characters to train on, %zu different ones, %lld parameters, seed %lld\n",
              device.name(), text.training.size(), text.vocabulary.size(),
              static_cast<long long>(model.parameter_count()),
              static_cast<long long>(options.seed));
  if (done > 0) std::printf("continues behind step %lld\n", static_cast<long long>(done));
  if (done < options.stop) train(options, text, model, optimizer, done);
  if (options.stop == 0 && !options.checkpoint.empty()) save(options, text, model, optimizer, 0);
  std::printf("validation loss %.4f after %lld steps\n", validate(model, text, options),
              static_cast<long long>(std::max(done, options.stop)));
  if (options.sample > 0) std::printf("%s\n", write(model, text, options).c_str());
  std::printf("%s\n", device.report(options.explain).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = run(parse(argc, argv));
    flush_standard_output();
    return code;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "04_train_gpt: %s\n", e.what());
    return 1;
  }
}
