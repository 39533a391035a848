// A library with functions that are named like one of the driver's and one of libbraid's.
extern "C" __attribute__((visibility("default"))) int cuMemcpy() { return 4711; }
extern "C" __attribute__((visibility("default"))) int braid_open() { return 4712; }
