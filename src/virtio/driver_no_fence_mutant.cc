// The stress of both driver sides once more, in a binary whose driver side has no store-to-load
// fence: here it has to stall. The tests are in the file below.
#include "virtio/driver_stress_test.cc"
