// Parts of libfabric's tables of functions that this provider leaves out.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

namespace braid::fabric::fake {

/// Takes the type of whatever function it stands for.
template <typename Answer, typename... Arguments>
Answer unsupported(Arguments...) {
  return static_cast<Answer>(-FI_ENOSYS);
}

/// A libfabric object begins with its fid.
template <typename Object, typename Base>
Object& object_of(fid* handle) {
  return *static_cast<Object*>(reinterpret_cast<Base*>(handle));
}

}  // namespace braid::fabric::fake
