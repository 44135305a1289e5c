#include "backplane/runtime/distributed/pieces.hpp"

#include "backplane/runtime/autograd.hpp"
#include "runtime/distributed/box.hpp"

namespace bp::distributed {

std::vector<Piece> pieces_of(const TensorMap& whole) {
  std::vector<Piece> pieces;
  for (const auto& [name, tensor] : whole) {
    const auto axes = static_cast<size_t>(tensor.ndim());
    pieces.push_back({name, tensor.shape().to_vector(), std::vector<int64_t>(axes, 0), tensor});
  }
  return pieces;
}

std::vector<Piece> pieces_of_range(const std::string& name, const std::vector<int64_t>& shape,
                                   int64_t begin, int64_t end, const Tensor& flat) {
  const NoGradGuard no_grad;
  std::vector<Piece> pieces;
  int64_t place = 0;
  for (const Box& box : boxes_of_range(shape, begin, end)) {
    const Tensor part = flat.detach().narrow(0, place, box.count());
    pieces.push_back({name, shape, box.offsets, part.view(box.extents)});
    place += box.count();
  }
  if (pieces.empty()) pieces.push_back({name, shape, {}, flat.detach()});
  return pieces;
}

void append_pieces(std::vector<Piece>& to, const std::string& prefix, std::vector<Piece> pieces) {
  for (Piece& piece : pieces) {
    piece.name.insert(0, prefix);
    to.push_back(std::move(piece));
  }
}

}  // namespace bp::distributed
