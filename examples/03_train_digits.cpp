// 03_train_digits - trains a small convolutional network on handwritten digits, saves its weights,
// loads them again, and checks that nothing changed.
//
// The data are the 1,797 digits of 8 x 8 pixels in data/digits.csv (see data/README.md). The
// program trains on 1,437 of them and tests with 360, and each digit has the same share in both.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "backplane/runtime/runtime.hpp"
#include "output.hpp"

namespace {

struct Options {
  std::string device = "cpu";
  uint64_t seed = 1;
  int64_t epochs = 20;
  std::string out = "digits.safetensors", log;
  std::string data = BACKPLANE_DIGITS_CSV;
  bool explain = false;
};

constexpr const char* kHelp = R"(usage: 03_train_digits [OPTION ...]

  --device NAME   the device to train on, such as cpu or cpu:0 (default: cpu)
  --seed N        of the split, the weights, the order and the dropout masks (default: 1)
  --epochs N      passes over the training data (default: 20)
  --out FILE      where the weights go (default: digits.safetensors)
  --log FILE      the loss of each step as CSV (default: none)
  --data FILE     the digits as CSV (default: the copy that came with this program)
  --explain       says at the end which ops did not run on kernels of the device
  --help          this text

The last lines are the accuracy on the test data, for which the same seed gives the same figure, and
how the ops were served: by kernels of the device, by decompositions, or on the host.
)";

[[noreturn]] void usage_error(const std::string& what) {
  std::cerr << what << "\n\n" << kHelp;
  std::exit(2);
}

int64_t parse_number(const std::string& option, const std::string& text, int64_t least) {
  size_t used = 0;
  int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used != text.size() || text.empty() || value < least) {
    usage_error(option + " is '" + text + "'; allowed: whole numbers from " +
                std::to_string(least));
  }
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--help" || name == "-h") {
      std::fputs(kHelp, stdout);
      flush_standard_output();
      std::exit(0);
    }
    if (name == "--explain") {
      options.explain = true;
      continue;
    }
    if (i + 1 == argc) usage_error("unknown option, or one without its value: " + name);
    const std::string value = argv[++i];
    if (name == "--device") {
      options.device = value;
    } else if (name == "--seed") {
      options.seed = static_cast<uint64_t>(parse_number(name, value, 0));
    } else if (name == "--epochs") {
      options.epochs = parse_number(name, value, 1);
    } else if (name == "--out") {
      options.out = value;
    } else if (name == "--log") {
      options.log = value;
    } else if (name == "--data") {
      options.data = value;
    } else {
      usage_error("unknown option: " + name);
    }
  }
  return options;
}

// Makes a model that maps (n, 1, 8, 8) to 10 logits.
bp::nn::Sequential make_model() {
  namespace nn = bp::nn;
  const nn::Conv2dOptions same{.padding = 1};
  return nn::Sequential({
      std::make_shared<nn::Conv2d>(1, 16, 3, same),
      std::make_shared<nn::Relu>(),
      std::make_shared<nn::Conv2d>(16, 32, 3, same),
      std::make_shared<nn::Relu>(),
      std::make_shared<nn::MaxPool2d>(2),
      std::make_shared<nn::Flatten>(),
      std::make_shared<nn::Dropout>(0.25),
      std::make_shared<nn::Linear>(32 * 4 * 4, 64),
      std::make_shared<nn::Relu>(),
      std::make_shared<nn::Linear>(64, 10),
  });
}

// Returns the number of correct answers on `dataset`.
int64_t count_correct(bp::nn::Module& model, const bp::Dataset& dataset, bp::Device device) {
  const bp::NoGradGuard no_grad;
  model.train(false);
  bp::DataLoader loader(dataset, device, {.batch_size = 256});
  int64_t correct = 0;
  for (bp::Batch batch; loader.next(batch);) {
    const bp::Tensor answers = bp::argmax(model(batch.inputs), 1);
    correct += bp::sum(answers == batch.targets).item<int64_t>();
  }
  model.train();
  return correct;
}

void train(bp::nn::Module& model, const bp::Dataset& dataset, bp::Device device,
           const Options& options) {
  bp::AdamW optimizer(model.parameters(), {.lr = 2e-3});
  bp::DataLoader loader(dataset, device,
                        {.batch_size = 64, .shuffles = true, .seed = options.seed});
  LossLog log(options.log, "step,loss");
  bp::ProgressBar bar(static_cast<uint64_t>(options.epochs * loader.batch_count()), "training");
  std::string note;
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    loader.begin(epoch);
    double total = 0;
    for (bp::Batch batch; loader.next(batch);) {
      optimizer.zero_grad();
      const bp::Tensor loss = bp::cross_entropy(model(batch.inputs), batch.targets);
      loss.backward();
      optimizer.step();
      const auto value = loss.item<double>();
      log.add(++step, {value});
      total += value;
      bar.step(note);
    }
    char text[64];
    std::snprintf(text, sizeof(text), "epoch %lld, loss %.4f", static_cast<long long>(epoch) + 1,
                  total / static_cast<double>(loader.batch_count()));
    note = text;
  }
  bar.finish(note);
}

int run(const Options& options) {
  const bp::Device device(options.device);
  const bp::DeviceGuard guard(device);
  bp::manual_seed(options.seed);

  bp::Dataset digits = bp::read_csv(options.data, {1, 8, 8});
  for (float& pixel : digits.inputs) pixel /= 16;  // The range 0 to 16 becomes 0 to 1.
  const auto [training, test] = bp::stratified_split(digits, digits.count() / 5 + 1, options.seed);

  bp::nn::Sequential model = make_model();
  std::printf("%s: %lld training and %lld test images, %lld parameters, seed %llu\n", device.name(),
              static_cast<long long>(training.count()), static_cast<long long>(test.count()),
              static_cast<long long>(model.parameter_count()),
              static_cast<unsigned long long>(options.seed));
  train(model, training, device, options);
  const int64_t correct = count_correct(model, test, device);

  bp::save_safetensors(options.out, model.state_dict(), {{"model", "03_train_digits"}});
  bp::nn::Sequential reloaded = make_model();
  reloaded.load_state_dict(bp::load_safetensors(options.out).tensors);
  const int64_t again = count_correct(reloaded, test, device);
  if (again != correct) {
    std::fprintf(stderr, "the reloaded weights give %lld correct answers, not %lld\n",
                 static_cast<long long>(again), static_cast<long long>(correct));
    return 1;
  }
  std::printf("weights saved to %s, reloaded and checked\n", options.out.c_str());
  std::printf("test accuracy %.2f %% (%lld of %lld)\n",
              100.0 * static_cast<double>(correct) / static_cast<double>(test.count()),
              static_cast<long long>(correct), static_cast<long long>(test.count()));
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
    std::fprintf(stderr, "03_train_digits: %s\n", e.what());
    return 1;
  }
}
