// XdpProgram: one program, checked and ready to run on frames or to be the target of a tail call.
//
// It owns the image and, if compiled, the machine code. It does not own its maps: they must outlive
// it. It never changes after its creation, so any number of workers run it at once (xdp_run.h).
//
//   auto program = XdpProgram::create({instructions, maps}, {.name = "filter"});
//   if (!program) return fail(program.error());
//   run_batch(**program, batch, place, verdicts);
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "xdp/compiler.h"
#include "xdp/helper_table.h"
#include "xdp/map_ref.h"
#include "xdp/program_image.h"

namespace sluice {

// Every helper that we offer.
const HelperTable& standard_helpers();

class XdpProgram final : public TailTarget {
 public:
  enum class Engine : uint8_t {
    compiled,     // machine code; only for what the kernel's verifier has passed
    interpreted,  // only for that, too
    checked,      // for what nobody has verified: slower, each access checked
  };
  // The faster of those for verified programs.
  static constexpr Engine fastest_engine() {
#ifdef __x86_64__
    return Engine::compiled;
#else
    return Engine::interpreted;
#endif
  }

  struct Options {
    Engine engine = fastest_engine();
    std::string name{};                    // for messages
    std::array<uint8_t, 8> tag{};          // the kernel's digest of the instructions
    uint32_t id = 0;                       // what a prog array says of it
    const HelperTable* helpers = nullptr;  // null: standard_helpers()
  };
  static Result<std::unique_ptr<XdpProgram>> create(const ImageSource& source,
                                                    const Options& options);
  XdpProgram(const XdpProgram&) = delete;
  XdpProgram& operator=(const XdpProgram&) = delete;

  Engine engine() const { return options_.engine; }
  const std::string& name() const { return options_.name; }
  const std::array<uint8_t, 8>& tag() const { return options_.tag; }
  uint32_t id() const { return options_.id; }
  const ProgramImage& program_image() const { return image_; }
  HelperFunction entry() const { return compiled_.entry; }  // null unless compiled
  size_t code_bytes() const { return compiled_.pages.bytes(); }

 private:
  XdpProgram(ProgramImage program_image, const Options& options)
      : image_(std::move(program_image)), options_(options) {}

  const ProgramImage image_;  // machine code points into it
  const Options options_;
  CompiledProgram compiled_;
};

}  // namespace sluice
