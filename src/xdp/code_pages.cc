#include "xdp/code_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace sluice {

Result<CodePages> CodePages::from(std::span<const uint8_t> code) {
  CodePages pages;
  void* memory =
      mmap(nullptr, code.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return fail("no memory for {} bytes of code: {}", code.size(), errno_text(errno));
  pages.memory_ = memory;
  pages.bytes_ = code.size();
  std::memcpy(memory, code.data(), code.size());
  if (mprotect(memory, code.size(), PROT_READ | PROT_EXEC) != 0)
    return fail("code cannot be made executable: {}: a policy of this machine forbids it",
                errno_text(errno));
  return pages;
}

CodePages::~CodePages() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

}  // namespace sluice
