// Cases for what handles leave behind that the host has ended. Those of handles with helpers of
// their own, such as imports, are beside the other cases of these.
#include "backplane/ops.h"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/graph_fixtures.hpp"
#include "conformance/cases/fixtures/leftovers.hpp"
#include "conformance/cases/fixtures/program_fixtures.hpp"
#include "conformance/cases/fixtures/rank_group.hpp"
#include "conformance/cases/fixtures/semaphores.hpp"

namespace bp::conformance {
namespace {

void ended_streams_leave_nothing(Context& t) {
  const OwnedBuffer buffer = make_buffer(t, 64);
  const bp_buffer_ref whole = range(buffer, 0, 64);
  expect_nothing_left(t, "streams", [&] {
    const OwnedStream stream = make_stream(t);
    fill(t, stream.get(), whole, 1);
    finish(t, stream.get());
  });
}

void ended_events_leave_nothing(Context& t) {
  const OwnedStream stream = make_stream(t);
  expect_nothing_left(t, "events", [&] {
    const OwnedEvent event = make_event(t), unused = make_event(t);
    record(t, event, stream.get());
    finish(t, stream.get());
  });
}

void ended_signalled_events_leave_nothing(Context& t) {
  const bp_event_ops& events = *t.target().events;
  expect_nothing_left(t, "events of the host", [&] {
    const OwnedEvent event = make_event(t, BP_EVENT_HOST_SIGNAL);
    t.require_ok(events.signal(events.self, event.get(), BP_OK), "event.signal");
  });
}

void ended_semaphores_leave_nothing(Context& t) {
  expect_nothing_left(t, "semaphores", [&] {
    const OwnedSemaphore semaphore = make_semaphore(t);
    signal(t, semaphore, 1);
  });
}

void freed_buffers_leave_nothing(Context& t) {
  const bp_allocator_ops& m = *t.target().allocator;
  const OwnedStream stream = make_stream(t);
  expect_nothing_left(t, "buffers", [&] {
    OwnedBuffer at_once = make_buffer(t, 4096), behind = make_buffer(t, 4096);
    fill(t, stream.get(), range(behind, 0, 4096), 1);
    t.require_ok(m.deallocate(m.self, behind.release(), stream.get()), "deallocate on a stream");
    finish(t, stream.get());
  });
}

void ended_graphs_leave_nothing(Context& t) {
  graph_table(t);
  const CopySetting setting(t);
  expect_nothing_left(t, "graphs", [&] {
    const OwnedGraph graph = setting.copying(t);
    const OwnedInstance instance = instantiate(t, graph);
    replay(t, instance, setting.stream.get());
    finish(t, setting.stream.get());
  });
}

void released_executables_leave_nothing(Context& t) {
  compiler_table(t);
  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), y = maker.add_value(BP_VALUE_OUTPUT);
  maker.add_node(BP_OP_ADD, x, x, y);
  expect_nothing_left(t, "executables", [&] { compile_program(t, maker); });
}

void ended_groups_leave_nothing(Context& t) {
  expect_nothing_left(t, "groups of two ranks", [&] { const RankGroup group(t, 2); });
}

}  // namespace

void add_leftover_cases(std::vector<Case>& cases) {
  const std::vector<std::string> tags{"ENTRY-10"};
  add_api_cases(cases, "stream",
                {{"ended_streams_leave_nothing", tags, ended_streams_leave_nothing}});
  add_api_cases(
      cases, "event",
      {{"ended_events_leave_nothing", tags, ended_events_leave_nothing},
       {"ended_signalled_events_leave_nothing", tags, ended_signalled_events_leave_nothing}});
  add_api_cases(cases, "semaphore",
                {{"ended_semaphores_leave_nothing", tags, ended_semaphores_leave_nothing}});
  add_api_cases(cases, "memory",
                {{"freed_buffers_leave_nothing", tags, freed_buffers_leave_nothing}});
  add_api_cases(cases, "graph", {{"ended_graphs_leave_nothing", tags, ended_graphs_leave_nothing}});
  add_api_cases(cases, "compiler",
                {{"released_executables_leave_nothing", tags, released_executables_leave_nothing}});
  add_api_cases(cases, "collective",
                {{"ended_groups_leave_nothing", tags, ended_groups_leave_nothing}});
}

}  // namespace bp::conformance
