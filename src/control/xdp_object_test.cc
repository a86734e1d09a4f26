#include "control/xdp_object.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(VerifierLog, IsShortenedToTheComplaintAndItsSourceLine) {
  EXPECT_EQ(shortened_verifier_log("reg type unsupported for arg#0 function f#5\n"
                                   "0: R1=ctx() R10=fp0\n"
                                   "; unsigned char *data = ctx->data; @ a.c:17\n"
                                   "0: (61) r1 = *(u32 *)(r1 +0)          ; R1_w=pkt(r=0)\n"
                                   "; return data[60]; @ a.c:18\n"
                                   "1: (71) r1 = *(u8 *)(r1 +60)\n"
                                   "invalid access to packet, off=60 size=1, R1(id=0,off=60,r=0)\n"
                                   "R1 offset is outside of the packet\n"
                                   "processed 2 insns (limit 1000000) max_states_per_insn 0\n"),
            "invalid access to packet, off=60 size=1, R1(id=0,off=60,r=0); R1 offset is outside of "
            "the packet (at: return data[60]; @ a.c:18)");
}

TEST(VerifierLog, StatesAreNoComplaints) {
  EXPECT_EQ(shortened_verifier_log("; for (;;) @ a.c:3\n"
                                   "5: (05) goto pc-1\n"
                                   "infinite loop detected at insn 5\n"
                                   "cur state: R1=scalar() R10=fp0\n"
                                   "old state: R1=scalar() R10=fp0\n"),
            "infinite loop detected at insn 5 (at: for (;;) @ a.c:3)");
}

TEST(VerifierLog, WithoutSourceLinesTheComplaintIsAlone) {
  EXPECT_EQ(shortened_verifier_log("0: (95) exit\nR0 !read_ok\nprocessed 1 insns\n"),
            "R0 !read_ok");
}

}  // namespace
}  // namespace sluice
