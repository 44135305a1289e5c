// Cases for api/include/backplane/collective.h: calls that are refused, late, aborted or ended.
#include <thread>
#include <utility>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kCount = 37;

bp_collective_call sum_in_place(RankGroup& g, uint32_t rank) {
  bp_collective_call call =
      g.call(rank, BP_COLLECTIVE_ALL_REDUCE, BP_F32, kCount, BP_REDUCTION_SUM);
  call.send = call.receive = g.allocate(rank, kCount * 4);
  g.store(rank, call.send, BP_F32, placed);
  return call;
}

void refused_call_keeps_its_whole_group_back(Context& t) {
  RankGroup g(t, 2);
  std::vector<bp_collective_call> calls{sum_in_place(g, 0), sum_in_place(g, 1)};
  calls[1].send.byte_offset = uint64_t{1} << 40;
  const bp_buffer_ref untouched = calls[0].receive;
  t.expect_refused(g.submit(calls), BP_INVALID_ARGUMENT, "a range that leaves its buffer");
  g.finish_all();
  compare(
      t, g.load(0, untouched, BP_F32), [](uint64_t i) { return placed(0, i); },
      "the other rank's memory");
  t.expect_eq(g.ops().status(g.ops().self, g.group(0)), BP_OK, "status after a refusal");
  calls[1].send = calls[1].receive;
  t.expect_eq(g.submit(calls), BP_OK, "the calls, mended");
  g.finish_all();
}

void short_stride_is_refused(Context& t) {
  RankGroup g(t, 2);
  const std::vector<bp_collective_call> calls{sum_in_place(g, 0), sum_in_place(g, 1)};
  const bp_process_group_ops& ops = g.ops();
  for (const uint64_t stride_bytes : {uint64_t{0}, uint64_t{sizeof(bp_collective_call) - 8}}) {
    t.expect_refused(ops.submit(ops.self, 2, calls.data(), stride_bytes), BP_INVALID_ARGUMENT,
                     "a stride of " + std::to_string(stride_bytes));
  }
  g.finish_all();
  compare(
      t, g.load(0, calls[0].receive, BP_F32), [](uint64_t i) { return placed(0, i); },
      "the memory of rank 0");
}

void late_rank_ends_the_others_in_time(Context& t) {
  RankGroup g(t, 2, 100'000'000);
  const std::vector<bp_collective_call> alone{sum_in_place(g, 0)};
  t.require_ok(g.submit(alone), "submit of rank 0");
  const bp_status status = g.outcome(0);
  t.expect(status == BP_TIMEOUT || status == BP_ABORTED,
           "the stream of the rank that waited ends with BP_TIMEOUT or BP_ABORTED, not " +
               std::to_string(status));
  t.expect(g.ops().status(g.ops().self, g.group(0)) != BP_OK, "status says that the group ended");
}

void ranks_that_disagree_are_told(Context& t) {
  RankGroup g(t, 2, 500'000'000);
  std::vector<bp_collective_call> calls{sum_in_place(g, 0), sum_in_place(g, 1)};
  calls[1].reduction = BP_REDUCTION_MAX;
  if (g.submit(calls) == BP_OK) {
    t.expect(g.outcome(0) != BP_OK || g.outcome(1) != BP_OK,
             "a sum on one rank and a maximum on the other is a failure of a stream");
  }
}

void failed_stream_keeps_its_whole_group_back(Context& t) {
  RankGroup g(t, 2);
  std::vector<bp_collective_call> calls{sum_in_place(g, 0), sum_in_place(g, 1)};
  g.finish_all();  // The data have arrived, which another stream does not wait for.
  const OwnedStream failed = make_failed_stream(t, BP_ABORTED);
  bp_stream* const healthy = std::exchange(calls[0].stream, failed.get());
  t.expect_refused(g.submit(calls), BP_STREAM_FAILED, "a call on a failed stream");
  g.finish_all();
  compare(
      t, g.load(1, calls[1].receive, BP_F32), [](uint64_t i) { return placed(1, i); },
      "the other rank's memory");
  calls[0].stream = healthy;
  t.expect_eq(g.submit(calls), BP_OK, "the calls, mended");
  g.finish_all();
}

void abort_ends_waiting_work_and_a_new_group_works(Context& t) {
  {
    RankGroup g(t, 2);
    t.require_ok(g.submit({sum_in_place(g, 0)}), "submit of rank 0");
    bp_status seen = BP_OK;
    std::thread waiter([&] { seen = g.outcome(0); });
    t.expect_eq(g.ops().abort(g.ops().self, g.group(0)), BP_OK, "abort beside a waiting thread");
    waiter.join();
    t.expect_eq(seen, BP_ABORTED, "the stream of the waiting rank");
    t.expect_refused(g.ops().status(g.ops().self, g.group(1)), BP_ABORTED, "status");
    t.expect_refused(g.submit({sum_in_place(g, 1)}), BP_ABORTED, "a later call");
  }
  RankGroup again(t, 2);
  t.require_ok(again.submit({sum_in_place(again, 0), sum_in_place(again, 1)}), "submit");
  again.finish_all();
}

void destroyed_group_completes_what_was_submitted(Context& t) {
  RankGroup g(t, 2);
  std::vector<bp_collective_call> calls{sum_in_place(g, 0), sum_in_place(g, 1)};
  t.require_ok(g.submit(calls), "submit");
  t.expect_eq(g.ops().destroy(g.ops().self, nullptr), BP_OK, "destroy(NULL)");
  g.finish_all();
  compare(
      t, g.load(0, calls[0].receive, BP_F32),
      [&](uint64_t i) { return placed(0, i) + placed(1, i); }, "rank 0");
}

void bad_descs_make_no_group(Context& t) {
  const RankGroup g(t, 1);
  bp_device* const devices[] = {g.device(0), g.device(0)};
  const uint32_t ranks[] = {0, 5}, twice[] = {0, 0};
  bp_process_group_desc desc{.struct_size = sizeof(desc),
                             .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
                             .next = nullptr,
                             .devices = devices,
                             .ranks = ranks,
                             .local_count = 2,
                             .world_size = 2,
                             .store = nullptr,
                             .key_prefix = "conformance/",
                             .timeout_ns = kTimeoutNs};
  bp_process_group* out[] = {t.sentinel<bp_process_group>(), t.sentinel<bp_process_group>()};
  const auto refused = [&](const char* what) {
    t.expect_refused(g.ops().create(g.ops().self, &desc, out), BP_INVALID_ARGUMENT, what);
    t.expect(out[0] == t.sentinel<bp_process_group>() && out[1] == out[0],
             std::string(what) + ": out_groups are left alone");
  };
  refused("a rank that is not below world_size");
  desc.ranks = twice;
  refused("a rank that occurs twice");
  desc.ranks = nullptr;
  refused("ranks is NULL");
  t.expect_refused(g.ops().create(g.ops().self, nullptr, out), BP_INVALID_ARGUMENT, "desc is NULL");
}

// A desc of a group that has only the device of the case.
struct Single {
  explicit Single(Context& t) : device(t.target().device) {
    desc.struct_size = sizeof(desc);
    desc.struct_type = BP_STRUCT_PROCESS_GROUP_DESC;
    desc.devices = &device;
    desc.ranks = &rank;
    desc.local_count = desc.world_size = 1;
    desc.key_prefix = "conformance/";
    desc.timeout_ns = kTimeoutNs;
  }
  Single(const Single&) = delete;

  bp_device* device;
  uint32_t rank = 0;
  bp_process_group_desc desc{};
};

// Requires that create() makes no group of this desc, and returns the text of the refusal.
std::string expect_no_group(Context& t, const bp_process_group_ops& ops,
                            const bp_process_group_desc& desc, bp_status want,
                            const std::string& what) {
  bp_process_group* group = t.sentinel<bp_process_group>();
  const bp_status status = ops.create(ops.self, &desc, &group);
  const std::string text = bp_error_text();
  t.expect_refused(status, want, what);
  if (status == BP_OK) {
    static_cast<void>(ops.destroy(ops.self, group));
  } else {
    t.expect_eq(group, t.sentinel<bp_process_group>(), what + ": out_groups");
  }
  return text;
}

void each_table_makes_the_groups_that_name_it(Context& t) {
  static_cast<void>(require_groups(t));
  for (const bp_process_group_ops* const table : t.process_groups()) {
    const bp_process_group_ops& ops = *table;
    Single alone(t);
    for (const char* name : {static_cast<const char*>(nullptr), "", ops.name}) {
      alone.desc.table_name = name;
      bp_process_group* group = nullptr;
      t.require_ok(ops.create(ops.self, &alone.desc, &group),
                   std::string("create of ") + ops.name + " for " +
                       (name == nullptr ? "NULL" : "\"" + std::string(name) + "\""));
      t.expect_eq(ops.destroy(ops.self, group), BP_OK, "destroy");
    }
    const std::string other = std::string(ops.name) + "_of_nobody";
    alone.desc.table_name = other.c_str();
    expect_no_group(t, ops, alone.desc, BP_NOT_FOUND, "a table_name of another table");
  }
}

void options_that_a_table_does_not_have_are_not_found(Context& t) {
  static_cast<void>(require_groups(t));
  const bp_option unknown{"conformance_no_such_option", "1"}, bare{nullptr, nullptr};
  for (const bp_process_group_ops* const table : t.process_groups()) {
    const bp_process_group_ops& ops = *table;
    Single alone(t);
    alone.desc.option_count = 1;
    expect_no_group(t, ops, alone.desc, BP_INVALID_ARGUMENT, "options is NULL");
    alone.desc.options = &bare;
    expect_no_group(t, ops, alone.desc, BP_INVALID_ARGUMENT, "an option without a key");
    alone.desc.options = &unknown;
    const std::string text =
        expect_no_group(t, ops, alone.desc, BP_NOT_FOUND, "an option that nobody has");
    t.expect(text.find(unknown.key) != std::string::npos, "the text names the option");
  }
}

void unknown_calls_are_unsupported(Context& t) {
  RankGroup g(t, 1);
  const struct {
    const char* what;
    bp_collective_kind kind;
    bp_reduction reduction;
    bp_dtype dtype;
  } rows[] = {{"kind 0", 0, 0, BP_F32},
              {"a kind that no header has", 9999, 0, BP_F32},
              {"no reduction", BP_COLLECTIVE_ALL_REDUCE, 0, BP_F32},
              {"a reduction that no header has", BP_COLLECTIVE_ALL_REDUCE, 9999, BP_F32},
              {"a dtype that no header has", BP_COLLECTIVE_BROADCAST, 0, 9999}};
  const bp_buffer_ref memory = g.allocate(0, kCount * 4);
  for (const auto& row : rows) {
    const std::string what = row.what;
    t.expect_refused(g.ops().supports(g.ops().self, g.group(0), row.kind, row.reduction, row.dtype),
                     BP_UNSUPPORTED, "supports: " + what);
    bp_collective_call call = g.call(0, row.kind, row.dtype, kCount, row.reduction);
    call.send = call.receive = memory;
    t.expect_refused(g.submit({call}), BP_UNSUPPORTED, "submit: " + what);
  }
  g.finish_all();
  t.expect_eq(g.ops().status(g.ops().self, g.group(0)), BP_OK, "status");
}

void call_without_its_peer_is_refused(Context& t) {
  RankGroup g(t, 1);
  const bp_buffer_ref memory = g.allocate(0, kCount * 4);
  for (const bp_collective_kind kind : {BP_COLLECTIVE_SEND, BP_COLLECTIVE_RECEIVE}) {
    for (const uint32_t peer : {g.size(), UINT32_MAX}) {
      bp_collective_call call = g.call(0, kind, BP_F32, kCount, 0, peer);
      call.send = call.receive = memory;
      t.expect_refused(g.submit({call}), BP_INVALID_ARGUMENT, "a peer that is no rank");
    }
  }
}

}  // namespace

void add_collective_failure_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "collective",
      {
          {"refused_call_keeps_its_whole_group_back",
           {"COLLECTIVE-8"},
           refused_call_keeps_its_whole_group_back},
          {"short_stride_is_refused", {"COLLECTIVE-12"}, short_stride_is_refused},
          {"late_rank_ends_the_others_in_time",
           {"COLLECTIVE-3"},
           late_rank_ends_the_others_in_time},
          {"ranks_that_disagree_are_told", {"COLLECTIVE-1"}, ranks_that_disagree_are_told},
          {"failed_stream_keeps_its_whole_group_back",
           {"STREAM-8"},
           failed_stream_keeps_its_whole_group_back},
          {"abort_ends_waiting_work_and_a_new_group_works",
           {"COLLECTIVE-10", "COLLECTIVE-2"},
           abort_ends_waiting_work_and_a_new_group_works},
          {"destroyed_group_completes_what_was_submitted",
           {"COLLECTIVE-7"},
           destroyed_group_completes_what_was_submitted},
          {"each_table_makes_the_groups_that_name_it",
           {"COLLECTIVE-14"},
           each_table_makes_the_groups_that_name_it},
          {"options_that_a_table_does_not_have_are_not_found",
           {"COLLECTIVE-15"},
           options_that_a_table_does_not_have_are_not_found},
          {"unknown_calls_are_unsupported", {"COLLECTIVE-16"}, unknown_calls_are_unsupported},
          {"call_without_its_peer_is_refused", {"COLLECTIVE-1"}, call_without_its_peer_is_refused},
          {"bad_descs_make_no_group",
           {"COLLECTIVE-6", "ERROR-2", "ERROR-3"},
           bad_descs_make_no_group},
      });
}

}  // namespace bp::conformance
