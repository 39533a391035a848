#include <braid/fabric.h>

int main() {
  braid::Fabric::Options options;
  options.addresses = {"127.0.0.1"};
  return braid::Fabric::open(options).ok() ? 0 : 1;
}
