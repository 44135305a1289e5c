#include "conformance/cli/signature.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "conformance/usage_error.hpp"

extern char** environ;

namespace bp::conformance {
namespace {

// The purpose of the signatures, so that one for another purpose does not count.
constexpr const char* kNamespace = "backplane-conformance";

struct Ran {
  int status = -1;  // The exit status; -1 if the program could not be started.
  std::string output;
};

std::string read_all(int fd) {
  std::string text;
  char bytes[4096];
  for (;;) {
    const ssize_t size = read(fd, bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(bytes, static_cast<size_t>(size));
  }
}

// Runs ssh-keygen on `input`, which becomes its standard input ("" for none).
Ran run_ssh_keygen(std::vector<std::string> words, const std::string& input) {
  words.insert(words.begin(), "ssh-keygen");
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {-1, std::strerror(errno)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO,
                                   input.empty() ? "/dev/null" : input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, "ssh-keygen", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  Ran ran;
  if (error == 0) {
    ran.output = read_all(ends[0]);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  } else {
    ran.output = std::string("ssh-keygen cannot be started: ") + std::strerror(error);
  }
  close(ends[0]);
  while (ran.output.ends_with('\n')) ran.output.pop_back();
  return ran;
}

}  // namespace

std::string sign_file(const std::string& file, const std::string& key) {
  std::string signature = file + ".sig";
  std::error_code error;
  std::filesystem::remove(signature, error);  // ssh-keygen would ask before it replaces the file.
  const Ran ran = run_ssh_keygen({"-Y", "sign", "-f", key, "-n", kNamespace, file}, "");
  if (ran.status != 0) throw UsageError("--sign " + key + ": " + ran.output);
  return signature;
}

Check check_signature(const std::string& file, const std::string& allowed_signers,
                      const std::string& signer) {
  using State = Check::State;
  const std::string signature = file + ".sig";
  std::error_code error;
  if (!std::filesystem::exists(signature, error)) {
    const bool is_needed = !allowed_signers.empty();
    return {"signature", is_needed ? State::kFails : State::kNotChecked,
            "there is no " + signature};
  }
  std::vector<std::string> words = {"-Y"};
  if (allowed_signers.empty()) {
    words.insert(words.end(), {"check-novalidate", "-n", kNamespace, "-s", signature});
  } else {
    words.insert(words.end(), {"verify", "-f", allowed_signers, "-I", signer, "-n", kNamespace,
                               "-s", signature});
  }
  const Ran ran = run_ssh_keygen(std::move(words), file);
  if (ran.status != 0) return {"signature", State::kFails, ran.output};
  const std::string note =
      allowed_signers.empty() ? "; the key is not compared with a list of signers" : "";
  return {"signature", State::kHolds, ran.output + note};
}

}  // namespace bp::conformance
