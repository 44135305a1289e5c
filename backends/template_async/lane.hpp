// The order of one stream: a queue of the host whose thread hands commands to a queue of the
// device.
//
// A task of the host's queue hands over and does not wait, so that the device always has the next
// command. The last task that is there waits for the device. So do events, callbacks and waits, and
// a task that fails. When the host's queue is idle, the device's queue is idle too.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "backplane/shell/queue.hpp"
#include "backplane/shell/test_fault.hpp"
#include "driver.hpp"

namespace acme_async {

class Card;

// A range of memory that work uses.
struct Use {
  Place place;
  uint64_t size_bytes = 0;
  bool is_written = false;
};

class Lane : public bp::Queue {
 public:
  Lane(const bp_host& host, bp::Executor& executor, std::shared_ptr<Card> card);

  // Submits work: body(CommandQueue&) hands its commands over, on a thread of the executor. The
  // work uses the memory in `uses`.
  template <typename Body>
  bp_status submit_work(std::vector<Use> uses, Body body) {
    const bp::TestFault fault = faults_.take(*this);
    return submit([ticket = std::make_shared<Ticket>(*this), uses = std::move(uses), fault,
                   body = std::move(body)]() mutable {
      ticket->begin();
      ticket->lane().run(fault, uses, [&](CommandQueue& queue) { body(queue); });
    });
  }

  // Submits an item that ends when the work before it has ended on the device.
  bp_status finish_behind();

  // Submits a task that gets the outcome of the work before it when that has ended, also after a
  // failure. What the task throws fails the stream.
  bp_status run_behind(std::function<void(const bp::Outcome&)> task);

  // Makes later work wait for `point`, and fail if it carries a failure.
  bp_status wait_behind(const std::shared_ptr<bp::Point>& point);

  // Blocks until the work submitted so far has ended on the device. Returns false if timeout_ns
  // passed first.
  bool wait(uint64_t timeout_ns);

  bp::TestFaults& faults() { return faults_; }

 private:
  // Counts a piece of work until it begins or is dropped.
  class Ticket {
   public:
    explicit Ticket(Lane& lane) : lane_(&lane) { ++lane.waiting_; }
    ~Ticket() { begin(); }
    Ticket(const Ticket&) = delete;
    void begin() {
      if (is_waiting_) --lane_->waiting_;
      is_waiting_ = false;
    }
    Lane& lane() const { return *lane_; }

   private:
    Lane* const lane_;  // It owns the queue that keeps the work.
    bool is_waiting_ = true;
  };

  CommandQueue& commands();
  void run(const bp::TestFault& fault, const std::vector<Use>& uses,
           const std::function<void(CommandQueue&)>& body);

  // Waits for the device. Throws the failure of the commands.
  void finish();

  // Changes one byte in the middle of what the work wrote last, if it wrote anything.
  void corrupt(const std::vector<Use>& uses);

  const std::shared_ptr<Card> card_;
  bp::TestFaults faults_;
  std::atomic<uint64_t> waiting_ = 0;       // Pieces of work that have not begun.
  std::unique_ptr<CommandQueue> commands_;  // The first command opens it.
  uint64_t handed_over_ = 0;                // Pieces of work. The thread of the queue counts them.
};

}  // namespace acme_async
