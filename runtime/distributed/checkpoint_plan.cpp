#include "runtime/distributed/checkpoint_plan.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/agreement.hpp"
#include "runtime/distributed/checkpoint_index.hpp"
#include "runtime/io/safetensors_header.hpp"

namespace bp::distributed {
namespace {

using Json = nlohmann::json;

// A tensor as the ranks describe it.
struct Described {
  bp_dtype dtype = 0;
  std::vector<int64_t> shape;
  uint32_t rank = 0;  // The first rank that described it.
  std::map<Box, std::vector<uint32_t>> holders;
};
using DescribedMap = std::map<std::string, Described>;

std::string problem_of(const Piece& piece) {
  if (!piece.tensor) return "'" + piece.name + "' is an empty tensor";
  const bp_dtype dtype = piece.tensor.dtype();
  if (bp_dtype_bits(dtype) % 8 != 0 || safetensors::name_of_dtype(dtype) == nullptr) {
    return "'" + piece.name + "' is " + dtype_text(dtype) +
           "; allowed: dtypes of whole bytes that safetensors has";
  }
  if (piece.tensor.numel() > 0 && !is_within(box_of(piece), piece.shape)) {
    return "the piece " + to_string(piece.offsets) + " of the extents " +
           to_string(piece.tensor.shape()) + " is not within '" + piece.name + "', which is " +
           to_string(piece.shape);
  }
  return "";
}

std::string random_id() {
  std::random_device random;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id;
  for (int i = 0; i < 12; ++i) id += kDigits[random() % 16];
  return id;
}

// Returns the pieces as text for the other ranks.
std::string describe(int64_t step, const std::vector<Piece>& pieces, std::string problem) {
  Json list = Json::array();
  for (const Piece& piece : pieces) {
    if (problem.empty()) problem = problem_of(piece);
    if (!problem.empty()) break;
    const Box box = piece.tensor.numel() > 0 ? box_of(piece) : Box{};
    list.push_back({piece.name, piece.tensor.dtype(), piece.shape, box.offsets, box.extents,
                    piece.tensor.numel() > 0});
  }
  try {
    return Json{{"id", random_id()}, {"step", step}, {"problem", problem}, {"pieces", list}}.dump();
  } catch (const Json::exception&) {
    return Json{{"problem", "the name of a tensor is no UTF-8"}}.dump();
  }
}

// Adds what `rank` has. Returns what does not fit, or "".
std::string add(DescribedMap& tensors, const Json& pieces, uint32_t rank) {
  for (const Json& piece : pieces) {
    const auto name = piece[0].get<std::string>();
    const auto dtype = piece[1].get<bp_dtype>();
    const auto shape = piece[2].get<std::vector<int64_t>>();
    const auto [entry, is_new] = tensors.try_emplace(name, Described{dtype, shape, rank, {}});
    Described& tensor = entry->second;
    if (tensor.dtype != dtype || tensor.shape != shape) {
      return "'" + name + "' is " + dtype_text(dtype) + " " + to_string(shape) + " on rank " +
             std::to_string(rank) + " and " + dtype_text(tensor.dtype) + " " +
             to_string(tensor.shape) + " on rank " + std::to_string(tensor.rank);
    }
    if (!piece[5].get<bool>()) continue;
    auto& holders =
        tensor
            .holders[{piece[3].get<std::vector<int64_t>>(), piece[4].get<std::vector<int64_t>>()}];
    if (holders.empty() || holders.back() != rank) holders.push_back(rank);
  }
  return "";
}

std::string problem_of(const std::string& name, const Described& tensor) {
  std::vector<Box> boxes;
  for (const auto& [box, holders] : tensor.holders) boxes.push_back(box);
  const std::string problem = tiling_problem(tensor.shape, std::move(boxes));
  return problem.empty() ? "" : "'" + name + "' " + to_string(tensor.shape) + ": " + problem;
}

std::string problem_of(const DescribedMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    std::string problem = problem_of(name, tensor);
    if (!problem.empty()) return problem;
  }
  return "";
}

// Adds what `rank` says to what rank 0, which said `first`, and others have. Returns what is wrong,
// or "".
std::string add_text(DescribedMap& tensors, const Json& first, const Json& text, uint32_t rank) {
  const auto problem = text["problem"].get<std::string>();
  if (!problem.empty()) return "rank " + std::to_string(rank) + ": " + problem;
  if (text["step"] == first["step"]) return add(tensors, text["pieces"], rank);
  return "the step is " + text["step"].dump() + " on rank " + std::to_string(rank) + " and " +
         first["step"].dump() + " on rank 0";
}

// Gives each piece to the holder that has least to write so far: first those that one rank has,
// then the others from the largest to the smallest.
void choose_writers(std::vector<PlannedPiece>& pieces, const DescribedMap& tensors,
                    uint32_t ranks) {
  std::vector<uint64_t> loads(ranks, 0);
  std::vector<PlannedPiece*> order;
  order.reserve(pieces.size());
  for (PlannedPiece& piece : pieces) order.push_back(&piece);
  const std::vector<uint32_t> first{0};  // Writes the tensors without elements.
  const auto holders_of = [&](const PlannedPiece& piece) -> const std::vector<uint32_t>& {
    const auto& holders = tensors.at(piece.name).holders;
    return holders.empty() ? first : holders.at(piece.box);
  };
  std::ranges::stable_sort(order, [&](const PlannedPiece* a, const PlannedPiece* b) {
    const bool a_shared = holders_of(*a).size() > 1, b_shared = holders_of(*b).size() > 1;
    return a_shared != b_shared ? b_shared : a->bytes() > b->bytes();
  });
  for (PlannedPiece* piece : order) {
    const auto& holders = holders_of(*piece);
    piece->writer = *std::ranges::min_element(holders, {}, [&](uint32_t r) { return loads[r]; });
    loads[piece->writer] += piece->bytes();
  }
}

}  // namespace

uint64_t PlannedPiece::bytes() const { return bytes_of(box.count(), dtype); }

std::vector<PlannedPiece> Plan::of(uint32_t rank) const {
  std::vector<PlannedPiece> own;
  std::ranges::copy_if(pieces, std::back_inserter(own),
                       [&](const PlannedPiece& piece) { return piece.writer == rank; });
  return own;
}

Box box_of(const Piece& piece) { return {piece.offsets, piece.tensor.shape().to_vector()}; }

Plan make_plan(const ProcessGroup& group, int64_t step, const std::vector<Piece>& pieces,
               const std::string& problem) {
  const std::vector<std::string> texts = gather_texts(group, describe(step, pieces, problem));
  Plan plan;
  DescribedMap tensors;
  std::string found;
  Json first;
  for (uint32_t rank = 0; rank < texts.size() && found.empty(); ++rank) {
    const Json text = Json::parse(texts[rank]);
    if (rank == 0) first = text;
    found = add_text(tensors, first, text, rank);
  }
  if (found.empty()) found = problem_of(tensors);
  if (!found.empty()) throw Error(BP_INVALID_ARGUMENT, "CheckpointFolder: " + found);
  plan.id = first["id"].get<std::string>();
  for (const auto& [name, tensor] : tensors) {
    for (const auto& [box, holders] : tensor.holders) {
      plan.pieces.push_back({name, tensor.dtype, tensor.shape, box, 0});
    }
    if (!tensor.holders.empty()) continue;
    const Box none{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
    plan.pieces.push_back({name, tensor.dtype, tensor.shape, none, 0});
  }
  choose_writers(plan.pieces, tensors, group.size());
  return plan;
}

}  // namespace bp::distributed
