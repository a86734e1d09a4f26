#include "control/stats_json.h"

#include <algorithm>
#include <fstream>

namespace sluice {
namespace {

using nlohmann::json;

// In the order of XdpVerdict.
constexpr const char* kVerdictNames[] = {"pass", "tx", "redirect", "drop", "aborted", "unknown"};
static_assert(std::size(kVerdictNames) == kXdpVerdictCount);

json queue_json(uint32_t index, std::string_view direction, const QueueCounters& counters) {
  json drops = json::object();
  for (size_t reason = 0; reason < kDropReasonCount; ++reason) {
    const uint64_t count = counters.drops[reason].get();
    if (count > 0) drops[std::string(kDropReasonNames[reason])] = count;
  }
  json verdicts = json::object();
  for (size_t verdict = 0; verdict < kXdpVerdictCount; ++verdict) {
    const uint64_t count = counters.verdicts[verdict].get();
    if (count > 0) verdicts[kVerdictNames[verdict]] = count;
  }
  json histogram = json::array();
  for (const Counter& bucket : counters.batch_histogram) histogram.push_back(bucket.get());
  return {{"queue", index},
          {"direction", direction},
          {"frames", counters.frames.get()},
          {"bytes", counters.bytes.get()},
          {"drops", std::move(drops)},
          {"xdp", std::move(verdicts)},
          {"batch_histogram", std::move(histogram)},
          {"kicks", counters.kicks.get()},
          {"notifications", counters.notifications.get()},
          {"notifications_suppressed", counters.notifications_suppressed.get()}};
}

// VmRSS of /proc/self/status; 0 when it cannot be read.
uint64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  std::string line;
  for (int i = 0; i < 256 && std::getline(status, line); ++i) {
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

}  // namespace

json stats_document() { return {{"version", SLUICE_VERSION}}; }

json stats_ports(std::span<Port* const> ports) {
  json all = json::array();
  for (Port* port : ports) {
    const auto [from, to] = port->direction_names();
    json queues = json::array();
    for (uint32_t i = 0; i < port->queue_count(); ++i) {
      const PortQueue& queue = port->queue(i);
      queues.push_back(queue_json(i, from, queue.received()));
      queues.push_back(queue_json(i, to, queue.transmitted()));
    }
    all.push_back({{"name", port->name()},
                   {"kind", port->kind()},
                   {"negotiated", port->negotiated()},
                   {"queues", std::move(queues)}});
  }
  return all;
}

json stats_workers(std::span<const WorkerFigures> workers) {
  json all = json::array();
  for (const WorkerFigures& worker : workers) {
    all.push_back({{"cpu", worker.cpu}, {"breaths", worker.breaths}, {"sleeps", worker.sleeps}});
  }
  return all;
}

json stats_memory(const MemoryFigures& memory) {
  return {{"rss_kib", resident_kib()},
          {"guest_regions_kib", memory.guest_regions_bytes / 1024},
          {"frame_pool_kib", memory.frame_pool_bytes / 1024}};
}

json stats_links(std::span<const LinkFigures> links) {
  json all = json::array();
  for (const LinkFigures& link : links) all.push_back({{"a", link.a}, {"b", link.b}});
  return all;
}

json ports_document(std::span<Port* const> ports, std::span<const LinkFigures> links) {
  json all = json::array();
  for (Port* port : ports) {
    json peer = nullptr;
    for (const LinkFigures& link : links) {
      if (link.a == port->name()) peer = link.b;
      if (link.b == port->name()) peer = link.a;
    }
    const std::vector<bool> active = port->active_queues();
    all.push_back({{"name", port->name()},
                   {"number", all.size() + 1},
                   {"kind", port->kind()},
                   {"queues", port->queue_count()},
                   {"active_queues", std::ranges::count(active, true)},
                   {"connected_to", std::move(peer)},
                   {"negotiated", port->negotiated()}});
  }
  json document = stats_document();
  document["ports"] = std::move(all);
  return document;
}

}  // namespace sluice
