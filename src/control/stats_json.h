// The JSON that `sluice stats --json` and `sluice ports --json` print, made from ports and plain
// figures. docs/stats.md explains the keys; they are stable: keys may be added, none goes away.
//
//   json answer = stats_document();
//   answer["ports"] = stats_ports(ports);
//   answer["workers"] = stats_workers(workers);
//   answer["memory"] = stats_memory(memory);
//   answer["links"] = stats_links(links);
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "port/port.h"

namespace sluice {

struct WorkerFigures {
  int cpu = -1;  // -1: not pinned
  uint64_t breaths = 0;
  uint64_t sleeps = 0;
};

struct MemoryFigures {
  uint64_t guest_regions_bytes = 0;  // mappings of front ends' memory
  uint64_t frame_pool_bytes = 0;
};

struct LinkFigures {
  std::string a;
  std::string b;
};

// {"version": …}
nlohmann::json stats_document();
// Every queue of every port in both directions; of drops only reasons that happened.
nlohmann::json stats_ports(std::span<Port* const> ports);
nlohmann::json stats_workers(std::span<const WorkerFigures> workers);
// Adds the resident memory of this process.
nlohmann::json stats_memory(const MemoryFigures& memory);
nlohmann::json stats_links(std::span<const LinkFigures> links);

// {"version", "ports":[{"name","kind","queues":<pairs>,"active_queues":<pairs>,"connected_to",
// "negotiated"}]}: what there is, without figures.
nlohmann::json ports_document(std::span<Port* const> ports, std::span<const LinkFigures> links);

}  // namespace sluice
