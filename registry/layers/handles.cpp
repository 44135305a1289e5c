#include "registry/layers/handles.hpp"

#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

// The rule about the end of a kind, and the rule about whose handles a call takes.
struct KindRules {
  const char* noun;
  const char* ended;
  const char* foreign;
};
constexpr KindRules kRules[] = {{"buffer", "MEMORY-5", "MEMORY-1"},
                                {"stream", "STREAM-11", "STREAM-2"},
                                {"event", "EVENT-3", "EVENT-2"},
                                {"semaphore", "SEMAPHORE-9", "SEMAPHORE-2"},
                                {"plan", "PLAN-4", "PLAN-1"},
                                {"graph", "GRAPH-10", "GRAPH-5"},
                                {"graph instance", "GRAPH-10", "GRAPH-5"},
                                {"process group", "COLLECTIVE-7", "COLLECTIVE-6"}};

const KindRules& rules(HandleKind kind) { return kRules[static_cast<size_t>(kind)]; }

}  // namespace

void Handles::add(HandleKind kind, const void* handle, const Handle& facts) {
  alive_[{kind, handle}] = facts;
  lost_.erase({kind, handle});
  ended_.erase({kind, handle});
}

Handle* Handles::find(HandleKind kind, const void* handle) {
  const auto found = alive_.find({kind, handle});
  return found == alive_.end() ? nullptr : &found->second;
}

void Handles::end(HandleKind kind, const void* handle, const char* how, const Site& site) {
  const Key key{kind, handle};
  alive_.erase(key);
  lost_.erase(key);
  ended_.insert_or_assign(key, End{how, site, ++end_count_});
  ended_order_.emplace_back(key, end_count_);
  if (ended_order_.size() <= kMostEnded) return;
  // The same address may have ended again since, and that end is still remembered.
  const auto& [oldest, number] = ended_order_.front();
  const auto found = ended_.find(oldest);
  if (found != ended_.end() && found->second.number == number) ended_.erase(found);
  ended_order_.pop_front();
}

void Handles::lose_all(bp_device* device) {
  std::erase_if(alive_, [&](const auto& entry) {
    const auto& [key, handle] = entry;
    if (handle.device != device || handle.is_lent) return false;
    lost_.insert(key);
    return true;
  });
}

std::string Handles::defect(HandleKind kind, const void* handle) const {
  const std::string name = std::string(rules(kind).noun) + " " + words(handle);
  const auto found = ended_.find({kind, handle});
  if (found == ended_.end()) {
    return std::string("[") + rules(kind).foreign + "] " + name + " is not of this backend";
  }
  return std::string("[") + rules(kind).ended + "] " + name + " was ended before, by " +
         found->second.how + " called from " + found->second.site.words();
}

}  // namespace bp::layers
