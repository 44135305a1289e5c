#include "train_gpt/checkpoint.hpp"

#include <sstream>
#include <stdexcept>

namespace {

// Returns what a run that continues must have in common with the interrupted run.
bp::Metadata description(const Options& o, const Text& text) {
  std::ostringstream rates;
  rates.precision(17);
  rates << o.lr << " " << o.weight_decay << " " << o.dropout << " " << o.clip;
  const auto number = [](auto value) { return std::to_string(value); };
  return {{"program", o.program},          {"seed", number(o.seed)},
          {"layers", number(o.layers)},    {"width", number(o.width)},
          {"heads", number(o.heads)},      {"context", number(o.context)},
          {"batch", number(o.batch)},      {"steps", number(o.steps)},
          {"warmup", number(o.warmup)},    {"lr, weight decay, dropout, clip", rates.str()},
          {"vocabulary", text.vocabulary}, {"characters", number(text.training.size())}};
}

}  // namespace

void save(const Options& o, const Text& text, const Gpt& model, const bp::AdamW& optimizer,
          int64_t step) {
  bp::TensorMap all;
  for (const auto& [name, tensor] : model.state_dict()) all["model." + name] = tensor;
  for (const auto& [name, tensor] : optimizer.state_dict()) all["optimizer." + name] = tensor;
  bp::Metadata metadata = description(o, text);
  metadata["step"] = std::to_string(step);
  bp::save_safetensors(o.checkpoint, all, metadata);
}

int64_t resume(const Options& o, const Text& text, Gpt& model, bp::AdamW& optimizer) {
  const bp::LoadedTensors loaded = bp::load_safetensors(o.checkpoint);
  for (const auto& [name, value] : description(o, text)) {
    const auto found = loaded.metadata.find(name);
    const std::string was = found == loaded.metadata.end() ? "" : found->second;
    if (was == value) continue;
    std::ostringstream message;
    message << o.checkpoint << ": " << name << " is '" << was << "', and here '" << value
            << "'; allowed: the same run";
    throw std::runtime_error(message.str());
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
