#include "simulation/transfers.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace bp::simulate {
namespace {

// Times and rates that differ by less than this factor are the same: they were computed in
// different orders.
constexpr double kSame = 1e-12;

}  // namespace

Transfers::Transfers(const std::vector<double>& bandwidths) {
  for (const double bandwidth : bandwidths) links_.push_back({.bandwidth = bandwidth});
}

void Transfers::touch(uint32_t link) {
  if (links_[link].is_dirty) return;
  links_[link].is_dirty = true;
  dirty_.push_back(link);
}

void Transfers::add(double now, Transfer transfer) {
  now_ = now;
  uint32_t which = static_cast<uint32_t>(active_.size());
  if (free_.empty()) {
    active_.emplace_back();
  } else {
    which = free_.back();
    free_.pop_back();
  }
  Active& active = active_[which];
  active.transfer = std::move(transfer);
  active.rate = 0;
  active.since = now;
  active.is_active = true;
  ++active.version;
  if (active.transfer.work <= 0) {
    ends_.push({now, which, active.version});
    return;
  }
  for (const Load& load : active.transfer.loads) {
    links_[load.link].users.push_back(which);
    touch(load.link);
  }
  if (active.transfer.loads.empty()) alone_.push_back(which);
}

// Finds all links and transfers whose rates can depend on the links that changed.
void Transfers::collect(std::vector<uint32_t>& links, std::vector<uint32_t>& users) {
  ++visit_;
  for (const uint32_t link : dirty_) {
    links_[link].is_dirty = false;
    links_[link].visit = visit_;
    links.push_back(link);
  }
  dirty_.clear();
  for (size_t i = 0; i < links.size(); ++i) {
    for (const uint32_t user : links_[links[i]].users) {
      if (active_[user].visit == visit_) continue;
      active_[user].visit = visit_;
      users.push_back(user);
      for (const Load& load : active_[user].transfer.loads) {
        if (links_[load.link].visit == visit_) continue;
        links_[load.link].visit = visit_;
        links.push_back(load.link);
      }
    }
  }
}

bool Transfers::all_at_most_rate(const std::vector<uint32_t>& links) const {
  return std::ranges::all_of(links, [&](uint32_t link) {
    return links_[link].weight <= links_[link].bandwidth * (1 + kSame);
  });
}

// Progressive filling. `links` have the whole of their bandwidth left, and the weights of all
// `users`.
void Transfers::fill(const std::vector<uint32_t>& links, std::vector<uint32_t> users,
                     std::vector<double>& rates) {
  while (!users.empty()) {
    double level = kNever;
    for (const uint32_t link : links) {
      if (links_[link].open > 0) level = std::min(level, links_[link].left / links_[link].weight);
    }
    for (const uint32_t user : users) {
      level = std::min(level, active_[user].transfer.max_rate / active_[user].transfer.weight);
    }
    level = std::max(level, 0.0);
    const auto is_fixed = [&](uint32_t user) {
      const Transfer& transfer = active_[user].transfer;
      if (transfer.max_rate <= level * transfer.weight * (1 + kSame)) return true;
      return std::ranges::any_of(transfer.loads, [&](const Load& load) {
        const Link& link = links_[load.link];
        return link.left <= level * link.weight * (1 + kSame);
      });
    };
    const auto fixed =
        std::partition(users.begin(), users.end(), [&](uint32_t user) { return !is_fixed(user); });
    for (auto user = fixed; user != users.end(); ++user) {
      const Transfer& transfer = active_[*user].transfer;
      rates[*user] = level * transfer.weight;
      for (const Load& load : transfer.loads) {
        Link& link = links_[load.link];
        link.left = std::max(link.left - rates[*user] * load.bytes, 0.0);
        link.weight -= transfer.weight * load.bytes;
        --link.open;
      }
    }
    users.erase(fixed, users.end());
  }
}

void Transfers::set_rate(uint32_t which, double rate) {
  Active& active = active_[which];
  if (active.rate > 0 && std::abs(rate - active.rate) <= kSame * active.rate) return;
  active.transfer.work = std::max(active.transfer.work - active.rate * (now_ - active.since), 0.0);
  active.since = now_;
  active.rate = rate;
  ++active.version;
  if (rate > 0) ends_.push({now_ + active.transfer.work / rate, which, active.version});
}

void Transfers::settle() {
  for (const uint32_t which : alone_) set_rate(which, active_[which].transfer.max_rate);
  alone_.clear();
  if (dirty_.empty()) return;
  std::vector<uint32_t> links, users;
  collect(links, users);
  rate_of_.resize(active_.size());
  // First as if each transfer had its greatest rate: then most networks have bandwidth left.
  const bool have_limits = std::ranges::all_of(
      users, [&](uint32_t user) { return active_[user].transfer.max_rate < kNever; });
  const auto weigh = [&](bool by_rate) {
    for (const uint32_t link : links) {
      links_[link].left = links_[link].bandwidth;
      links_[link].weight = 0;
      links_[link].open = 0;
    }
    for (const uint32_t user : users) {
      const Transfer& transfer = active_[user].transfer;
      const double weight = by_rate ? transfer.max_rate : transfer.weight;
      for (const Load& load : transfer.loads) {
        links_[load.link].weight += weight * load.bytes;
        ++links_[load.link].open;
      }
    }
  };
  if (have_limits) weigh(true);
  if (have_limits && all_at_most_rate(links)) {
    for (const uint32_t user : users) rate_of_[user] = active_[user].transfer.max_rate;
  } else {
    weigh(false);
    fill(links, users, rate_of_);
  }
  for (const uint32_t user : users) set_rate(user, rate_of_[user]);
}

double Transfers::next_end() {
  settle();
  while (!ends_.empty()) {
    const End& end = ends_.top();
    if (active_[end.which].is_active && active_[end.which].version == end.version) return end.time;
    ends_.pop();
  }
  return kNever;
}

void Transfers::remove(uint32_t which) {
  Active& active = active_[which];
  for (const Load& load : active.transfer.loads) {
    std::vector<uint32_t>& users = links_[load.link].users;
    const auto place = std::ranges::find(users, which);
    if (place == users.end()) continue;  // A transfer without work is on no link.
    *place = users.back();
    users.pop_back();
    touch(load.link);
  }
  active.is_active = false;
  free_.push_back(which);
}

void Transfers::end_next(std::vector<uint64_t>& ended) {
  const double time = next_end();
  if (time == kNever) return;
  now_ = time;
  while (!ends_.empty() && ends_.top().time <= time * (1 + kSame)) {
    const End end = ends_.top();
    ends_.pop();
    if (!active_[end.which].is_active || active_[end.which].version != end.version) continue;
    ended.push_back(active_[end.which].transfer.tag);
    remove(end.which);
  }
}

}  // namespace bp::simulate
