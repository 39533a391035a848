// A library with a function that is named like one of the driver's.
extern "C" __attribute__((visibility("default"))) int cuMemcpy() { return 4711; }
