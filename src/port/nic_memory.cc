#include "port/nic_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace sluice {

Result<NicMemory> NicMemory::create(uint64_t bytes) {
  constexpr uint64_t kPage = 4096;
  NicMemory memory;
  memory.bytes_ = (bytes + kPage + kPage - 1) / kPage * kPage;
  memory.file_ = Fd(::memfd_create("sluice-nic", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.file_) return fail("memfd_create: {}", errno_text(errno));
  if (::ftruncate(memory.file_.get(), static_cast<off_t>(memory.bytes_)) != 0)
    return fail("{} MiB of memory for the rings: {}", memory.bytes_ >> 20, errno_text(errno));
  // A file that became shorter would be a SIGBUS of ours.
  if (::fcntl(memory.file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail("sealing the memory of the rings: {}", errno_text(errno));
  void* begin =
      ::mmap(nullptr, memory.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file_.get(), 0);
  if (begin == MAP_FAILED) return fail("mapping the rings: {}", errno_text(errno));
  memory.begin_ = static_cast<uint8_t*>(begin);
  return memory;
}

NicMemory& NicMemory::operator=(NicMemory&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
  std::swap(next_, other.next_);
  return *this;
}

NicMemory::~NicMemory() {
  if (begin_ != nullptr) ::munmap(begin_, bytes_);
}

GuestAddr NicMemory::take(uint64_t bytes, uint64_t alignment) {
  const uint64_t begin = (next_ + alignment - 1) / alignment * alignment;
  SLUICE_ASSERT(begin <= bytes_ && bytes <= bytes_ - begin);
  next_ = begin + bytes;
  return GuestAddr{begin};
}

}  // namespace sluice
