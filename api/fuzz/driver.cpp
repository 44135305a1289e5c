// Runs a fuzz target without libFuzzer: every seed of its corpus, then a fixed number of mutations
// of the seeds. The mutations are the same in each run and with each compiler.
//
//   PROGRAM FOLDER [--inputs N] [--seed S]    runs N mutations, 20,000 by default
//   PROGRAM FOLDER --only K [--seed S]        runs mutation K alone
//   PROGRAM FILE                              runs one input
//
// Mutation K depends only on the corpus, S and K. When the target ends the process, the driver
// writes the input to PROGRAM.input in the working folder and prints its number.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/fuzz/fuzz.hpp"

// The address sanitizer has this function, because it ends the process by itself.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace bp::fuzz {
namespace {

namespace fs = std::filesystem;

using Input = std::vector<uint8_t>;

constexpr size_t kMaxInputBytes = 65536;
constexpr uint64_t kNoMutation = UINT64_MAX;

// The generator SplitMix64 gives the same numbers everywhere. The distributions of <random> do not.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  // Returns a number below `limit`, or 0 for a limit of 0.
  size_t below(size_t limit) { return limit == 0 ? 0 : static_cast<size_t>(next() % limit); }

 private:
  uint64_t state_;
};

// ---- The input that runs, for the report of a crash -------------------------------------------

const Input* running = nullptr;
uint64_t running_mutation = kNoMutation;
uint64_t running_seed = 0;
std::string crash_file;

// Writes the input to a file. A signal handler calls it, so it may only use what a handler may
// call.
void keep_input() {
  if (running == nullptr) return;
  const Input& input = *std::exchange(running, nullptr);
  const int file = ::open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool is_written =
      file >= 0 && ::write(file, input.data(), input.size()) == static_cast<ssize_t>(input.size());
  char text[256];
  const int length =
      running_mutation == kNoMutation
          ? std::snprintf(text, sizeof(text), "a seed of the corpus ended the process\n")
          : std::snprintf(text, sizeof(text),
                          "mutation %llu with seed %llu ended the process; repeat it with --only\n",
                          static_cast<unsigned long long>(running_mutation),
                          static_cast<unsigned long long>(running_seed));
  static_cast<void>(!::write(STDERR_FILENO, text, static_cast<size_t>(length)));
  const char* const outcome = is_written ? "its input is in " : "its input cannot be written to ";
  static_cast<void>(!::write(STDERR_FILENO, outcome, std::strlen(outcome)));
  static_cast<void>(!::write(STDERR_FILENO, crash_file.data(), crash_file.size()));
  static_cast<void>(!::write(STDERR_FILENO, "\n", 1));
}

void on_signal(int number) {
  keep_input();
  signal(number, SIG_DFL);
  raise(number);
}

// The handler has a stack of its own, because the stack of the program may have run out.
void watch_for_crashes() {
  static char stack[65536];
  stack_t own{};
  own.ss_sp = stack;
  own.ss_size = sizeof(stack);
  sigaltstack(&own, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTERM}) {
    sigaction(number, &action, nullptr);
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(keep_input);
}

void run(const Input& input, uint64_t mutation) {
  running = &input;
  running_mutation = mutation;
  // The copy has the exact size of the input, so that a sanitizer sees a read behind the end.
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[input.size()]);
  std::copy(input.begin(), input.end(), copy.get());
  LLVMFuzzerTestOneInput(copy.get(), input.size());
  running = nullptr;
}

// ---- Mutations ----------------------------------------------------------------------------------

void insert(Input& input, size_t at, const uint8_t* bytes, size_t count) {
  count = std::min(count, kMaxInputBytes - std::min(kMaxInputBytes, input.size()));
  input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), bytes, bytes + count);
}

void erase(Input& input, size_t at, size_t count) {
  const auto begin = input.begin() + static_cast<std::ptrdiff_t>(at);
  input.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(count, input.size() - at)));
}

// Overwrites bytes with a little-endian number at the limits of its width.
void write_limit(Input& input, size_t at, Random& random) {
  constexpr uint64_t kLimits[] = {0,         1,          0x7F,       0x80,       0xFF,
                                  0x7FFF,    0xFFFF,     0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
                                  INT64_MAX, 1ull << 63, UINT64_MAX};
  const uint64_t limit = kLimits[random.below(std::size(kLimits))];
  const size_t width = size_t{1} << random.below(4);
  for (size_t i = 0; i < width && at + i < input.size(); ++i) {
    input[at + i] = static_cast<uint8_t>(limit >> (8 * i));
  }
}

// Inserts a part of another seed. Most formats break where whole members occur twice or are
// missing.
void splice(Input& input, size_t at, const Input& other, Random& random) {
  const size_t begin = random.below(other.size());
  const size_t count = 1 + random.below(std::min<size_t>(64, other.size() - begin));
  if (begin + count <= other.size()) insert(input, at, other.data() + begin, count);
}

// Inserts the same byte many times, as with a bracket that nests.
void repeat(Input& input, size_t at, Random& random) {
  const Input same(1 + random.below(300), input.empty() ? uint8_t{'['} : input[at]);
  insert(input, at, same.data(), same.size());
}

void mutate_once(Input& input, const std::vector<Input>& corpus, Random& random) {
  const size_t at = random.below(input.size());
  const auto byte = static_cast<uint8_t>(random.next());
  switch (random.below(9)) {
    case 0:
      if (!input.empty()) input[at] ^= static_cast<uint8_t>(1u << random.below(8));
      break;
    case 1:
      if (!input.empty()) input[at] = byte;
      break;
    case 2:
      insert(input, at, &byte, 1);
      break;
    case 3:
      if (!input.empty()) erase(input, at, 1 + random.below(8));
      break;
    case 4:
      if (!input.empty()) erase(input, at, 1 + random.below(input.size()));
      break;
    case 5:
      write_limit(input, at, random);
      break;
    case 6:
      splice(input, at, corpus[random.below(corpus.size())], random);
      break;
    case 7:
      repeat(input, at, random);
      break;
    case 8: {
      const Input copy(input.begin() + static_cast<std::ptrdiff_t>(at), input.end());
      insert(input, random.below(input.size()), copy.data(), std::min<size_t>(copy.size(), 64));
      break;
    }
  }
}

Input mutation(const std::vector<Input>& corpus, uint64_t seed, uint64_t index) {
  Random random(seed * 0x9E3779B97F4A7C15 + index);
  Input input = corpus[random.below(corpus.size())];
  for (size_t rounds = size_t{1} << random.below(5); rounds > 0; --rounds) {
    mutate_once(input, corpus, random);
  }
  return input;
}

// ---- The command line ---------------------------------------------------------------------------

Input read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::cerr << path.string() << ": cannot be read\n";
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Reads the files in the order of their names, which is the same everywhere.
std::vector<Input> read_corpus(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::vector<Input> corpus;
  for (const fs::path& file : files) corpus.push_back(read(file));
  return corpus;
}

struct Options {
  std::string path;
  uint64_t inputs = 20'000, seed = 1, only = kNoMutation;
};

bool read_options(int argc, char** argv, Options& out) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    uint64_t* const value = argument == "--inputs" ? &out.inputs
                            : argument == "--seed" ? &out.seed
                            : argument == "--only" ? &out.only
                                                   : nullptr;
    if (value != nullptr && i + 1 < argc) {
      *value = std::strtoull(argv[++i], nullptr, 10);
    } else if (value == nullptr && out.path.empty()) {
      out.path = argument;
    } else {
      return false;
    }
  }
  return !out.path.empty();
}

int run_corpus(const Options& options, const std::string& name) {
  const std::vector<Input> corpus = read_corpus(options.path);
  if (corpus.empty()) {
    std::cerr << options.path << ": holds no seed\n";
    return 2;
  }
  running_seed = options.seed;
  if (options.only != kNoMutation) {
    run(mutation(corpus, options.seed, options.only), options.only);
    return 0;
  }
  const auto start = std::chrono::steady_clock::now();
  run({}, kNoMutation);
  for (const Input& seed : corpus) run(seed, kNoMutation);
  for (uint64_t i = 0; i < options.inputs; ++i) run(mutation(corpus, options.seed, i), i);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const uint64_t count = corpus.size() + 1 + options.inputs;
  std::cout << name << ": " << count << " inputs (" << corpus.size() << " seeds, the empty one, "
            << options.inputs << " mutations with seed " << options.seed << "), "
            << static_cast<uint64_t>(static_cast<double>(count) / seconds.count())
            << " per second\n";
  return 0;
}

}  // namespace
}  // namespace bp::fuzz

int main(int argc, char** argv) {
  bp::fuzz::Options options;
  if (!bp::fuzz::read_options(argc, argv, options)) {
    std::cerr << "usage: " << argv[0] << " FOLDER [--inputs N] [--only K] [--seed S] | FILE\n";
    return 2;
  }
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  bp::fuzz::crash_file = name + ".input";
  bp::fuzz::watch_for_crashes();
  if (std::filesystem::is_directory(options.path)) return bp::fuzz::run_corpus(options, name);
  bp::fuzz::run(bp::fuzz::read(options.path), bp::fuzz::kNoMutation);
  std::cout << name << ": 1 input\n";
  return 0;
}
