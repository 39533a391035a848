#include "fabric/fake_provider/info.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace braid::fabric::fake {
namespace {

bool fits_endpoint(const fi_info& offer, const fi_ep_attr* wanted) {
  if (wanted == nullptr) return true;
  return (wanted->type == FI_EP_UNSPEC || wanted->type == offer.ep_attr->type) &&
         wanted->rx_ctx_cnt != FI_SHARED_CONTEXT &&
         wanted->max_msg_size <= offer.ep_attr->max_msg_size;
}

bool fits_domain(const fi_info& offer, const fi_domain_attr* wanted) {
  if (wanted == nullptr) return true;
  const bool has_name = wanted->name != nullptr && offer.domain_attr->name != nullptr;
  const bool takes_duties =
      wanted->mr_mode == FI_MR_UNSPEC || (offer.domain_attr->mr_mode & ~wanted->mr_mode) == 0;
  return takes_duties && wanted->cq_data_size <= offer.domain_attr->cq_data_size &&
         (!has_name || std::strcmp(wanted->name, offer.domain_attr->name) == 0);
}

bool fits_orders(const fi_info& offer, const fi_info& wanted) {
  return (wanted.tx_attr == nullptr ||
          ((wanted.tx_attr->msg_order & ~offer.tx_attr->msg_order) == 0 &&
           (wanted.tx_attr->op_flags & ~offer.tx_attr->op_flags) == 0 &&
           wanted.tx_attr->iov_limit <= offer.tx_attr->iov_limit &&
           wanted.tx_attr->rma_iov_limit <= offer.tx_attr->rma_iov_limit &&
           wanted.tx_attr->inject_size <= offer.tx_attr->inject_size)) &&
         (wanted.rx_attr == nullptr ||
          (wanted.rx_attr->msg_order & ~offer.rx_attr->msg_order) == 0);
}

void take_size(size_t& offered, size_t wanted) {
  if (wanted > 0) offered = std::min(offered, wanted);
}

}  // namespace

bool fits(const fi_info& offer, const fi_info* hints) {
  if (hints == nullptr) return true;
  const bool has_format = hints->addr_format != FI_FORMAT_UNSPEC;
  return (hints->caps & ~offer.caps) == 0 &&
         (!has_format || hints->addr_format == offer.addr_format ||
          (hints->addr_format == FI_SOCKADDR && offer.addr_format == FI_SOCKADDR_IN)) &&
         fits_endpoint(offer, hints->ep_attr) && fits_domain(offer, hints->domain_attr) &&
         fits_orders(offer, *hints);
}

void take_sizes(fi_info& offer, const fi_info* hints) {
  if (hints == nullptr) return;
  if (hints->tx_attr != nullptr) take_size(offer.tx_attr->size, hints->tx_attr->size);
  if (hints->rx_attr != nullptr) take_size(offer.rx_attr->size, hints->rx_attr->size);
  if (hints->caps != 0) offer.caps = hints->caps;
}

void* copy_of(const void* bytes, size_t size_bytes) {
  void* copy = std::calloc(1, size_bytes);
  std::memcpy(copy, bytes, size_bytes);
  return copy;
}

}  // namespace braid::fabric::fake
