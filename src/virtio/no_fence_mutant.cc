// The stress test once more, in a binary whose device side has no store-to-load fence: here it has
// to stall. The tests are in the file below, so that both binaries run the same stress.
#include "virtio/suppression_stress_test.cc"
