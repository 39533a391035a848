#include <braid/transfer.h>

int main() {
  braid::Transfer::Options options;
  options.addresses = {"127.0.0.1"};
  return braid::Transfer::open(options).ok() ? 0 : 1;
}
