// The compiler: a checked image becomes machine code, one instruction after another, as the
// kernel's does it. x86-64 only; elsewhere compile() refuses and programs are interpreted.
//
// Only for images that the kernel's verifier has passed: the code checks nothing. A function of the
// program becomes a function of the machine's C calling convention, so that a helper (bpf_loop) can
// call it; a tail call leaves the frame of its function and jumps.
//
//   Result<CompiledProgram> program = compile(image);       // the image must outlive it
//   run_state.tail_calls = 0;
//   uint64_t verdict = program->entry(context, 0, 0, 0, 0);
#pragma once

#include "base/result.h"
#include "xdp/code_pages.h"
#include "xdp/program_image.h"

namespace sluice {

struct CompiledProgram {
  CodePages pages;
  HelperFunction entry = nullptr;
};

struct CompilerOptions {
  bool may_use_bmi2 = true;        // shifts; found out at run time
  bool may_inline_lookups = true;  // of arrays
};

Result<CompiledProgram> compile(const ProgramImage& image, const CompilerOptions& options = {});

}  // namespace sluice
