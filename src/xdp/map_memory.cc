#include "xdp/map_memory.h"

#include <sys/mman.h>

#include <cerrno>

namespace sluice {

Result<MapMemory> MapMemory::create(size_t bytes, bool populate) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (populate ? MAP_POPULATE : MAP_NORESERVE);
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (address == MAP_FAILED) {
    return fail("no {} bytes of memory for a map ({}): make it smaller", bytes, errno_text(errno));
  }
  return adopt(address, bytes);
}

MapMemory::~MapMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace sluice
