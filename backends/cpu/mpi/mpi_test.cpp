// Collectives over MPI in processes that mpirun has started: what they compute and move.
#include "backends/cpu/mpi/mpi_test.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "backplane/shell/group_checks.hpp"
#include "backplane/shell/narrow.hpp"

namespace bp::mpi {
namespace {

using kernels::BFloat16;
using kernels::Float16;

// Counts of elements whose data goes with the first messages, and in several rounds.
constexpr uint64_t kFew = 5, kMany = 300'007;

float element(uint32_t rank, uint64_t i) {
  return static_cast<float>(rank + 1) + static_cast<float>(i % 97);
}

// A call of a rank, apart from place: `sent` and `received` elements.
struct Case {
  Case(Ranks& r, bp_collective_kind kind, uint64_t count, uint64_t sent, uint64_t received)
      : send(r, sent), receive(r, received), call(r.call(0, kind, 0, count)) {
    call.send = send.all();
    call.receive = receive.all();
  }
  Memory<float> send, receive;
  bp_collective_call call;
};

void fill(const Memory<float>& memory, uint32_t rank) {
  for (uint64_t i = 0; i < memory.count(); ++i) memory[i] = element(rank, i);
}

void expect_elements(const Memory<float>& got, uint64_t at, uint64_t count,
                     const std::function<float(uint64_t)>& want, const std::string& what) {
  for (uint64_t i = 0; i < count; ++i) {
    if (got[at + i] == want(i)) continue;
    throw std::runtime_error(what + ": element " + std::to_string(at + i) + " is " +
                             std::to_string(got[at + i]) + ", expected " + std::to_string(want(i)));
  }
}

// The sum of what all ranks have in an element.
float sum_of(uint32_t size, uint64_t i) {
  float sum = 0;
  for (uint32_t rank = 0; rank < size; ++rank) sum += element(rank, i);
  return sum;
}

void run_reductions(Ranks& r, uint32_t rank, uint32_t size, uint64_t n) {
  const uint32_t root = size - 1;
  Case all(r, BP_COLLECTIVE_ALL_REDUCE, n, n, n);
  fill(all.send, rank);
  all.call.reduction = BP_REDUCTION_SUM;
  run_calls(r, {all.call}, 0, "all_reduce");
  expect_elements(
      all.receive, 0, n, [&](uint64_t i) { return sum_of(size, i); }, "all_reduce");

  Case one(r, BP_COLLECTIVE_REDUCE, n, n, n);
  fill(one.send, rank);
  one.call.reduction = BP_REDUCTION_MAX;
  one.call.root = root;
  run_calls(r, {one.call}, 0, "reduce");
  expect_elements(
      one.receive, 0, n, [&](uint64_t i) { return rank == root ? element(root, i) : 0; }, "reduce");

  Case parts(r, BP_COLLECTIVE_REDUCE_SCATTER, n, n * size, n);
  fill(parts.send, rank);
  parts.call.reduction = BP_REDUCTION_AVERAGE;
  run_calls(r, {parts.call}, 0, "reduce_scatter");
  const auto n_of = static_cast<float>(size);
  expect_elements(
      parts.receive, 0, n, [&](uint64_t i) { return sum_of(size, rank * n + i) / n_of; },
      "reduce_scatter");
}

void run_moves(Ranks& r, uint32_t rank, uint32_t size, uint64_t n) {
  const uint32_t root = size - 1;
  Case broadcast(r, BP_COLLECTIVE_BROADCAST, n, n, n);
  fill(broadcast.send, rank);
  broadcast.call.root = root;
  run_calls(r, {broadcast.call}, 0, "broadcast");
  expect_elements(
      broadcast.receive, 0, n, [&](uint64_t i) { return element(root, i); }, "broadcast");
  for (const bp_collective_kind kind : {BP_COLLECTIVE_ALL_GATHER, BP_COLLECTIVE_GATHER}) {
    Case gather(r, kind, n, n, n * size);
    fill(gather.send, rank);
    gather.call.root = root;
    run_calls(r, {gather.call}, 0, kind_name(kind));
    const bool has_all = kind == BP_COLLECTIVE_ALL_GATHER || rank == root;
    for (uint32_t from = 0; from < size; ++from) {
      expect_elements(
          gather.receive, from * n, n, [&](uint64_t i) { return has_all ? element(from, i) : 0; },
          kind_name(kind));
    }
  }
  Case scatter(r, BP_COLLECTIVE_SCATTER, n, n * size, n);
  fill(scatter.send, rank);
  scatter.call.root = root;
  run_calls(r, {scatter.call}, 0, "scatter");
  expect_elements(
      scatter.receive, 0, n, [&](uint64_t i) { return element(root, rank * n + i); }, "scatter");
  Case exchange(r, BP_COLLECTIVE_ALL_TO_ALL, n, n * size, n * size);
  fill(exchange.send, rank);
  run_calls(r, {exchange.call}, 0, "all_to_all");
  for (uint32_t from = 0; from < size; ++from) {
    expect_elements(
        exchange.receive, from * n, n, [&](uint64_t i) { return element(from, rank * n + i); },
        "all_to_all");
  }
}

// A letter to the next rank and one from the previous rank, together.
void run_letters(Ranks& r, uint32_t rank, uint32_t size, uint64_t n) {
  const uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
  Case letters(r, BP_COLLECTIVE_SEND, n, n, n);
  fill(letters.send, rank);
  letters.call.root = next;
  bp_collective_call receive = letters.call;
  receive.kind = BP_COLLECTIVE_RECEIVE;
  receive.root = previous;
  run_calls(r, {letters.call, receive}, 0, "letters");
  expect_elements(
      letters.receive, 0, n, [&](uint64_t i) { return element(previous, i); }, "a letter");
}

Body every_kind(uint32_t size) {
  return [size](Ranks& r, uint32_t rank) {
    for (const uint64_t n : {uint64_t{0}, kFew, kMany}) {
      run_reductions(r, rank, size, n);
      run_moves(r, rank, size, n);
      run_letters(r, rank, size, n);
    }
    run_calls(r, {r.call(0, BP_COLLECTIVE_BARRIER)}, 0, "barrier");
  };
}

TEST(Mpi, RunsEveryKindOfCallInTwoProcesses) { in_processes(2, every_kind(2)); }
TEST(Mpi, RunsEveryKindOfCallInThreeProcesses) { in_processes(3, every_kind(3)); }
TEST(Mpi, RunsEveryKindOfCallInFourProcesses) { in_processes(4, every_kind(4)); }

// ---- Reductions ---------------------------------------------------------------------------------

// Reduces 2 * rank + 1 over the ranks 0, 1 and 2.
template <typename T>
void check_dtype(Ranks& r, uint32_t rank, bp_dtype dtype, uint64_t n,
                 const std::function<T(float)>& of, const std::function<float(T)>& value) {
  const std::pair<bp_reduction, float> rows[] = {{BP_REDUCTION_SUM, 9},
                                                 {BP_REDUCTION_PRODUCT, 15},
                                                 {BP_REDUCTION_MIN, 1},
                                                 {BP_REDUCTION_MAX, 5}};
  for (const auto& [reduction, want] : rows) {
    const Memory<T> memory(r, n);
    for (uint64_t i = 0; i < n; ++i) memory[i] = of(static_cast<float>(2 * rank + 1));
    bp_collective_call call = r.call(0, BP_COLLECTIVE_ALL_REDUCE, reduction, n);
    call.dtype = dtype;
    call.send = call.receive = memory.all();
    run_calls(r, {call}, 0, "dtype " + std::to_string(dtype));
    for (const uint64_t i : {uint64_t{0}, n / 2, n - 1}) {
      expect_equal(value(memory[i]), want,
                   "reduction " + std::to_string(reduction) + " of dtype " + std::to_string(dtype));
    }
  }
}

template <typename T>
void check_plain(Ranks& r, uint32_t rank, bp_dtype dtype, uint64_t n) {
  check_dtype<T>(
      r, rank, dtype, n, [](float x) { return static_cast<T>(x); },
      [](T x) { return static_cast<float>(x); });
}

template <typename T>
void check_narrow(Ranks& r, uint32_t rank, bp_dtype dtype, uint64_t n) {
  check_dtype<T>(
      r, rank, dtype, n, [](float x) { return kernels::narrow<T>(x); },
      [](T x) { return static_cast<float>(kernels::widen(x)); });
}

TEST(Mpi, ReducesEveryDtype) {
  in_processes(3, [](Ranks& r, uint32_t rank) {
    for (const uint64_t n : {kFew, kMany}) {
      check_plain<uint8_t>(r, rank, BP_U8, n);
      check_plain<int8_t>(r, rank, BP_I8, n);
      check_plain<int16_t>(r, rank, BP_I16, n);
      check_plain<int32_t>(r, rank, BP_I32, n);
      check_plain<int64_t>(r, rank, BP_I64, n);
      check_plain<double>(r, rank, BP_F64, n);
      check_narrow<Float16>(r, rank, BP_F16, n);
      check_narrow<BFloat16>(r, rank, BP_BF16, n);
    }
  });
}

TEST(Mpi, ScalesEachRankAndKeepsANan) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    for (const uint64_t n : {kFew, kMany}) {
      const Memory<float> memory(r, n);
      for (uint64_t i = 0; i < n; ++i) memory[i] = 4;
      bp_collective_call call = r.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SCALED_SUM, n);
      call.scale = rank == 0 ? 0.5 : 2;
      call.send = call.receive = memory.all();
      run_calls(r, {call}, 0, "a scaled sum");
      expect_equal(memory[n - 1], 10.0f, "4 / 2 + 4 * 2");
      memory[1] = rank == 0 ? std::numeric_limits<float>::quiet_NaN() : 1;
      call.reduction = BP_REDUCTION_MIN;
      run_calls(r, {call}, 0, "a minimum");
      expect(std::isnan(memory[1]), "the minimum of a NaN is not one");
    }
  });
}

// ---- Uneven parts -------------------------------------------------------------------------------

TEST(Mpi, MovesUnevenParts) {
  in_processes(3, [](Ranks& r, uint32_t rank) {
    for (const uint64_t unit : {uint64_t{1}, uint64_t{60'001}}) {
      const uint64_t counts[] = {2 * unit, 0, 3 * unit}, offsets[] = {0, 2 * unit, 2 * unit};
      const uint64_t all = 5 * unit;
      Case gather(r, BP_COLLECTIVE_ALL_GATHER, 0, counts[rank], all);
      fill(gather.send, rank);
      gather.call.counts = counts;
      run_calls(r, {gather.call}, 0, "all_gather");
      for (const uint32_t from : {0u, 2u}) {
        expect_elements(
            gather.receive, offsets[from], counts[from],
            [&](uint64_t i) { return element(from, i); }, "all_gather");
      }
      Case sums(r, BP_COLLECTIVE_REDUCE_SCATTER, 0, all, counts[rank]);
      fill(sums.send, rank);
      sums.call.counts = counts;
      sums.call.reduction = BP_REDUCTION_SUM;
      run_calls(r, {sums.call}, 0, "reduce_scatter");
      expect_elements(
          sums.receive, 0, counts[rank], [&](uint64_t i) { return sum_of(3, offsets[rank] + i); },
          "reduce_scatter");
    }
  });
}

TEST(Mpi, ExchangesPartsInPlace) {
  constexpr uint32_t kSize = 3;
  in_processes(kSize, [](Ranks& r, uint32_t rank) {
    for (const uint64_t unit : {uint64_t{1}, uint64_t{50'003}}) {
      // Part q of rank p has as many units as row p has in column q.
      const uint64_t units[kSize][kSize] = {{1, 2, 0}, {4, 1, 3}, {0, 1, 2}};
      uint64_t sent[kSize], received[kSize];
      for (uint32_t q = 0; q < kSize; ++q) {
        sent[q] = units[rank][q] * unit;
        received[q] = units[q][rank] * unit;
      }
      const Memory<float> memory(r, 8 * unit);
      fill(memory, rank);
      bp_collective_call call = r.call(0, BP_COLLECTIVE_ALL_TO_ALL);
      call.send = call.receive = memory.all();
      call.counts = sent;
      call.receive_counts = received;
      run_calls(r, {call}, 0, "all_to_all");
      uint64_t at = 0;
      for (uint32_t from = 0; from < kSize; ++from) {
        uint64_t there = 0;
        for (uint32_t q = 0; q < rank; ++q) there += units[from][q] * unit;
        expect_elements(
            memory, at, received[from], [&](uint64_t i) { return element(from, there + i); },
            "a part");
        at += received[from];
      }
    }
  });
}

TEST(Mpi, DeliversALetterOfARankToItself) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    run_calls(r, {r.letter(0, BP_COLLECTIVE_SEND, rank), r.letter(0, BP_COLLECTIVE_RECEIVE, rank)},
              0, "a letter");
    expect_equal(r.values(0)[32], static_cast<float>(rank + 1), "the letter");
  });
}

// ---- Several calls and groups -------------------------------------------------------------------

// The streams come to the calls in another order than the ranks submit them.
TEST(Mpi, DoesNotMixCallsThatRunAtTheSameTime) {
  in_processes(2, [](Ranks& r, uint32_t rank) {
    const auto& events = *r.backend().events;
    const auto& streams = *r.backend().streams;
    bp_event* const gate = r.backend().make_event(BP_EVENT_HOST_SIGNAL);
    bp_stream* const held = r.backend().make_stream();
    expect(streams.wait_event(streams.self, held, gate) == BP_OK, r.text());
    bp_collective_call late = r.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, 1);
    late.stream = held;
    const Memory<float> other(r, kFew);
    fill(other, rank);
    bp_collective_call early = r.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_MAX, kFew);
    early.send = early.receive = other.all();
    expect(r.submit({late, early}) == BP_OK, r.text());
    expect(r.outcome(0) == BP_OK, r.text());
    expect_equal(other[0], 2.0f, "the larger one");
    expect_equal(r.values(0)[0], static_cast<float>(rank + 1), "what has not run yet");
    expect(events.signal(events.self, gate, BP_OK) == BP_OK, r.text());
    expect(streams.synchronize(streams.self, held, kLong) == BP_OK, r.text());
    expect_equal(r.values(0)[0], 3.0f, "the sum");
    events.destroy(events.self, gate);
  });
}

TEST(Mpi, RunsManyCallsWithoutWaitingBetweenThem) {
  in_processes(4, [](Ranks& r, uint32_t) {
    constexpr int kCalls = 100;
    const Memory<float> memory(r, 4000 * kCalls);
    std::vector<bp_collective_call> calls;
    for (uint64_t i = 0; i < memory.count(); ++i) memory[i] = 1;
    for (uint64_t i = 0; i < kCalls; ++i) {  // Every fifth one has several rounds.
      const uint64_t at = 4000 * i, count = i % 5 == 0 ? 4000 : 10;
      calls.push_back(r.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SUM, count));
      calls.back().send = calls.back().receive = memory.part(at, count);
    }
    run_calls(r, calls, 0, "many calls");
    for (uint64_t i = 0; i < kCalls; ++i) {
      expect_equal(memory[4000 * i], 4.0f, "the first of call " + std::to_string(i));
      expect_equal(memory[4000 * i + 11], i % 5 == 0 ? 4.0f : 1.0f, "the 12th element");
    }
  });
}

TEST(Mpi, SplitsByColorAndOrdersByKey) {
  in_processes(4, [](Ranks& r, uint32_t rank) {
    const uint32_t color = rank % 2, key = 4 - rank;
    bp_process_group* const from = r.group(0);
    bp_process_group* made = nullptr;
    const auto& ops = r.ops();
    expect(ops.split(ops.self, 1, &from, &color, &key, kLong, &made) == BP_OK, r.text());
    r.add({made});
    uint32_t place = 9, size = 0;
    expect(ops.rank(ops.self, made, &place, &size) == BP_OK && size == 2, "the size of the part");
    expect_equal(place, rank < 2 ? 1u : 0u, "the place in the part");
    r.values(1)[0] = static_cast<float>(rank);
    bp_collective_call gather = r.call(1, BP_COLLECTIVE_ALL_GATHER, 0, 1);
    gather.receive.byte_offset = 4 * sizeof(float);
    gather.receive.size_bytes = 2 * sizeof(float);
    run_calls(r, {gather}, 1, "all_gather");
    const auto second = static_cast<float>(color);
    expect_equal(Floats{r.values(1)[4], r.values(1)[5]}, {second + 2, second}, "the order by key");
    const uint32_t none = rank == 0 ? 0 : UINT32_MAX;
    bp_process_group* alone = nullptr;
    expect(ops.split(ops.self, 1, &from, &none, &key, kLong, &alone) == BP_OK, r.text());
    expect((alone != nullptr) == (rank == 0), "a rank without a color gets no group");
    if (rank == 0) r.add({alone});
  });
}

// The ranks of a group need not be all processes, nor in their order.
TEST(Mpi, MakesGroupsOfSomeProcessesAgainAndAgain) {
  in_processes_alone(4, [](Ranks& r, uint32_t process) {
    for (int round = 0; round < 20; ++round) {
      const uint32_t rank = process / 2 == 0 ? 1 - process : process - 2;
      const std::string prefix = std::to_string(round) + "/" + std::to_string(process / 2) + "/";
      const cpu::FileStore store(std::getenv(kFolder), prefix);
      expect(r.create({rank}, 2, store.table()) == BP_OK, r.text());
      r.set(0, {static_cast<float>(rank)});
      bp_collective_call call = r.call(0, BP_COLLECTIVE_BROADCAST, 0, 1);
      run_calls(r, {call}, 0, "broadcast");
      expect_equal(r.values(0)[0], 0.0f, "what rank 0 sent");
      r.destroy_last();
    }
  });
}

}  // namespace
}  // namespace bp::mpi
