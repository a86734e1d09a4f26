// How each kind of map is made; only map.cc calls these, after it has checked the shape.
#pragma once

#include "xdp/map.h"

namespace sluice {

using MapResult = Result<std::unique_ptr<XdpMap>>;
using MapMaker = MapResult (*)(const MapShape& shape, const MapOptions& options);

MapResult make_array(const MapShape& shape, const MapOptions& options);
MapResult make_per_cpu_array(const MapShape& shape, const MapOptions& options);
MapResult make_hash(const MapShape& shape, const MapOptions& options);
MapResult make_redirect_slots(const MapShape& shape, const MapOptions& options);
MapResult make_device_hash(const MapShape& shape, const MapOptions& options);
MapResult make_program_array(const MapShape& shape, const MapOptions& options);
MapResult make_array_of_maps(const MapShape& shape, const MapOptions& options);
MapResult make_hash_of_maps(const MapShape& shape, const MapOptions& options);
MapResult make_lpm_trie(const MapShape& shape, const MapOptions& options);
MapResult make_record_ring(const MapShape& shape, const MapOptions& options);
MapResult make_queue(const MapShape& shape, const MapOptions& options);
MapResult make_bloom_filter(const MapShape& shape, const MapOptions& options);

}  // namespace sluice
