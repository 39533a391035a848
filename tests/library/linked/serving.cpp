#include <braid/serving.h>

int main() { return braid::SchedulingPolicy::open("paper").ok() ? 0 : 1; }
