#include "train_gpt/checkpoint.hpp"

#include <sstream>
#include <stdexcept>

bp::Metadata description(const Options& o, const Text& text) {
  std::ostringstream rates;
  rates.precision(17);
  rates << o.lr << " " << o.weight_decay << " " << o.dropout << " " << o.clip;
  const auto number = [](auto value) { return std::to_string(value); };
  bp::Metadata metadata{
      {"program", o.program},          {"seed", number(o.seed)},
      {"layers", number(o.layers)},    {"width", number(o.width)},
      {"heads", number(o.heads)},      {"context", number(o.context)},
      {"batch", number(o.batch)},      {"steps", number(o.steps)},
      {"warmup", number(o.warmup)},    {"lr, weight decay, dropout, clip", rates.str()},
      {"vocabulary", text.vocabulary}, {"characters", number(text.training.size())}};
  if (o.ties_weights) metadata["head"] = "the token embedding";
  if (!o.variant.empty()) metadata["model"] = o.variant;
  return metadata;
}

void check_run(const std::string& path, const bp::Metadata& metadata, const Options& o,
               const Text& text) {
  for (const auto& [name, value] : description(o, text)) {
    const auto found = metadata.find(name);
    const std::string was = found == metadata.end() ? "" : found->second;
    if (was == value) continue;
    std::ostringstream message;
    message << path << ": " << name << " is '" << was << "', and here '" << value
            << "'; allowed: the same run";
    throw std::runtime_error(message.str());
  }
}

void save(const Options& o, const Text& text, const Checkpoint& checkpoint) {
  bp::TensorMap all;
  for (const auto& [name, tensor] : checkpoint.weights) all["model." + name] = tensor;
  for (const auto& [name, tensor] : checkpoint.state) all["optimizer." + name] = tensor;
  bp::Metadata metadata = description(o, text);
  metadata["step"] = std::to_string(checkpoint.step);
  bp::save_safetensors(o.checkpoint, all, metadata);
}

Checkpoint load(const Options& o, const Text& text) {
  const bp::LoadedTensors loaded = bp::load_safetensors(o.checkpoint);
  check_run(o.checkpoint, loaded.metadata, o, text);
  Checkpoint checkpoint;
  for (const auto& [name, tensor] : loaded.tensors) {
    const size_t dot = name.find('.');
    const bool is_weight = name.starts_with("model.");
    (is_weight ? checkpoint.weights : checkpoint.state)[name.substr(dot + 1)] = tensor;
  }
  checkpoint.step = std::stoll(loaded.metadata.at("step"));
  return checkpoint;
}

void save(const Options& o, const Text& text, const Gpt& model, const bp::AdamW& optimizer,
          int64_t step) {
  save(o, text, {model.state_dict(), optimizer.state_dict(), step});
}

int64_t resume(const Options& o, const Text& text, Gpt& model, bp::AdamW& optimizer) {
  const Checkpoint checkpoint = load(o, text);
  model.load_state_dict(checkpoint.weights);
  optimizer.load_state_dict(checkpoint.state);
  return checkpoint.step;
}
