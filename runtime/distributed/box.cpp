#include "runtime/distributed/box.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace bp::distributed {
namespace {

int64_t product(const std::vector<int64_t>& extents, size_t first) {
  return std::accumulate(extents.begin() + static_cast<std::ptrdiff_t>(first), extents.end(),
                         int64_t{1}, std::multiplies<>());
}

// Appends the boxes of [begin, end), which is not empty, within the axes from `axis` on. `start`
// has the place along the axes before.
void cut_range(const std::vector<int64_t>& shape, size_t axis, std::vector<int64_t> start,
               int64_t begin, int64_t end, std::vector<Box>& boxes) {
  const auto add = [&](int64_t first, int64_t count) {
    Box box{start, std::vector<int64_t>(axis, 1)};
    if (axis < shape.size()) {
      box.offsets.push_back(first);
      box.extents.push_back(count);
    }
    for (size_t i = axis + 1; i < shape.size(); ++i) {
      box.offsets.push_back(0);
      box.extents.push_back(shape[i]);
    }
    boxes.push_back(std::move(box));
  };
  if (axis >= shape.size()) return add(0, 1);
  const int64_t row = product(shape, axis + 1);
  const auto cut_row = [&](int64_t index, int64_t from, int64_t to) {
    std::vector<int64_t> place = start;
    place.push_back(index);
    cut_range(shape, axis + 1, std::move(place), from, to, boxes);
  };
  int64_t first = begin / row;
  const int64_t last = end / row;
  if (begin % row != 0) {
    cut_row(first, begin % row, std::min(row, end - first * row));
    ++first;
  }
  if (last > first) add(first, last - first);
  if (last >= first && end % row != 0) cut_row(last, 0, end % row);
}

}  // namespace

int64_t Box::count() const { return product(extents, 0); }

std::vector<Box> boxes_of_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  if (begin < end) cut_range(shape, 0, {}, begin, end, boxes);
  return boxes;
}

std::string text_of(const Box& box) {
  std::string text = "[";
  for (size_t i = 0; i < box.offsets.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(box.offsets[i]) + ":" +
            std::to_string(box.offsets[i] + box.extents[i]);
  }
  return text + "]";
}

bool is_within(const Box& box, const std::vector<int64_t>& shape) {
  if (box.offsets.size() != shape.size() || box.extents.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (box.offsets[i] < 0 || box.extents[i] < 0 || box.offsets[i] > shape[i]) return false;
    if (box.extents[i] > shape[i] - box.offsets[i]) return false;
  }
  return true;
}

std::optional<Box> overlap_of(const Box& a, const Box& b) {
  Box both;
  for (size_t i = 0; i < a.offsets.size(); ++i) {
    const int64_t begin = std::max(a.offsets[i], b.offsets[i]);
    const int64_t end = std::min(a.offsets[i] + a.extents[i], b.offsets[i] + b.extents[i]);
    if (begin >= end) return std::nullopt;
    both.offsets.push_back(begin);
    both.extents.push_back(end - begin);
  }
  return both;
}

std::string tiling_problem(const std::vector<int64_t>& shape, std::vector<Box> boxes) {
  std::ranges::sort(boxes);
  int64_t count = 0;
  std::vector<const Box*> open;  // Those that the following boxes may overlap along axis 0.
  for (const Box& box : boxes) {
    count += box.count();
    std::erase_if(open, [&](const Box* other) {
      return !shape.empty() && other->offsets[0] + other->extents[0] <= box.offsets[0];
    });
    for (const Box* other : open) {
      if (overlap_of(*other, box)) {
        return "the pieces " + text_of(*other) + " and " + text_of(box) + " overlap";
      }
    }
    open.push_back(&box);
  }
  const int64_t all = product(shape, 0);
  if (count == all) return "";
  return "the pieces have " + std::to_string(count) + " of its " + std::to_string(all) +
         " elements";
}

void for_each_run(const Box& from, const Box& to, const Box& part, const CopyRun& copy) {
  const size_t axes = part.extents.size();
  // Axes behind `split` are whole in both boxes, so that a run goes over all of them.
  size_t split = axes;
  int64_t run = 1;
  while (split > 0) {
    run *= part.extents[--split];
    if (part.extents[split] != from.extents[split] || part.extents[split] != to.extents[split]) {
      break;
    }
  }
  std::vector<int64_t> index(split, 0);
  const auto place_in = [&](const Box& box) {
    int64_t place = 0;
    for (size_t i = 0; i < axes; ++i) {
      const int64_t along = part.offsets[i] - box.offsets[i] + (i < split ? index[i] : 0);
      place = place * box.extents[i] + along;
    }
    return place;
  };
  for (;;) {
    copy(place_in(from), place_in(to), run);
    size_t axis = split;
    while (axis > 0 && ++index[axis - 1] == part.extents[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

}  // namespace bp::distributed
