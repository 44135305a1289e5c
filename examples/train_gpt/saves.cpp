#include "train_gpt/saves.hpp"

#include <charconv>
#include <filesystem>
#include <stdexcept>

#include "train_gpt/checkpoint.hpp"

namespace {

namespace bd = bp::distributed;

uint32_t number_to_keep(const std::string& text) {
  if (text.empty()) return 2;
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && rest == end) return number;
  throw std::runtime_error("--keep is '" + text + "'; allowed: a number from 0, which keeps all");
}

bp::TensorMap state_of(const bp::AdamW* optimizer) {
  return optimizer == nullptr ? bp::TensorMap() : optimizer->state_dict();
}

}  // namespace

bool is_folder(const std::string& path) {
  return path.ends_with("/") || std::filesystem::is_directory(path);
}

Saves::Saves(const SaveChoice& choice, const Options& options, const Text& text,
             const bd::ProcessGroup& group)
    : options_(options), text_(text), rank_(group.rank()) {
  const uint32_t keep = number_to_keep(choice.keep);
  if (is_folder(options.checkpoint)) {
    folder_.emplace(options.checkpoint, group,
                    bd::CheckpointOptions{.keep = keep, .is_asynchronous = choice.is_asynchronous});
  } else if (!choice.keep.empty() || choice.is_asynchronous) {
    throw std::runtime_error("--keep and --async-save need --checkpoint FOLDER/");
  }
}

bool Saves::has_checkpoint() {
  if (folder_) return folder_->latest().has_value();
  return !options_.checkpoint.empty() && std::filesystem::exists(options_.checkpoint);
}

int64_t Saves::resume(const bd::Launch& launch, Strategy& strategy, bp::AdamW* optimizer) {
  const bool is_restart = launch.restart_count > 0;
  if (is_restart ? !has_checkpoint() : !options_.resume) return 0;
  if (folder_) return load_folder(strategy, optimizer);
  const Checkpoint checkpoint = load(options_, text_);
  strategy.load(checkpoint, *optimizer);
  return checkpoint.step;
}

int64_t Saves::load_folder(Strategy& strategy, bp::AdamW* optimizer) {
  const bd::CheckpointReader reader = folder_->open_latest();
  check_run(reader.folder(), reader.metadata(), options_, text_);
  const bp::TensorMap state = state_of(optimizer);
  folder_->load(reader, strategy.pieces(state));
  if (optimizer != nullptr) optimizer->load_state_dict(state);
  return reader.step();
}

void Saves::save(Strategy& strategy, const bp::AdamW* optimizer, int64_t step) {
  if (options_.checkpoint.empty()) return;
  if (folder_) {
    folder_->save(step, strategy.pieces(state_of(optimizer)), description(options_, text_));
    return;
  }
  const Checkpoint whole = strategy.checkpoint(*optimizer, step);
  if (rank_ == 0) ::save(options_, text_, whole);
}

void Saves::finish() {
  if (folder_) folder_->wait();
}
