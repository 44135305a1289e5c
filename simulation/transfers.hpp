// Transfers that share links: an event-driven model of rates.
//
// A transfer is an amount of work that puts bytes on links. A message is one with a byte on each
// link of its route for each unit of work. A whole collective call is one whose work is 1, and
// which puts all its bytes on all its links.
//
// Rates are max-min fair. All transfers of a link speed up together, in proportion to their
// weights, until a link is full or a transfer has its greatest rate. Those keep their rates, and
// the others speed up further (progressive filling; Bertsekas and Gallager, Data Networks, 1992,
// section 6.5). Rates change only when a transfer begins or ends.
//
// Threads    One thread at a time uses an object.
// Errors     None: whoever adds a transfer gives links that exist and amounts that are finite.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace bp::simulate {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The bytes that a transfer puts on a link for each unit of its work.
struct Load {
  uint32_t link = 0;
  double bytes = 0;
};

struct Transfer {
  double work = 0;           // At least 0. A transfer without work ends when it begins.
  std::vector<Load> loads;   // Each link at most once. Without loads only max_rate counts.
  double weight = 1;         // Above 0.
  double max_rate = kNever;  // Units of work in a second. Above 0.
  uint64_t tag = 0;          // The caller's own.
};

class Transfers {
 public:
  // `bandwidths` are the bytes that each link carries in a second. They are above 0.
  explicit Transfers(const std::vector<double>& bandwidths);

  // Begins a transfer at the time `now`, which never goes back.
  void add(double now, Transfer transfer);

  // Returns when the next transfer ends, or kNever.
  double next_end();

  // Ends the transfers whose time is next_end(), and appends their tags to `ended`.
  void end_next(std::vector<uint64_t>& ended);

 private:
  struct Active {
    Transfer transfer;  // Its work is what is left at `since`.
    double rate = 0;
    double since = 0;
    uint32_t version = 0;
    bool is_active = false;
    uint64_t visit = 0;
  };
  struct Link {
    double bandwidth = 0;
    std::vector<uint32_t> users;
    double left = 0;    // What no transfer with a fixed rate takes.
    double weight = 0;  // The bytes in a second of the others, if a unit of weight had rate 1.
    uint32_t open = 0;  // How many others there are.
    uint64_t visit = 0;
    bool is_dirty = false;
  };
  struct End {
    double time;
    uint32_t which, version;
    bool operator>(const End& other) const { return time > other.time; }
  };

  void settle();
  void collect(std::vector<uint32_t>& links, std::vector<uint32_t>& users);
  bool all_at_most_rate(const std::vector<uint32_t>& links) const;
  void fill(const std::vector<uint32_t>& links, std::vector<uint32_t> users,
            std::vector<double>& rates);
  void set_rate(uint32_t which, double rate);
  void touch(uint32_t link);
  void remove(uint32_t which);

  std::vector<Link> links_;
  std::vector<Active> active_;
  std::vector<uint32_t> free_, dirty_, alone_;
  std::vector<double> rate_of_;  // While rates are computed.
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  double now_ = 0;
  uint64_t visit_ = 0;
};

}  // namespace bp::simulate
