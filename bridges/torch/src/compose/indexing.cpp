// Reading and writing by indices. PyTorch counts negative indices from the end; the library does
// not.
#include <ATen/ExpandUtils.h>
#include <ATen/native/IndexingUtils.h>

#include "compose.h"

namespace bpt {
namespace {

using Indices = c10::List<std::optional<Tensor>>;

// The part of x that indices of this shape can name: all of `axis`, and else as far as they reach.
Tensor reach(Tensor x, IntArrayRef shape, int64_t axis) {
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (i != axis && x.size(i) != shape[i]) x = x.narrow(i, 0, shape[i]);
  }
  return x;
}

Tensor gathered(const Tensor& x, int64_t dim, const Tensor& index, bool) {
  if (index.numel() == 0) return new_empty(index.sizes(), x.scalar_type(), x.device());
  require(index.dim() == x.dim(), "the indices of gather have other axes than the tensor");
  const int64_t axis = at::maybe_wrap_dim(dim, x.dim());
  Call call("gather");
  return call.in("x", reach(x, index.sizes(), axis))
      .in("indices", index)
      .set("axis", axis)
      .run_one();
}

Tensor scattered(const char* op, const Tensor& x, int64_t dim, const Tensor& index,
                 const Tensor& src) {
  Tensor y = x.clone(at::MemoryFormat::Contiguous);
  if (index.numel() == 0) return y;
  require(index.dim() == x.dim() && src.dim() == x.dim(),
          "the indices of scatter have other axes than the tensor");
  require(src.scalar_type() == x.scalar_type(), "the source of scatter has another dtype");
  const int64_t axis = at::maybe_wrap_dim(dim, x.dim());
  const Tensor part = reach(y, index.sizes(), axis);
  Call call(op);
  call.in("x", part).in("indices", index).in("src", reach(src, index.sizes(), -1));
  call.set("axis", axis).out("y", part).go();
  return y;
}

Tensor scatter_src(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return scattered("scatter", x, dim, index, src);
}

Tensor scatter_value(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value) {
  const Tensor src = full_0d(value, x.scalar_type(), x.device()).expand(index.sizes());
  return scattered("scatter", x, dim, index, src);
}

Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  return scattered("scatter_reduce", x, dim, index, src);
}

Tensor scatter_reduce(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce, bool include_self) {
  const bool is_mean = reduce == "mean" && is_float(x);
  require(reduce == "sum" || is_mean, "scatter_reduce has sums, and means of floats, alone");
  const Tensor begin = include_self ? x : scatter_value(x, dim, index, 0);
  const Tensor sum = scattered("scatter_reduce", begin, dim, index, src);
  if (!is_mean) return sum;
  const Tensor one = at::ones_like(x, at::MemoryFormat::Contiguous);
  const Tensor first = include_self ? one : scatter_value(one, dim, index, 0);
  const Tensor count = scattered("scatter_reduce", first, dim, index,
                                 full_0d(1, x.scalar_type(), x.device()).expand(index.sizes()));
  return at::div(sum, count);
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool out_int32, bool is_right,
                    std::optional<std::string_view> side, const OptionalTensor& sorter) {
  require(!side || !is_right || *side == "right", "right and side differ");
  const bool is_ordered = !sorter || !sorter->defined();
  const Tensor row = is_ordered ? sorted : at::gather(sorted, -1, *sorter);
  Call call("searchsorted");
  call.in("sorted", row).in("values", values);
  const Tensor y =
      call.choose("side", is_right || (side && *side == "right") ? "right" : "left").run_one();
  return out_int32 ? y.to(at::kInt) : y;
}

Tensor scatter_with(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                    std::string_view reduce) {
  require(reduce == "add", "scatter reduces by add alone");
  return scattered("scatter_reduce", x, dim, index, src);
}

// Indices from 0: those below 0 count from the end of an axis of this extent.
Tensor from_zero(const Tensor& index, int64_t extent) {
  return at::where(at::lt(index, 0), at::add(index, extent), index);
}

// Several index tensors, as one: which places of the leading axes of x they name. x is permuted so
// that the axes with an index come first.
struct Places {
  Tensor x;                     // The axes with an index, then the others.
  Tensor index;                 // Of row-major places in the leading axes; any shape.
  int64_t indexed = 0;          // How many axes lead.
  std::vector<int64_t> others;  // The extents of the other axes.
  std::vector<int64_t> order;   // The permutation.
  int64_t begin = 0;            // Where PyTorch puts the axes of the index in the result.

  Places(const Tensor& self, const Indices& given) {
    std::vector<Tensor> list;
    const std::vector<Tensor> expanded = expand(self, given);
    std::vector<int64_t> rest;
    bool is_apart = false;
    for (size_t i = 0; i < expanded.size(); ++i) {
      if (!expanded[i].defined()) {
        rest.push_back(static_cast<int64_t>(i));
        continue;
      }
      is_apart |= !order.empty() && order.back() + 1 != static_cast<int64_t>(i);
      order.push_back(static_cast<int64_t>(i));
      list.push_back(from_zero(expanded[i], self.size(static_cast<int64_t>(i))));
    }
    require(!list.empty(), "no index is given");
    begin = is_apart ? 0 : order[0];
    indexed = static_cast<int64_t>(list.size());
    for (int64_t i = static_cast<int64_t>(expanded.size()); i < self.dim(); ++i) rest.push_back(i);
    for (const int64_t axis : rest) others.push_back(self.size(axis));
    order.insert(order.end(), rest.begin(), rest.end());
    x = self.permute(order);
    index = list[0];
    for (int64_t i = 1; i < indexed; ++i) {
      check_range(list, i);
      index = at::add(at::mul(index, x.size(i)), list[i]);
    }
  }

  // A mask becomes the indices of its places; all indices get one shape, on the device.
  static std::vector<Tensor> expand(const Tensor& self, const Indices& given) {
    at::native::checkIndexTensorTypes(given, /*allow_int=*/true);
    TORCH_CHECK(self.device().type() == kBp, "indices should be either on cpu or on the ",
                "device of the indexed tensor (", self.device(), ")");
    std::vector<Tensor> own = at::native::expandTensors(self, given, /*ensure_same_device=*/true);
    TORCH_CHECK_INDEX(static_cast<int64_t>(own.size()) <= self.dim(),
                      "too many indices for tensor of dimension ", self.dim());
    for (Tensor& index : own) {
      if (index.defined()) index = index.to(self.device(), at::kLong);
    }
    try {
      own = at::expand_outplace(own);
    } catch (const c10::Error& error) {
      TORCH_CHECK_INDEX(
          false, "shape mismatch: the indices do not broadcast: ", error.what_without_backtrace());
    }
    for (size_t i = 0; i < own.size(); ++i) {
      const bool names_nothing = !own[i].defined() || own[i].numel() == 0;
      TORCH_CHECK_INDEX(names_nothing || self.size(static_cast<int64_t>(i)) != 0,
                        "index is out of bounds for dimension with size 0");
    }
    return own;
  }

  // An index that leaves its own axis may name a place all the same: then it is sent out of range.
  void check_range(std::vector<Tensor>& list, int64_t i) const {
    const Tensor is_out = at::logical_or(at::lt(list[i], 0), at::ge(list[i], x.size(i)));
    list[i] = at::where(is_out, full_0d(x.numel() + 1, at::kLong, x.device()), list[i]);
  }
};

Tensor indexed(const Tensor& self, const Indices& indices) {
  const Places places(self, indices);
  std::vector<int64_t> shape = places.index.sizes().vec();
  shape.insert(shape.end(), places.others.begin(), places.others.end());
  const Tensor rows = places.x.reshape([&] {
    std::vector<int64_t> flat{-1};
    if (places.x.numel() == 0)
      flat[0] = c10::multiply_integers(places.x.sizes().slice(0, places.indexed));
    flat.insert(flat.end(), places.others.begin(), places.others.end());
    return flat;
  }());
  Call call("index_select");
  Tensor y = call.in("x", rows).in("indices", places.index.reshape({-1})).set("axis", 0).run_one();
  y = y.reshape(shape);
  if (places.begin == 0) return y;
  // The axes of the index stand where the first indexed axis was.
  std::vector<int64_t> order;
  const int64_t own = places.index.dim();
  for (int64_t i = 0; i < places.begin; ++i) order.push_back(own + i);
  for (int64_t i = 0; i < own; ++i) order.push_back(i);
  for (int64_t i = own + places.begin; i < y.dim(); ++i) order.push_back(i);
  return y.permute(order);
}

Tensor& index_put_(Tensor& self, const Indices& indices, const Tensor& values, bool accumulate,
                   bool is_unsafe) {
  // The op has u8, whose bits are the same.
  const bool is_bool = self.scalar_type() == at::kBool && values.scalar_type() == at::kBool;
  if (is_bool && !accumulate) {
    Tensor bytes = self.view(at::kByte);
    const Tensor source = values.to(self.device()).view(at::kByte);
    index_put_(bytes, indices, source, accumulate, is_unsafe);
    return self;
  }
  const Places places(self, indices);
  std::vector<int64_t> shape = places.index.sizes().vec();
  shape.insert(shape.end(), places.others.begin(), places.others.end());
  Tensor source = values.to(self.device());
  std::vector<int64_t> result(places.others.begin(), places.others.begin() + places.begin);
  const auto own = places.index.sizes();
  result.insert(result.end(), own.begin(), own.end());
  result.insert(result.end(), places.others.begin() + places.begin, places.others.end());
  TORCH_CHECK(at::is_expandable_to(source.sizes(), result), "shape mismatch: values of shape ",
              source.sizes(), " do not broadcast to what the indices name, of shape ",
              IntArrayRef(result));
  TORCH_CHECK(self.scalar_type() == values.scalar_type(),
              "Index put requires the source and destination dtypes match, got ",
              self.scalar_type(), " for the destination and ", values.scalar_type(),
              " for the source.");
  if (places.begin != 0) {
    // The values have the axes of the index in the middle: bring these to the front.
    std::vector<int64_t> order;
    for (int64_t i = 0; i < places.index.dim(); ++i) order.push_back(places.begin + i);
    for (int64_t i = 0; i < places.begin; ++i) order.push_back(i);
    for (auto i = places.index.dim() + places.begin; i < static_cast<int64_t>(result.size()); ++i) {
      order.push_back(i);
    }
    source = source.expand(result).permute(order);
  } else {
    source = source.expand(shape);
  }
  if (places.index.numel() == 0) return self;
  Call call("index_put");
  call.in("x", places.x).in("indices", places.index).in("values", source);
  call.set("indexed_ndim", places.indexed).set("accumulate", int64_t{accumulate});
  copy_into(call.run_one(), places.x);
  return self;
}

Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                 const Scalar& alpha) {
  if (index.numel() == 0) return x.clone();
  require(x.dim() > 0 && index.dim() == 1, "index_add takes a row of indices");
  const Tensor src = alpha.equal(1) ? source : at::mul(source, alpha);
  Call call("index_add");
  return call.in("x", x)
      .in("indices", index)
      .in("src", src)
      .set("axis", at::maybe_wrap_dim(dim, x.dim()))
      .run_one();
}

// The slices of x along an axis as the leading axis, for index_put.
Tensor with_slices(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  if (x.scalar_type() == at::kBool) {  // The op has u8, whose bits are the same.
    return with_slices(x.view(at::kByte), dim, index, source.view(at::kByte)).view(at::kBool);
  }
  const int64_t axis = at::maybe_wrap_dim(dim, x.dim());
  const Tensor leading = x.movedim(axis, 0);
  Call call("index_put");
  call.in("x", leading).in("indices", from_zero(index, x.size(axis)));
  return call.in("values", source).run_one().movedim(0, axis);
}

Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  require(x.dim() > 0 && index.dim() == 1 && source.dim() == x.dim(),
          "index_copy takes a row of indices and as many slices");
  if (index.numel() == 0) return x.clone();
  return with_slices(x, dim, index, source.movedim(at::maybe_wrap_dim(dim, x.dim()), 0));
}

Tensor index_fill_tensor(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& value) {
  require(x.dim() > 0 && index.dim() == 1, "index_fill takes a row of indices");
  if (index.numel() == 0) return x.clone();
  std::vector<int64_t> shape = x.movedim(at::maybe_wrap_dim(dim, x.dim()), 0).sizes().vec();
  shape[0] = index.size(0);
  return with_slices(x, dim, index, value.to(x.device(), x.scalar_type()).expand(shape));
}

Tensor index_fill_scalar(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value) {
  return index_fill_tensor(x, dim, index, full_0d(value, x.scalar_type(), x.device()));
}

// The device decides how many rows there are, so the host waits for the count.
Tensor nonzero(const Tensor& self) {
  Call call("nonzero");
  const auto outs = call.in("x", self).want("count").run();
  return outs[0].narrow(0, 0, outs[1].item<int64_t>());
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  require(mask.scalar_type() == at::kBool, "the mask is bool");
  const auto both = at::expand_outplace(self, mask);
  Call call("masked_select");
  call.in("x", *std::get<0>(both)).in("mask", *std::get<1>(both)).want("count");
  const auto outs = call.run();
  return outs[0].narrow(0, 0, outs[1].item<int64_t>()).clone();
}

Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source) {
  require(mask.scalar_type() == at::kBool && source.scalar_type() == self.scalar_type(),
          "the mask is bool, and the source has the dtype of the tensor");
  const auto both = at::expand_outplace(self, mask);
  const Tensor x = std::get<0>(both)->contiguous(), where = std::get<1>(both)->contiguous();
  require(source.numel() != 0, "the source of masked_scatter is empty");
  const Tensor order = at::sub(at::cumsum(where.reshape({-1}), 0), 1);
  const Tensor taken = at::index_select(source.reshape({-1}), 0, at::clamp_min(order, 0));
  return at::where(where, taken.reshape(x.sizes()), x);
}

Tensor take(const Tensor& self, const Tensor& index) {
  const Tensor flat = self.reshape({-1});
  Call call("index_select");
  call.in("x", flat).in("indices", from_zero(index, flat.size(0)).reshape({-1})).set("axis", 0);
  return call.run_one().reshape(index.sizes());
}

}  // namespace

void compose_indexing() {
  compose("gather", &gathered);
  compose("scatter.src", &scatter_src);
  compose("scatter.value", &scatter_value);
  compose("scatter.reduce", &scatter_with);
  compose("scatter_add", &scatter_add);
  compose("scatter_reduce.two", &scatter_reduce);
  compose("searchsorted.Tensor", &searchsorted);
  compose("index.Tensor", &indexed);
  compose("_index_put_impl_", &index_put_);
  compose("index_add", &index_add);
  compose("index_copy", &index_copy);
  compose("index_fill.int_Scalar", &index_fill_scalar);
  compose("index_fill.int_Tensor", &index_fill_tensor);
  compose("nonzero", &nonzero);
  compose("masked_select", &masked_select);
  compose("masked_scatter", &masked_scatter);
  compose("take", &take);
}

}  // namespace bpt
