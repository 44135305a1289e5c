// The ranks of a group in a grid with named axes, and a group along each axis.
//
//   bd::DeviceMesh mesh(world, {{"data", 2}, {"tensor", 4}});  // 8 ranks.
//   bd::ProcessGroup rows = mesh.group("tensor");              // The 4 ranks of one replica.
//
// The last axis is the fastest: in the mesh above ranks 0 to 3 are one group of "tensor", and ranks
// 0 and 4 one of "data". Ranks of the last axis talk most, so they should be near each other.
//
// Rules for everything here:
//   Threads    One thread of each rank makes a mesh. Afterwards it is constant.
//   Blocking   The constructor waits for the other ranks. Nothing else does.
//   Errors     Throws bp::Error. If the ranks give different axes, all of them throw.
//   Ownership  A mesh shares its groups. Copies share them too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"

namespace bp::distributed {

struct MeshAxis {
  std::string name;
  uint32_t size;
};

class DeviceMesh {
 public:
  // Every rank of `world` calls it. The product of the sizes is the size of `world`.
  DeviceMesh(const ProcessGroup& world, std::vector<MeshAxis> axes);

  const ProcessGroup& world() const { return world_; }
  const std::vector<MeshAxis>& axes() const { return axes_; }

  // Returns the ranks that differ from this one along the axis alone. The place of this rank on the
  // axis is its rank in that group.
  const ProcessGroup& group(const std::string& axis) const;

 private:
  ProcessGroup world_;
  std::vector<MeshAxis> axes_;
  std::vector<ProcessGroup> groups_;
};

}  // namespace bp::distributed
