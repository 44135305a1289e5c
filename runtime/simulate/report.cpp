#include "runtime/simulate/report.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/simulate/stage_program.hpp"
#include "runtime/simulate/steps.hpp"

namespace bp::simulate {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const char* format, double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value, unit);
  return text;
}

std::string percent(double share) { return text_of("%.1f %%%s", share * 100, ""); }

void add_line(std::string& table, const char* name, const std::string& value) {
  char line[128];
  std::snprintf(line, sizeof(line), "%-28s %s\n", name, value.c_str());
  table += line;
}

Json json_of_memory(const MemoryUse& memory) {
  return {{"parameters", memory.parameters},   {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},     {"gathered", memory.gathered},
          {"activations", memory.activations}, {"total", memory.total()}};
}

// The operations of a step that the model needs: recomputing does not count.
double operations_of(const Job& job, const Layout& layout) {
  Layout whole = layout;
  whole.tensor = 1;
  const double layer = attention_of(job, whole).operations + mlp_of(job, whole).operations;
  const double tokens = double{1} * whole.micro_batch * job.model.context;
  const double head = 2 * tokens * job.model.width * job.model.vocabulary;
  return 3 * (layer * job.model.layers + head) * job.batch / whole.micro_batch;
}

}  // namespace

double Report::overlap() const { return communication_s > 0 ? 1 - exposed_s / communication_s : 1; }

Report report_of(const Schedule& schedule, const Timeline& timeline) {
  Report report{.step_s = timeline.step_seconds};
  const std::vector<RankTimes> times = times_of(schedule, timeline);
  const auto count = static_cast<double>(times.size());
  for (const RankTimes& each : times) {
    report.compute_s += each.compute_s / count;
    report.communication_s += each.communication_s / count;
    report.exposed_s += each.exposed_s / count;
    report.idle_s += each.idle_s / count;
  }
  report.ranks = report.simulated_ranks = static_cast<uint32_t>(times.size());
  return report;
}

Report report_of_step(const Job& job, const Layout& layout, const Network& network,
                      Schedule* schedule, Timeline* timeline) {
  const Ranks ranks = ranks_for(network);
  Schedule made = make_step(job, layout, network, ranks);
  Timeline took = simulate(made, network);
  Report report = report_of(made, took);
  report.ranks = layout.ranks();
  report.memory = largest_memory(job, layout);
  report.data_overlap = hidden_share(made, took, {kGatherAxis, kReduceAxis});
  const double p = layout.pipe, m = micro_batches_of(job, layout);
  report.bubble_formula = (p - 1) / (layout.stages_per_rank * m + p - 1);
  report.utilization =
      operations_of(job, layout) / (report.ranks * job.device.flops * report.step_s);
  Layout free = layout;
  free.data_is_free = true;
  report.data_efficiency =
      simulate(make_step(job, free, network, ranks), network).step_seconds / report.step_s;
  if (schedule != nullptr) *schedule = std::move(made);
  if (timeline != nullptr) *timeline = std::move(took);
  return report;
}

std::string seconds_text(double seconds) {
  if (seconds >= 1) return text_of("%.3f %s", seconds, "s");
  if (seconds >= 1e-3) return text_of("%.3f %s", seconds * 1e3, "ms");
  return text_of("%.3f %s", seconds * 1e6, "us");
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e12) return text_of("%.2f %s", bytes / 1e12, "TB");
  if (bytes >= 1e9) return text_of("%.2f %s", bytes / 1e9, "GB");
  if (bytes >= 1e6) return text_of("%.2f %s", bytes / 1e6, "MB");
  return text_of("%.0f %s", bytes, "B");
}

std::string table_of(const Report& r) {
  std::string table;
  add_line(table, "ranks",
           std::to_string(r.ranks) + ", of which " + std::to_string(r.simulated_ranks) +
               " are simulated");
  add_line(table, "step", seconds_text(r.step_s));
  if (r.measured_s) {
    add_line(table, "  measured",
             seconds_text(*r.measured_s) + ", the simulated step is " +
                 percent(r.step_s / *r.measured_s) + " of it");
  }
  add_line(table, "  computing", seconds_text(r.compute_s));
  add_line(table, "  exposed communication", seconds_text(r.exposed_s));
  add_line(table, "  waiting for other ranks", seconds_text(r.idle_s));
  add_line(table, "communication", seconds_text(r.communication_s));
  for (const CallSum& sum : r.calls) {
    add_line(table, ("  " + sum.kind).c_str(),
             text_of("%.1f%s", sum.count, " calls of all ranks, ") + bytes_text(sum.bytes));
  }
  add_line(table, "overlap", percent(r.overlap()) + " of communication is hidden");
  if (r.data_overlap) {
    add_line(table, "  of data-parallel calls", percent(*r.data_overlap) + " is hidden");
  }
  if (r.data_efficiency) add_line(table, "data-parallel efficiency", percent(*r.data_efficiency));
  add_line(table, "bubble",
           percent(r.bubble()) + " of the step" +
               (r.bubble_formula ? ", by the formula " + percent(*r.bubble_formula) : ""));
  if (r.utilization) add_line(table, "utilization of the device", percent(*r.utilization));
  if (!r.memory) return table;
  const MemoryUse& memory = *r.memory;
  add_line(table, "memory of a rank", bytes_text(memory.total()));
  add_line(table, "  parameters", bytes_text(memory.parameters));
  add_line(table, "  gradients", bytes_text(memory.gradients));
  add_line(table, "  state of the optimizer", bytes_text(memory.optimizer));
  add_line(table, "  gathered units", bytes_text(memory.gathered));
  add_line(table, "  activations", bytes_text(memory.activations));
  return table;
}

std::string json_of(const Report& r) {
  Json json{{"ranks", r.ranks},
            {"simulated_ranks", r.simulated_ranks},
            {"step_s", r.step_s},
            {"compute_s", r.compute_s},
            {"communication_s", r.communication_s},
            {"exposed_s", r.exposed_s},
            {"idle_s", r.idle_s},
            {"overlap", r.overlap()},
            {"bubble", r.bubble()}};
  if (r.measured_s) json["measured_s"] = *r.measured_s;
  for (const CallSum& sum : r.calls) {
    json["calls"][sum.kind] = {{"count", sum.count}, {"bytes", sum.bytes}};
  }
  if (r.data_efficiency) json["data_efficiency"] = *r.data_efficiency;
  if (r.data_overlap) json["data_overlap"] = *r.data_overlap;
  if (r.bubble_formula) json["bubble_formula"] = *r.bubble_formula;
  if (r.utilization) json["utilization"] = *r.utilization;
  if (r.memory) json["memory_bytes"] = json_of_memory(*r.memory);
  return json.dump(2) + "\n";
}

std::string trace_of(const Schedule& schedule, const Timeline& timeline) {
  Json events = Json::array();
  const auto name = [&](const char* what, uint32_t rank, size_t stream, const std::string& text) {
    events.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", stream}, {"args", {{"name", text}}}});
  };
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    const uint32_t rank = schedule.ranks[r].rank;
    name("process_name", rank, 0, "rank " + std::to_string(rank));
    for (size_t i = 0; i < schedule.streams.size(); ++i) {
      name("thread_name", rank, i, schedule.streams[i]);
    }
    const Program& program = schedule.programs[schedule.ranks[r].program];
    for (size_t i = 0; i < program.operations.size(); ++i) {
      const Operation& operation = program.operations[i];
      const Interval& interval = timeline.ranks[r][i];
      Json event{{"ph", "X"},
                 {"name", name_of(schedule, operation)},
                 {"pid", rank},
                 {"tid", operation.stream},
                 {"ts", interval.begin * 1e6},
                 {"dur", (interval.end - interval.begin) * 1e6}};
      if (operation.kind != OperationKind::kCompute) {
        event["args"] = {{"call", call_name(operation.call)}, {"bytes", operation.bytes}};
      }
      events.push_back(std::move(event));
    }
  }
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() + "\n";
}

}  // namespace bp::simulate
