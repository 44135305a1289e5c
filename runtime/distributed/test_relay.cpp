// One thread moves the bytes of all connections. A piece that came in is due later by the time that
// the link takes to send it, by the delay, and by the jitter, but never before the piece in front
// of it.
#include "runtime/distributed/test_relay.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/test_relay_wire.hpp"

namespace bp::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostWaiting = size_t{1} << 20;  // The bytes that a direction holds.

void set_linger(const Socket& socket) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

void send_at_once(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

class RelayProcess {
 public:
  RelayProcess(const Network& network, Socket listener, Relay::Counts& counts)
      : network_(network), listener_(std::move(listener)), counts_(counts) {}

  [[noreturn]] void run() {
    for (;;) poll_once();
  }

 private:
  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };
  // One direction of a connection.
  struct Flow {
    std::deque<Piece> pieces;
    size_t waiting_bytes = 0;
    Clock::time_point link_is_free{}, last_due{};
    bool has_ended = false;  // Its sender sends nothing more.
    bool is_shut = false;    // Its receiver knows.
  };
  struct Connection {
    Socket ends[2];
    Flow flows[2];  // Flow i goes from end i to the other.
    bool may_be_cut = false;
    uint64_t forwarded_bytes = 0;
    Cut cut = Cut::kNone;
    bool is_over = false;
  };
  // A port that one rank was given to reach another.
  struct Way {
    Socket listener, far;
    bool may_be_cut = false, is_used = false;
  };

  void poll_once();
  void answer_request();
  void open(Way& way);
  bool is_between(uint32_t one, uint32_t other) const;
  void read_from(Connection& connection, int end);
  void write_to(Connection& connection, int end);
  void cut(Connection& connection);
  static void reset(Connection& connection);
  static void discard(Connection& connection, int end);
  void move(Connection& connection, const short revents[2]);
  Clock::time_point due_after(Flow& flow, size_t bytes);
  static void ask(const Connection& connection, std::vector<pollfd>& entries,
                  Clock::time_point& next);

  const Network network_;
  const Socket listener_;
  Relay::Counts& counts_;
  std::map<uint16_t, uint32_t> owners_;  // The rank that listens at a port.
  std::list<Way> ways_;
  std::list<Connection> connections_;
  std::mt19937 random_{1};
};

// ---- The ways ----------------------------------------------------------------------------------

// A rank tells where it listens before it does, and waits for the answer. The relay tries each
// address itself. So it knows each listener of a rank that it reaches, and nobody gets past it.
void RelayProcess::answer_request() {
  const Socket asker(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  RelayRequest request{};
  if (recv(asker.get(), &request, sizeof(request), MSG_WAITALL) != sizeof(request)) return;
  RelayAnswer answer{};
  if (request.is_listener != 0) {
    owners_[request.port] = request.rank;
  } else {
    Socket far(socket(request.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* const address = reinterpret_cast<const sockaddr*>(&request.address);
    answer.is_refused = connect_past_relay(far.get(), address, request.address_bytes) != 0 ? 1 : 0;
    const auto owner = owners_.find(request.port);
    if (answer.is_refused == 0 && owner != owners_.end()) {
      Way& way = ways_.emplace_back(Way{listen_at("127.0.0.1", 0), std::move(far)});
      way.may_be_cut = network_.cut != Cut::kNone && is_between(request.rank, owner->second);
      answer.port = port_of(way.listener);
    }
  }
  static_cast<void>(send(asker.get(), &answer, sizeof(answer), MSG_NOSIGNAL));
}

bool RelayProcess::is_between(uint32_t one, uint32_t other) const {
  return !network_.cut_between ||
         std::minmax(one, other) ==
             std::minmax(network_.cut_between->first, network_.cut_between->second);
}

void RelayProcess::open(Way& way) {
  way.is_used = true;
  Connection& connection = connections_.emplace_back();
  connection.ends[0] = Socket(accept4(way.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  connection.ends[1] = std::move(way.far);
  for (const Socket& end : connection.ends) {
    make_nonblocking(end.get());
    send_at_once(end);
  }
  connection.may_be_cut = way.may_be_cut;
  ++counts_.connections;
  if (connection.may_be_cut && network_.cut_after_bytes == 0) cut(connection);
}

// ---- The connections ---------------------------------------------------------------------------

void RelayProcess::reset(Connection& connection) {
  for (Socket& end : connection.ends) {
    set_linger(end);
    end = Socket();
  }
  connection.is_over = true;
}

void RelayProcess::cut(Connection& connection) {
  connection.cut = network_.cut;
  for (Flow& flow : connection.flows) flow.pieces.clear();
  if (network_.cut == Cut::kReset) reset(connection);
  if (network_.cut == Cut::kEnd) {
    for (const Socket& end : connection.ends) shutdown(end.get(), SHUT_WR);
  }
  ++counts_.cuts;  // Who waits for the number finds the connection cut.
}

Clock::time_point RelayProcess::due_after(Flow& flow, size_t bytes) {
  const Clock::time_point now = Clock::now();
  Duration sending{};
  if (network_.bytes_per_second != 0) {
    sending = Duration(1'000'000'000 * bytes / network_.bytes_per_second);
  }
  flow.link_is_free = std::max(now, flow.link_is_free) + sending;
  std::uniform_int_distribution<int64_t> jitter(0, network_.jitter.count());
  flow.last_due =
      std::max(flow.last_due, flow.link_is_free + network_.delay + Duration(jitter(random_)));
  return flow.last_due;
}

void RelayProcess::read_from(Connection& connection, int end) {
  Flow& flow = connection.flows[end];
  std::string bytes(network_.piece_bytes, '\0');
  const ssize_t got = recv(connection.ends[end].get(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return reset(connection);
  if (got == 0) {
    flow.has_ended = true;
    return;
  }
  bytes.resize(static_cast<size_t>(got));
  flow.waiting_bytes += bytes.size();
  flow.pieces.push_back({due_after(flow, bytes.size()), std::move(bytes)});
}

// Forwards what is due to the end that flow `from` goes to.
void RelayProcess::write_to(Connection& connection, int from) {
  Flow& flow = connection.flows[from];
  const int end = connection.ends[1 - from].get();
  while (!flow.pieces.empty() && flow.pieces.front().due <= Clock::now()) {
    std::string& bytes = flow.pieces.front().bytes;
    size_t count = bytes.size();
    if (connection.may_be_cut) {
      count = std::min<uint64_t>(count, network_.cut_after_bytes - connection.forwarded_bytes);
    }
    const ssize_t sent = send(end, bytes.data(), count, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent < 0) return reset(connection);
    const auto moved = static_cast<size_t>(sent);
    ++counts_.pieces;
    connection.forwarded_bytes += moved;
    flow.waiting_bytes -= moved;
    bytes.erase(0, moved);
    if (bytes.empty()) flow.pieces.pop_front();
    if (connection.may_be_cut && connection.forwarded_bytes == network_.cut_after_bytes) {
      return cut(connection);
    }
  }
  if (flow.has_ended && flow.pieces.empty() && !flow.is_shut) {
    flow.is_shut = true;
    shutdown(end, SHUT_WR);
  }
}

// Behind a cut in peace, each end may go on sending, and nobody gets it.
void RelayProcess::discard(Connection& connection, int end) {
  char bytes[65536];
  const ssize_t got = recv(connection.ends[end].get(), bytes, sizeof(bytes), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    connection.flows[end].has_ended = connection.flows[end].is_shut = true;
  }
}

void RelayProcess::move(Connection& connection, const short revents[2]) {
  for (int end = 0; end < 2 && !connection.is_over; ++end) {
    if (connection.cut == Cut::kEnd) {
      if (revents[end] != 0) discard(connection, end);
      continue;
    }
    const Flow& flow = connection.flows[end];
    if ((revents[end] & (POLLIN | POLLERR | POLLHUP)) != 0 && !flow.has_ended &&
        flow.waiting_bytes < kMostWaiting) {
      read_from(connection, end);
    }
    if (!connection.is_over) write_to(connection, end);
    if (connection.cut != Cut::kNone) return;
  }
  const bool is_shut = connection.flows[0].is_shut && connection.flows[1].is_shut;
  connection.is_over = connection.is_over || is_shut;
}

// Appends what poll() looks at for the ends of a connection. Lowers `next` to the time when the
// next piece is due.
void RelayProcess::ask(const Connection& connection, std::vector<pollfd>& entries,
                       Clock::time_point& next) {
  const auto now = Clock::now();
  for (int end = 0; end < 2; ++end) {
    const Flow &from = connection.flows[end], &to = connection.flows[1 - end];
    short events = 0;
    if (!from.has_ended && from.waiting_bytes < kMostWaiting) events |= POLLIN;
    if (!to.pieces.empty()) {
      if (to.pieces.front().due <= now) events |= POLLOUT;
      next = std::min(next, std::max(now, to.pieces.front().due));
    }
    // An entry without events would still report that its other side is gone.
    const bool is_asked = events != 0 && connection.cut != Cut::kStall;
    entries.push_back({is_asked ? connection.ends[end].get() : -1, events, 0});
  }
}

void RelayProcess::poll_once() {
  std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
  for (const Way& way : ways_) entries.push_back({way.listener.get(), POLLIN, 0});
  const auto now = Clock::now();
  auto next = now + std::chrono::hours(1);
  for (const Connection& connection : connections_) ask(connection, entries, next);
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(next - now).count();
  const timespec timeout{.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
  if (ppoll(entries.data(), entries.size(), &timeout, nullptr) < 0) return;
  size_t i = 1 + ways_.size();
  for (Connection& connection : connections_) {
    const short revents[2] = {entries[i].revents, entries[i + 1].revents};
    i += 2;
    if (connection.cut != Cut::kStall) move(connection, revents);
  }
  connections_.remove_if([](const Connection& connection) { return connection.is_over; });
  i = 1;
  for (Way& way : ways_) {
    if (entries[i++].revents != 0) open(way);
  }
  ways_.remove_if([](const Way& way) { return way.is_used; });
  if (entries[0].revents != 0) answer_request();
}

// ---- The test ----------------------------------------------------------------------------------

Relay::Relay(const Network& network) {
  Socket listener = listen_at("127.0.0.1", 0);
  port_ = port_of(listener);
  void* const shared =
      mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw Error(BP_OUT_OF_MEMORY, "the relay gets no shared memory");
  counts_ = new (shared) Counts{};
  process_ = fork();
  if (process_ < 0) throw Error(BP_ABORTED, "the relay gets no process");
  if (process_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  RelayProcess(network, std::move(listener), *counts_).run();
}

Relay::~Relay() {
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  munmap(counts_, sizeof(Counts));
}

}  // namespace bp::distributed
