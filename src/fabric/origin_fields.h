// The bytes of an Origin: in messages of the fabric, and in what a process says of itself to
// transfers. Both have versions, and a new field needs one.
#pragma once

namespace braid::fabric {

/// `origin`: an Origin (wire.h). `archive`: base/byte_codec.h.
template <typename Archive, typename O>
void origin_fields(Archive& archive, O& origin) {
  for (auto& half : origin.boot) archive.number(half);
  archive.number(origin.pid_namespace);
  archive.number(origin.started);
  archive.number(origin.process);
}

}  // namespace braid::fabric
