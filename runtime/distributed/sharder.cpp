// The life of a unit in a step:
//
//   before forward()     its gather, unless it was submitted ahead; the gather of the next unit
//   after forward()      its memory goes back; a gate at the result waits for its gradient
//   gate at the result   the same as before forward(), in the order of backward()
//   last gradient        the reduction of its gradients
//   gate at the input    its memory goes back: the engine runs all nodes of the unit before
//   end of backward()    the current stream waits for all reductions; all memory goes back
//
// All ranks must submit the calls of a group in one order. Gathers follow the order in which units
// run. Reductions follow the reverse of the first forward(), in a group of their own: a unit whose
// gradients are complete waits for those before it, and what is not complete at the end of
// backward() is sent then. So ranks may differ in which parameters have gradients.
#include "runtime/distributed/sharder.hpp"

#include <algorithm>

#include "backplane/runtime/error.hpp"
#include "registry/tensors/floats.hpp"

namespace bp::distributed {

Sharder::Sharder(const std::vector<Unit>& units, const ProcessGroup& group, bp_dtype dtype,
                 const FsdpOptions& options)
    : settings_{.options = options,
                .dtype = dtype,
                .group = group,
                .grad_group = *group.split(0, group.rank(), group.name() + ".gradients")},
      was_run_(units.size()) {
  for (const Unit& unit : units) {
    units_.push_back(std::make_unique<ShardUnit>(unit.name, unit.parameters, settings_));
  }
  for (size_t i = 0; i < units.size(); ++i) {
    for (size_t p = 0; p < units[i].parameters.size(); ++p) {
      const Tensor& parameter = units_[i]->parameter(p);
      if (!parameter.requires_grad()) continue;
      grad_hooks_.emplace_back(parameter, [this, i, p](const Tensor&) { take_gradient(i, p); });
    }
    forward_hooks_.emplace_back(
        units[i].module, kHookName, [this, i](const Tensor& x) { return before_forward(i, x); },
        [this, i](const Tensor& y) { return after_forward(i, y); });
  }
  reset_backward();
}

std::string Sharder::describe_unit(size_t unit) const {
  return unit == kRoot ? "the root unit" : "unit '" + units_[unit]->name() + "'";
}

// ---- Forward -----------------------------------------------------------------------------------

Tensor Sharder::cast(const Tensor& x, bp_dtype dtype) const {
  const bool is_mixed = settings_.options.compute_dtype != settings_.dtype;
  return is_mixed && tensors::is_plain_float(x.dtype()) ? x.to(dtype) : x;
}

Tensor Sharder::before_forward(size_t unit, const Tensor& x) {
  if (unit == kRoot) begin_forward();
  note_order(unit);
  make_whole(unit);
  if (is_forward_known_) prefetch(forward_order_, unit, settings_.options.forward_prefetch);
  Tensor input = cast(x, settings_.options.compute_dtype);
  if (unit == kRoot || settings_.keeps_whole()) return input;
  return gate(input, [this, unit] { units_[unit]->reshard(); });
}

Tensor Sharder::after_forward(size_t unit, const Tensor& y) {
  const bool is_recorded = is_grad_enabled() && y.requires_grad();
  if (!is_recorded || (unit != kRoot && settings_.options.reshards_after_forward)) {
    units_[unit]->reshard();
  }
  if (unit == kRoot) end_forward();
  const Tensor result = unit == kRoot ? cast(y, settings_.dtype) : y;
  return gate(result, [this, unit] { before_backward(unit); });
}

// An earlier forward() may have left units whole: it threw, or no backward() came.
void Sharder::begin_forward() {
  is_in_forward_ = true;
  position_ = 0;
  if (!is_forward_known_) forward_order_.clear();
  std::fill(was_run_.begin(), was_run_.end(), false);
  for (const auto& unit : units_) unit->reshard();
}

void Sharder::note_order(size_t unit) {
  if (!is_in_forward_ || was_run_[unit]) return;
  was_run_[unit] = true;
  if (!is_forward_known_) return forward_order_.push_back(unit);
  if (position_ < forward_order_.size() && forward_order_[position_] == unit) {
    ++position_;
    return;
  }
  is_in_forward_ = false;
  const std::string first =
      position_ < forward_order_.size() ? describe_unit(forward_order_[position_]) : "nothing";
  throw Error(BP_INVALID_ARGUMENT, "FullyShardedDataParallel: " + describe(settings_.group) +
                                       ": forward() runs " + describe_unit(unit) + ", and the " +
                                       "first forward() ran " + first +
                                       " there; allowed: one order of the units in all steps");
}

void Sharder::end_forward() {
  is_in_forward_ = false;
  if (!is_grad_enabled()) settings_.flats.clear();
  if (is_forward_known_) {
    if (position_ == forward_order_.size()) return;
    throw Error(BP_INVALID_ARGUMENT,
                "FullyShardedDataParallel: " + describe(settings_.group) +
                    ": forward() did not run " + describe_unit(forward_order_[position_]) +
                    ", and the first forward() did; allowed: the same units " + "in all steps");
  }
  std::string lines;
  for (const size_t unit : forward_order_) lines += describe_unit(unit) + "\n";
  const std::string difference = first_difference(settings_.group, "place", lines);
  if (!difference.empty()) {
    throw Error(
        BP_INVALID_ARGUMENT,
        "FullyShardedDataParallel: the ranks run the units in different orders: " + difference);
  }
  is_forward_known_ = true;
  for (auto unit = forward_order_.rbegin(); unit != forward_order_.rend(); ++unit) {
    if (units_[*unit]->trainable_count() > 0) reduce_order_.push_back(*unit);
  }
  for (size_t unit = units_.size(); unit-- > 0;) {
    const bool was_run = std::ranges::find(forward_order_, unit) != forward_order_.end();
    if (!was_run && units_[unit]->trainable_count() > 0) reduce_order_.push_back(unit);
  }
}

void Sharder::make_whole(size_t unit) {
  units_[unit]->submit_gather();
  units_[unit]->finish_gather();
}

// Submits the gathers of the units that follow in `order`.
void Sharder::prefetch(const std::vector<size_t>& order, size_t unit, uint32_t count) {
  const auto found = std::ranges::find(order, unit);
  for (auto next = found; count > 0 && next != order.end() && ++next != order.end(); --count) {
    units_[*next]->submit_gather();
  }
}

// ---- Backward ----------------------------------------------------------------------------------

// Returns `x`, and calls `call` when a run of backward() has its gradient.
Tensor Sharder::gate(const Tensor& x, std::function<void()> call) {
  if (!is_grad_enabled() || !x.requires_grad()) return x;
  const auto backward = [this, call = std::move(call)](const Tensor& gradient) {
    begin_backward();
    call();
    return std::vector<Tensor>{gradient};
  };
  return with_gradient("FullyShardedDataParallel", {&x, 1}, x.detach(), backward);
}

void Sharder::begin_backward() {
  if (is_in_backward_) return;
  is_in_backward_ = true;
  after_backward([this](bool is_complete) { end_backward(is_complete); });
}

void Sharder::before_backward(size_t unit) {
  make_whole(unit);
  if (is_backward_known_) {
    prefetch(backward_order_, unit, settings_.options.backward_prefetch);
  } else if (std::ranges::find(backward_order_, unit) == backward_order_.end()) {
    backward_order_.push_back(unit);
  }
}

void Sharder::take_gradient(size_t unit, size_t parameter) {
  begin_backward();
  has_gradients_ = true;
  units_[unit]->take_gradient(parameter);
  --missing_[unit];
  if (is_syncing_) submit_complete();
}

void Sharder::submit_complete() {
  while (next_reduce_ < reduce_order_.size() && missing_[reduce_order_[next_reduce_]] == 0) {
    units_[reduce_order_[next_reduce_++]]->submit_reduce();
  }
}

// Sends what was not sent, also of units that lack gradients, and waits for all of it.
void Sharder::reduce_all() {
  std::fill(missing_.begin(), missing_.end(), size_t{0});
  submit_complete();
  for (const size_t unit : reduce_order_) units_[unit]->finish_reduce();
  settings_.gradients.clear();
}

void Sharder::average_sums() {
  if (is_in_backward_ || !is_forward_known_) {
    throw Error(BP_INVALID_ARGUMENT,
                "FullyShardedDataParallel: " + describe(settings_.group) +
                    ": average_gradients() is called " +
                    (is_in_backward_ ? "while backward() runs" : "before the first forward()") +
                    "; allowed: behind a backward() within no_sync()");
  }
  reduce_all();
  reset_backward();
}

void Sharder::end_backward(bool is_complete) {
  if (is_complete) {
    if (is_syncing_ && has_gradients_) reduce_all();
    for (const auto& unit : units_) unit->reshard();
    settings_.flats.clear();
    is_backward_known_ = !backward_order_.empty();
  } else {
    for (const auto& unit : units_) unit->drop_gradients();
  }
  reset_backward();
}

void Sharder::reset_backward() {
  is_in_backward_ = false;
  has_gradients_ = false;
  next_reduce_ = 0;
  missing_.clear();
  for (const auto& unit : units_) missing_.push_back(unit->trainable_count());
}

}  // namespace bp::distributed
