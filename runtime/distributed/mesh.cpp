#include "backplane/runtime/distributed/mesh.hpp"

#include <algorithm>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/distributed/agreement.hpp"

namespace bp::distributed {
namespace {

std::string describe(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& axis : axes) {
    text += (text.empty() ? "'" : ", '") + axis.name + "' " + std::to_string(axis.size);
  }
  return text.empty() ? "none" : text;
}

std::string problem_of(const std::vector<MeshAxis>& axes, const ProcessGroup& world) {
  uint64_t count = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    count *= axes[i].size;
    const auto is_it = [&](const MeshAxis& other) { return other.name == axes[i].name; };
    if (std::count_if(axes.begin(), axes.end(), is_it) > 1) {
      return "two axes have the name '" + axes[i].name + "'; allowed: different names";
    }
    if (count > world.size()) break;
  }
  if (count == world.size() && !axes.empty()) return "";
  return "the axes are " + describe(axes) + ", for " + std::to_string(world.size()) +
         " ranks; allowed: sizes whose product is the number of ranks";
}

}  // namespace

DeviceMesh::DeviceMesh(const ProcessGroup& world, std::vector<MeshAxis> axes)
    : world_(world), axes_(std::move(axes)) {
  const NoGradGuard no_grad;
  std::string problem = problem_of(axes_, world_);
  if (!problem.empty()) problem = bp::distributed::describe(world_) + ": " + problem;
  problem = first_problem(world_, problem);
  if (problem.empty()) problem = first_difference(world_, "the mesh", describe(axes_) + "\n");
  if (!problem.empty()) throw Error(BP_INVALID_ARGUMENT, "DeviceMesh: " + problem);
  uint32_t stride = world_.size();
  for (const MeshAxis& axis : axes_) {
    stride /= axis.size;
    const uint32_t place = world_.rank() / stride % axis.size;
    const uint32_t color = world_.rank() - place * stride;  // The first rank of the group.
    groups_.push_back(*world_.split(color, place, world_.name() + "." + axis.name));
  }
}

const ProcessGroup& DeviceMesh::group(const std::string& axis) const {
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return groups_[i];
  }
  throw Error(BP_INVALID_ARGUMENT,
              "DeviceMesh: no axis has the name '" + axis + "'; allowed: " + describe(axes_));
}

}  // namespace bp::distributed
