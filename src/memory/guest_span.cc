#include "memory/guest_span.h"

#include <algorithm>

namespace sluice {
namespace {

// Calls step(span, offset_in_span, done, bytes) for each run of the range; returns the bytes
// walked.
template <typename Span, typename Step>
size_t walk(std::span<Span> spans, size_t offset, size_t bytes, Step step) {
  size_t done = 0;
  for (auto& span : spans) {  // bounded: spans of one chain
    if (done == bytes) break;
    if (offset >= span.size()) {
      offset -= span.size();
      continue;
    }
    const size_t run = std::min(span.size() - offset, bytes - done);
    step(span, offset, done, run);
    done += run;
    offset = 0;
  }
  return done;
}

}  // namespace

size_t copy_out(std::span<const GuestSpan> spans, size_t offset, void* destination, size_t bytes) {
  auto* out = static_cast<uint8_t*>(destination);
  return walk(spans, offset, bytes, [&](const GuestSpan& span, size_t at, size_t done, size_t run) {
    span.copy_out(at, out + done, run);
  });
}

size_t copy_in(std::span<GuestSpan> spans, size_t offset, const void* source, size_t bytes) {
  const auto* in = static_cast<const uint8_t*>(source);
  return walk(spans, offset, bytes, [&](GuestSpan& span, size_t at, size_t done, size_t run) {
    span.copy_in(at, in + done, run);
  });
}

size_t total_bytes(std::span<const GuestSpan> spans) {
  size_t sum = 0;
  for (const GuestSpan& span : spans) sum += span.size();
  return sum;
}

}  // namespace sluice
