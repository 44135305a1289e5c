// 04_train_gpt - trains a character-level transformer on a novel, and lets it write.
//
// The text is data/pride_and_prejudice.txt (see data/README.md). The program trains on the first
// nine tenths and validates with the last tenth. The windows of the text that a step sees depend
// only on the seed and the number of the step, so an interrupted run continues bit for bit.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <sstream>
#include <stdexcept>

#include "backplane/runtime/runtime.hpp"
#include "output.hpp"
#include "train_gpt/options.hpp"
#include "train_gpt/steps.hpp"
#include "train_gpt/text.hpp"

namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

class Gpt : public bp::nn::Module {
 public:
  Gpt(int64_t vocabulary, const Options& o) {
    namespace nn = bp::nn;
    add_module("token", token_ = std::make_shared<nn::Embedding>(vocabulary, o.width, 0.1));
    add_module("position", position_ = std::make_shared<nn::Embedding>(o.context, o.width, 0.1));
    for (int64_t i = 0; i < o.layers; ++i) {
      blocks_.push_back(std::make_shared<nn::TransformerBlock>(
          o.width, o.heads,
          nn::TransformerBlockOptions{.attention = {.causal = bp::Causal::kTopLeft},
                                      .dropout = o.dropout}));
      add_module("blocks." + std::to_string(i), blocks_.back());
    }
    add_module("norm", norm_ = std::make_shared<nn::LayerNorm>(o.width));
    add_module("head", head_ = std::make_shared<nn::Linear>(o.width, vocabulary, false));
  }

  // Maps tokens (batch, length) to logits (batch, length, vocabulary) of the next token.
  bp::Tensor forward(const bp::Tensor& tokens) override {
    const bp::Tensor places = bp::arange(tokens.shape(1), BP_I64, tokens.device());
    bp::Tensor x = (*token_)(tokens) + (*position_)(places);
    for (const auto& block : blocks_) x = (*block)(x);
    return (*head_)((*norm_)(x));
  }

 private:
  std::shared_ptr<bp::nn::Embedding> token_, position_;
  std::vector<std::shared_ptr<bp::nn::TransformerBlock>> blocks_;
  std::shared_ptr<bp::nn::LayerNorm> norm_;
  std::shared_ptr<bp::nn::Linear> head_;
};

// Returns the mean loss of windows that are spread evenly over the text's last tenth.
double validate(Gpt& model, const Text& text, const Options& o) {
  const bp::NoGradGuard no_grad;
  model.train(false);
  const int64_t count = o.eval_batches * o.batch;
  const auto room = static_cast<int64_t>(text.validation.size()) - o.context - 1;
  double total = 0;
  for (int64_t i = 0; i < o.eval_batches; ++i) {
    std::vector<int64_t> starts;
    for (int64_t row = 0; row < o.batch; ++row)
      starts.push_back((i * o.batch + row) * room / count);
    const Tokens tokens = cut(text.validation, starts, o.context);
    total += loss_of(model, to_device(tokens, o.context)).item<double>();
  }
  model.train();
  return total / static_cast<double>(o.eval_batches);
}

// ---- Checkpoints -------------------------------------------------------------------------------

// Returns what a run that continues must have in common with the interrupted run.
bp::Metadata description(const Options& o, const Text& text) {
  std::ostringstream rates;
  rates.precision(17);
  rates << o.lr << " " << o.weight_decay << " " << o.dropout << " " << o.clip;
  const auto number = [](auto value) { return std::to_string(value); };
  return {{"program", "04_train_gpt"},     {"seed", number(o.seed)},
          {"layers", number(o.layers)},    {"width", number(o.width)},
          {"heads", number(o.heads)},      {"context", number(o.context)},
          {"batch", number(o.batch)},      {"steps", number(o.steps)},
          {"warmup", number(o.warmup)},    {"lr, weight decay, dropout, clip", rates.str()},
          {"vocabulary", text.vocabulary}, {"characters", number(text.training.size())}};
}

void save(const Options& o, const Text& text, const Gpt& model, const bp::AdamW& optimizer,
          int64_t step) {
  bp::TensorMap all;
  for (const auto& [name, tensor] : model.state_dict()) all["model." + name] = tensor;
  for (const auto& [name, tensor] : optimizer.state_dict()) all["optimizer." + name] = tensor;
  bp::Metadata metadata = description(o, text);
  metadata["step"] = std::to_string(step);
  bp::save_safetensors(o.checkpoint, all, metadata);
}

// Loads the checkpoint, and returns the number of steps that were done.
int64_t resume(const Options& o, const Text& text, Gpt& model, bp::AdamW& optimizer) {
  const bp::LoadedTensors loaded = bp::load_safetensors(o.checkpoint);
  for (const auto& [name, value] : description(o, text)) {
    const auto found = loaded.metadata.find(name);
    const std::string was = found == loaded.metadata.end() ? "" : found->second;
    if (was == value) continue;
    std::ostringstream message;
    message << o.checkpoint << ": " << name << " is '" << was << "', and here '" << value
            << "'; allowed: the same run";
    fail(message.str());
  }
  bp::TensorMap weights, state;
  for (const auto& [name, tensor] : loaded.tensors) {
    const size_t dot = name.find('.');
    (name.starts_with("model.") ? weights : state)[name.substr(dot + 1)] = tensor;
  }
  model.load_state_dict(weights);
  optimizer.load_state_dict(state);
  return std::stoll(loaded.metadata.at("step"));
}

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
