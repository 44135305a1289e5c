// A thread for each worker waits for its messages. The thread that called serve() does all else, so
// the optimizer and the answers need no lock: it takes arrivals from a queue, applies pushes, and
// answers the workers that may go on. While a worker has no answer, its thread waits, and makes no
// calls of the link.
//
// A failure is told to each worker as an answer. A worker that computes gets it when it comes next.
#include "runtime/distributed/parameter_service.hpp"

#include <algorithm>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

using Kind = LinkMessage::Kind;
using Clock = std::chrono::steady_clock;

// A timeout may be longer than a clock counts.
constexpr Duration kLongestNap = std::chrono::hours(1);

std::string worker_text(uint32_t worker) { return "the worker on rank " + std::to_string(worker); }

}  // namespace

ParameterService::ParameterService(Settings settings,
                                   std::vector<std::unique_ptr<ParameterLink>> links)
    : settings_(std::move(settings)),
      links_(std::move(links)),
      clocks_(static_cast<uint32_t>(links_.size()), settings_.staleness),
      pushes_(links_.size()),
      applied_(links_.size()),
      standing_(links_.size(), Standing::kGone),
      waits_(links_.size()),
      orders_(links_.size(), Order::kEnd) {}

// Tells the workers at once if nobody will serve. Behind serve() they might still read answers.
ParameterService::~ParameterService() {
  if (has_served_) return;
  for (const auto& link : links_) link->abort();
}

ParameterServerCounters ParameterService::counters() const {
  return {applied_, clocks_.largest_lead(), clocks_.held_back()};
}

// ---- The threads of the links ------------------------------------------------------------------

void ParameterService::listen(uint32_t worker) {
  std::optional<DeviceGuard> here;
  std::optional<Stream> stream;
  std::optional<StreamGuard> behind;
  for (;;) {
    Arrival arrival{.worker = worker, .message = {}};
    try {
      if (!here) {
        // A stream of its own, so that messages do not wait for the optimizer.
        const Device device = settings_.parameters[0].device();
        here.emplace(device);
        stream.emplace(device);
        behind.emplace(*stream);
      }
      arrival.message = next_message(worker);
    } catch (const Error& e) {
      arrival.message = {.kind = Kind::kFailure, .code = e.code(), .text = e.what()};
    } catch (const std::exception& e) {
      arrival.message = {.kind = Kind::kFailure, .code = BP_INTERNAL, .text = e.what()};
    }
    std::unique_lock lock(mutex_);
    orders_[worker] = Order::kWait;
    arrivals_.push_back(std::move(arrival));
    changed_.notify_all();
    changed_.wait(lock, [&] { return orders_[worker] != Order::kWait; });
    if (orders_[worker] == Order::kEnd) return;
  }
}

// Returns the next message of a worker, when its gradients are there as well. Throws Error if it
// does not come, or is a failure.
LinkMessage ParameterService::next_message(uint32_t worker) {
  ParameterLink& link = *links_[worker];
  const std::string step = "step " + std::to_string(applied_[worker] + 1);
  try {
    link.expect_message();
    LinkMessage message = link.wait_for_message();
    if (message.kind == Kind::kFailure) throw Error(message.code, message.text);
    if (message.kind == Kind::kPush) link.receive_values().wait();
    return message;
  } catch (const Error& e) {
    throw Error(e.code(), settings_.who + " waited for " + step + " of " + worker_text(worker) +
                              ": " + e.what());
  }
}

std::optional<ParameterService::Arrival> ParameterService::next_arrival(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, until, [&] { return !arrivals_.empty(); })) return std::nullopt;
  Arrival arrival = std::move(arrivals_.front());
  arrivals_.pop_front();
  return arrival;
}

void ParameterService::give_order(uint32_t worker, Order order) {
  const std::lock_guard lock(mutex_);
  orders_[worker] = order;
  changed_.notify_all();
}

// ---- The thread of serve() ---------------------------------------------------------------------

void ParameterService::serve() {
  if (failure_code_ != BP_OK) {
    throw Error(failure_code_, settings_.who + ": serve() behind a failure: " + failure_);
  }
  has_served_ = true;
  // The threads of the links use other streams, and memory that this one has filled.
  synchronize_stream(settings_.parameters[0].device());
  clocks_.restart();
  snapshot_.reset();  // The host may have changed the parameters.
  std::ranges::fill(standing_, Standing::kGone);
  std::ranges::fill(orders_, Order::kListen);
  std::vector<std::thread> threads;
  try {
    for (uint32_t worker = 0; worker < links_.size(); ++worker) {
      threads.emplace_back([this, worker] { listen(worker); });
      standing_[worker] = Standing::kComputes;
    }
    serve_all();
  } catch (const Error& e) {
    fail(e.code(), e.what());
  } catch (const std::exception& e) {
    fail(BP_INTERNAL, settings_.who + ": " + e.what());
  }
  if (failure_code_ != BP_OK) end_after_failure();
  for (std::thread& thread : threads) thread.join();
  if (failure_code_ != BP_OK) throw Error(failure_code_, failure_);
}

void ParameterService::serve_all() {
  const Duration silence = std::min(links_[0]->timeout() / 8, kLongestNap);
  Clock::time_point next_word = Clock::now() + silence;
  while (!clocks_.all_finished()) {
    const std::optional<Arrival> arrival = next_arrival(next_word);
    if (arrival) take(*arrival);
    if (failure_code_ != BP_OK) return;
    advance();
    if (Clock::now() < next_word) continue;
    tell_to_wait();
    next_word = Clock::now() + silence;
  }
  end_session();
}

void ParameterService::take(const Arrival& arrival) {
  const uint32_t worker = arrival.worker;
  standing_[worker] = Standing::kWaits;
  switch (arrival.message.kind) {
    case Kind::kPush:
      pushes_[worker] = arrival.message;
      return clocks_.push(worker);
    case Kind::kFinish:
      pushes_[worker] = arrival.message;
      return clocks_.finish(worker);
    case Kind::kFailure:
      standing_[worker] = Standing::kGone;
      return fail(arrival.message.code, arrival.message.text);
    default:
      return fail(BP_INTERNAL, settings_.who + " does not know what " + worker_text(worker) +
                                   " sent; allowed: one version of the runtime on all ranks");
  }
}

// Applies the pushes whose turn it is, and answers the workers that may go on.
void ParameterService::advance() {
  while (const std::optional<uint32_t> worker = clocks_.next_to_apply()) apply(*worker);
  while (const std::optional<uint32_t> worker = clocks_.next_to_release()) {
    send_parameters(*worker);
    standing_[*worker] = Standing::kComputes;
    give_order(*worker, Order::kListen);
  }
}

void ParameterService::apply(uint32_t worker) {
  const LinkMessage& push = pushes_[worker];
  const std::vector<Tensor>& parameters = settings_.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].set_grad(push.has_gradient[i] ? links_[worker]->values().views[i] : Tensor());
  }
  if (settings_.before_step) settings_.before_step({.rank = worker, .step = push.step});
  settings_.optimizer->step();
  for (const Tensor& parameter : parameters) parameter.set_grad({});
  ++applied_[worker];
  snapshot_.reset();
}

// Submits the answer with the parameters as they are now. Workers that are answered behind one step
// of the optimizer get one copy.
Work ParameterService::send_parameters(uint32_t worker) {
  const NoGradGuard no_grad;
  ParameterLink& link = *links_[worker];
  try {
    if (!snapshot_) {
      snapshot_.emplace(settings_.parameters);
      for (size_t i = 0; i < link.size(); ++i) {
        snapshot_->views[i].copy_from(settings_.parameters[i].detach());
      }
    }
    link.send({.kind = Kind::kParameters, .has_gradient = {}, .text = {}});
    return link.send_values(*snapshot_);
  } catch (const Error& e) {
    standing_[worker] = Standing::kGone;
    throw Error(e.code(), settings_.who + " could not send parameters to " + worker_text(worker) +
                              ": " + e.what());
  }
}

// Workers that wait for others must hear that the server is alive. One that is busy before it pulls
// hears it once.
void ParameterService::tell_to_wait() {
  for (uint32_t worker = 0; worker < links_.size(); ++worker) {
    if (standing_[worker] != Standing::kWaits || !waits_[worker].is_done()) continue;
    ParameterLink& link = *links_[worker];
    try {
      waits_[worker] = link.send({.kind = Kind::kWait, .has_gradient = {}, .text = {}});
      // The worker expects values. It does not look at those that come now.
      if (pushes_[worker].kind == Kind::kPush) waits_[worker] = link.send_values(link.values());
    } catch (const Error& e) {
      standing_[worker] = Standing::kGone;
      throw Error(e.code(), settings_.who + " lost " + worker_text(worker) +
                                ", which waited for other workers: " + e.what());
    }
  }
}

void ParameterService::end_session() {
  std::vector<Work> works;
  for (uint32_t worker = 0; worker < links_.size(); ++worker) {
    works.push_back(send_parameters(worker));
    standing_[worker] = Standing::kGone;
  }
  for (uint32_t worker = 0; worker < links_.size(); ++worker) {
    try {
      works[worker].wait();
    } catch (const Error& e) {
      throw Error(e.code(), settings_.who + " could not send the last parameters to " +
                                worker_text(worker) + ": " + e.what());
    }
  }
  for (uint32_t worker = 0; worker < links_.size(); ++worker) give_order(worker, Order::kEnd);
}

// ---- Failures ----------------------------------------------------------------------------------

// Only the first failure counts, since the others follow from it.
void ParameterService::fail(bp_status code, const std::string& text) {
  if (failure_code_ != BP_OK) return;
  failure_code_ = code;
  failure_ = text;
}

// Tells each worker as soon as it waits for an answer, and ends the threads.
void ParameterService::end_after_failure() {
  for (;;) {
    std::vector<Work> works;
    for (uint32_t worker = 0; worker < links_.size(); ++worker) {
      if (standing_[worker] == Standing::kWaits) works.push_back(tell_failure(worker));
      if (standing_[worker] == Standing::kComputes) continue;
      standing_[worker] = Standing::kGone;
      give_order(worker, Order::kEnd);
    }
    for (const Work& work : works) {
      try {
        work.wait();
      } catch (const Error&) {
        // This worker is gone too, and the first failure is what serve() throws.
      }
    }
    if (std::ranges::count(standing_, Standing::kComputes) == 0) return;
    // The messages of each link have a timeout, so each worker comes, or counts as gone.
    const std::optional<Arrival> arrival = next_arrival(Clock::now() + kLongestNap);
    if (!arrival) continue;
    const bool is_gone = arrival->message.kind == Kind::kFailure;
    standing_[arrival->worker] = is_gone ? Standing::kGone : Standing::kWaits;
    pushes_[arrival->worker] = arrival->message;
  }
}

Work ParameterService::tell_failure(uint32_t worker) {
  ParameterLink& link = *links_[worker];
  try {
    const Work told = link.send(
        {.kind = Kind::kFailure, .has_gradient = {}, .code = failure_code_, .text = failure_});
    // A worker that has pushed expects parameters as well.
    return pushes_[worker].kind == Kind::kPush ? link.send_values(link.values()) : told;
  } catch (const Error&) {
    return {};  // This worker is gone too.
  }
}

}  // namespace bp::distributed
