// Generates text with a model on ggml's CPU backend and on a device of Backplane, and compares.
//
//   generate MODEL DEVICE COUNT THREADS [REFERENCE] < prompts      one prompt a line
//
// Both take the most likely token each time (temperature 0), up to COUNT tokens. Where they part,
// the margins say how close the choice was. ggml's CPU backend rounds the input of a product with
// quantised weights to 8 bits. REFERENCE is the same model with its weights in f32, for which it
// does not: its text on the CPU is what the device must generate. Without REFERENCE the device must
// generate the text of the CPU.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

[[noreturn]] void fail(const std::string& sentence) {
  std::fprintf(stderr, "generate: %s\n", sentence.c_str());
  std::exit(2);
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What a prompt and a token took: of the clock, and of the processor. Other work on the machine
// lengthens the first alone.
struct Times {
  double prompt_s, token_s, processor_s;
};

struct Step {
  llama_token token;          // The most likely one.
  std::vector<float> logits;  // Of all tokens.
};

class Model {
 public:
  Model(const char* path, ggml_backend_dev_t device, int threads) {
    devices_[0] = device;
    llama_model_params params = llama_model_default_params();
    params.devices = devices_;
    params.n_gpu_layers = device != nullptr ? 999 : 0;
    model_ = llama_model_load_from_file(path, params);
    if (model_ == nullptr) fail(std::string("the model ") + path + " is not loaded");
    llama_context_params context = llama_context_default_params();
    context.n_ctx = 1024;
    context.n_threads = context.n_threads_batch = threads;
    context_ = llama_init_from_model(model_, context);
    if (context_ == nullptr) fail("the model has no context");
  }
  ~Model() {
    llama_free(context_);
    llama_model_free(model_);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const llama_vocab* vocab() const { return llama_model_get_vocab(model_); }

  std::vector<llama_token> tokens(const std::string& text) const {
    std::vector<llama_token> list(text.size() + 8);
    const int count = llama_tokenize(vocab(), text.c_str(), static_cast<int>(text.size()),
                                     list.data(), static_cast<int>(list.size()), true, true);
    if (count < 0) fail("the prompt is not tokenised: " + text);
    list.resize(count);
    return list;
  }

  std::string text(const std::vector<llama_token>& list) const {
    std::string all;
    for (const llama_token token : list) {
      char piece[256];
      const int size = llama_token_to_piece(vocab(), token, piece, sizeof(piece), 0, true);
      all.append(piece, std::max(size, 0));
    }
    return all;
  }

  void forget() { llama_memory_clear(llama_get_memory(context_), true); }

  Step feed(std::vector<llama_token> list) {
    const llama_batch batch = llama_batch_get_one(list.data(), static_cast<int>(list.size()));
    if (llama_decode(context_, batch) != 0) fail("llama_decode failed");
    const float* const logits = llama_get_logits_ith(context_, -1);
    const int count = llama_vocab_n_tokens(vocab());
    const auto best = static_cast<llama_token>(std::max_element(logits, logits + count) - logits);
    return {best, std::vector<float>(logits, logits + count)};
  }

  // The tokens up to `count`. The times are those of one token.
  std::vector<Step> generate(const std::vector<llama_token>& prompt, int count, Times* times) {
    forget();
    const Clock::time_point start = Clock::now();
    std::vector<Step> steps{feed(prompt)};
    times->prompt_s = seconds_since(start) / static_cast<double>(prompt.size());
    const std::clock_t processor = std::clock();
    const Clock::time_point first = Clock::now();
    while (static_cast<int>(steps.size()) < count &&
           !llama_vocab_is_eog(vocab(), steps.back().token)) {
      steps.push_back(feed({steps.back().token}));
    }
    const auto fed = static_cast<double>(std::max<size_t>(steps.size() - 1, 1));
    times->token_s = seconds_since(first) / fed;
    times->processor_s = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC / fed;
    return steps;
  }

 private:
  ggml_backend_dev_t devices_[2] = {nullptr, nullptr};
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
};

// The root of the mean square of the differences, without what all logits share.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double mean = 0, square = 0;
  for (size_t i = 0; i < a.size(); ++i) mean += a[i] - b[i];
  mean /= static_cast<double>(a.size());
  for (size_t i = 0; i < a.size(); ++i) square += std::pow(a[i] - b[i] - mean, 2);
  return std::sqrt(square / static_cast<double>(a.size()));
}

double median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list.empty() ? 0 : list[list.size() / 2];
}

struct Speeds {
  void add(const Times& times) {
    prompt_s.push_back(times.prompt_s);
    token_s.push_back(times.token_s);
    processor_s.push_back(times.processor_s);
  }
  void print(const char* name) const {
    std::printf("%s: %.2f tokens per second, %.2f per second of a processor, %.1f of prompts\n",
                name, 1 / median(token_s), 1 / median(processor_s), 1 / median(prompt_s));
  }
  std::vector<double> prompt_s, token_s, processor_s;
};

struct Totals {
  int prompts = 0, equal_prompts = 0, tokens = 0, equal_tokens = 0;
  int exact_texts = 0, exact_tokens = 0;
  Speeds cpu, device;
  std::vector<double> cpu_distance, device_distance;
};

size_t count_same(const std::vector<Step>& a, const std::vector<Step>& b) {
  const size_t common = std::min(a.size(), b.size());
  size_t same = 0;
  while (same < common && a[same].token == b[same].token) ++same;
  return same;
}

void report_parting(const Model& model, const std::vector<Step>& cpu,
                    const std::vector<Step>& device, size_t at) {
  const llama_token a = cpu[at].token, b = device[at].token;
  std::printf(
      "  they part at token %zu: the CPU takes '%s' before '%s' by %.4f, the device '%s' by "
      "%.4f\n",
      at, model.text({a}).c_str(), model.text({b}).c_str(), cpu[at].logits[a] - cpu[at].logits[b],
      model.text({b}).c_str(), device[at].logits[b] - device[at].logits[a]);
}

// The text of the weights in f32, and how far the logits of both are from its logits at the first
// token at which the texts part, or at the last one.
void ask_reference(Model& reference, const std::vector<llama_token>& prompt,
                   const std::vector<Step>& cpu, const std::vector<Step>& device, size_t at,
                   int count, Totals& totals) {
  Times times;
  const std::vector<Step> exact = reference.generate(prompt, count, &times);
  const size_t same = count_same(exact, device);
  totals.exact_tokens += static_cast<int>(same);
  totals.exact_texts += same == exact.size() && same == device.size();
  std::printf(
      "  with weights in f32: %zu of %zu tokens are those of the device, %zu those of the CPU\n",
      same, exact.size(), count_same(exact, cpu));
  if (same < std::min(exact.size(), device.size())) report_parting(reference, exact, device, same);
  if (at >= exact.size() || same < at) return;  // Other tokens came before.
  totals.cpu_distance.push_back(distance(cpu[at].logits, exact[at].logits));
  totals.device_distance.push_back(distance(device[at].logits, exact[at].logits));
}

void compare(Model& cpu, Model& device, Model* reference, const std::string& prompt, int count,
             Totals& totals) {
  const std::vector<llama_token> tokens = cpu.tokens(prompt);
  Times cpu_times, device_times;
  const std::vector<Step> a = cpu.generate(tokens, count, &cpu_times);
  const std::vector<Step> b = device.generate(tokens, count, &device_times);
  totals.cpu.add(cpu_times);
  totals.device.add(device_times);
  const size_t common = std::min(a.size(), b.size());
  const size_t same = count_same(a, b);
  const bool is_equal = same == a.size() && same == b.size();
  std::printf("\"%s\": %zu of %zu tokens are the same\n", prompt.c_str(), same, a.size());
  if (!is_equal && same < common) report_parting(cpu, a, b, same);
  if (reference != nullptr) {
    ask_reference(*reference, tokens, a, b, std::min(same, common - 1), count, totals);
  }
  ++totals.prompts;
  totals.equal_prompts += is_equal;
  totals.tokens += static_cast<int>(a.size());
  totals.equal_tokens += static_cast<int>(same);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) fail("usage: generate MODEL DEVICE COUNT THREADS [REFERENCE] < prompts");
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_WARN) std::fputs(text, stderr);
      },
      nullptr);
  ggml_backend_load_all();
  ggml_backend_dev_t const found = ggml_backend_dev_by_name(argv[2]);
  if (found == nullptr) fail(std::string("there is no device ") + argv[2]);
  const int count = std::atoi(argv[3]), threads = std::atoi(argv[4]);
  Model cpu(argv[1], nullptr, threads), device(argv[1], found, threads);
  std::unique_ptr<Model> reference;
  if (argc > 5) reference = std::make_unique<Model>(argv[5], nullptr, threads);
  Totals totals;
  for (std::string prompt; std::getline(std::cin, prompt);) {
    if (!prompt.empty()) compare(cpu, device, reference.get(), prompt, count, totals);
  }
  std::printf("texts %d of %d equal, tokens %d of %d equal\n", totals.equal_prompts, totals.prompts,
              totals.equal_tokens, totals.tokens);
  totals.cpu.print("CPU");
  totals.device.print("device");
  if (reference == nullptr) return totals.equal_prompts == totals.prompts ? 0 : 1;
  std::printf(
      "weights in f32: texts %d of %d equal to those of the device, tokens %d; distance of the "
      "logits: CPU %.4f, device %.4f (median)\n",
      totals.exact_texts, totals.prompts, totals.exact_tokens, median(totals.cpu_distance),
      median(totals.device_distance));
  return totals.exact_texts == totals.prompts ? 0 : 1;
}
