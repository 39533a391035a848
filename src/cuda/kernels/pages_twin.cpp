#include "cuda/kernels/pages_twin.h"

#include "cuda/kernels/pages.h"

namespace braid::cuda {
namespace {

class PagesBlock final : public TwinBlock {
 public:
  PagesBlock(const PagesArgs& args, uint32_t block_index) : args_(args), number_(block_index) {}

  TwinStep step(TwinMemory& memory) override {
    if (number_ >= args_.page_count) return {.kind = TwinStep::Kind::kExit};
    Page page;
    memory.read(args_.pages + number_ * sizeof(Page), &page, sizeof page);
    number_ += args_.block_count;
    return {.kind = TwinStep::Kind::kMove,
            .source = page.source,
            .destination = page.destination,
            .size_bytes = page.size_bytes};
  }

 private:
  const PagesArgs args_;
  uint32_t number_;
};

}  // namespace

std::unique_ptr<TwinBlock> make_pages_block(const void* args, uint32_t block_index) {
  return std::make_unique<PagesBlock>(*static_cast<const PagesArgs*>(args), block_index);
}

}  // namespace braid::cuda
