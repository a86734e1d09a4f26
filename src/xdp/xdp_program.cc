#include "xdp/xdp_program.h"

namespace sluice {

const HelperTable& standard_helpers() {
  static const HelperTable table{packet_helpers(), map_helpers()};
  return table;
}

Result<std::unique_ptr<XdpProgram>> XdpProgram::create(const ImageSource& source,
                                                       const Options& options) {
  const HelperTable& helpers = options.helpers != nullptr ? *options.helpers : standard_helpers();
  Result<ProgramImage> checked = check_image(source, helpers);
  if (!checked) return fail(checked.error());
  std::unique_ptr<XdpProgram> program(new XdpProgram(std::move(*checked), options));
  program->image = &program->image_;
  if (options.engine == Engine::compiled) {
    Result<CompiledProgram> compiled = compile(program->image_);
    if (!compiled) return fail(compiled.error());
    program->compiled_ = std::move(*compiled);
    program->jit_entry = reinterpret_cast<const void*>(program->compiled_.entry);
  }
  return program;
}

}  // namespace sluice
