// The server as a graph. Vertices are memories, NUMA nodes, PCIe switches, GPUs and NVLink
// switches; links carry bytes between two of them, with a capacity each way and, where the hardware
// has one, a limit on both ways together. Every figure says where it comes from.
//
// A Server is plain data: built from a JSON profile (profile.h) or discovered on the machine
// (discover.h), validated once, and constant afterwards, so it is safe to share between threads.
// Bandwidths are 10^9 bytes a second; times are microseconds. Source of the model: MMA section 2.2
// and figure 1 (PCIe links, NVLink, sockets), section 5.1.1 (the cross-socket limit).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "topology/numa_distances.h"

namespace braid::topology {

/// A fact and its source: "measured 2026-11-21 ...", "MMA table 2", "datasheet", "assumed: ...".
template <typename Value>
struct Sourced {
  Value value{};
  std::string source;
  bool operator==(const Sourced&) const = default;
};
using Figure = Sourced<double>;

enum class VertexKind { kMemory, kNumaNode, kPcieSwitch, kGpu, kNvSwitch };

struct Vertex {
  VertexKind kind = VertexKind::kNumaNode;
  std::string id;  ///< unique: "memory0", "numa0", "switch1", "gpu3", "nvswitch0"
  int index = 0;   ///< among vertices of its kind; a GPU's index is its CUDA ordinal
};

enum class LinkKind { kMemory, kSocket, kPcie, kNvLink };

struct Link {
  LinkKind kind = LinkKind::kPcie;
  int from = 0;          ///< vertex number; the end nearer to host memory
  int to = 0;            ///< vertex number
  Figure forward_gbps;   ///< from -> to: host to device on PCIe and memory links
  Figure backward_gbps;  ///< to -> from: device to host
  Figure both_gbps;      ///< limit on the sum while both ways carry bytes at once; value 0: none.
                         ///< May be below one way alone: a memory bus loses time to turning round
};

struct ComputeCapability {
  int major = 0;
  int minor = 0;
  bool operator==(const ComputeCapability&) const = default;
};

struct Gpu {
  std::string name;        ///< "NVIDIA H20"
  std::string pci_bus_id;  ///< "0000:18:00.0"
  int vertex = 0;
  int numa_node = 0;  ///< index of the nearest NUMA node
  Sourced<uint64_t> memory_bytes;
  Sourced<int> sm_count;
  Sourced<ComputeCapability> compute;
};

enum class NicState { kUnknown, kUp, kDown };

/// A network interface, or an RDMA device without one. Machine::nics and Server both use this
/// struct; a field that only one of them fills in says so.
struct Nic {
  std::string name;                  ///< "eth0"; of an RDMA device without an interface: "mlx5_0"
  std::string rdma_device;           ///< "mlx5_0"; empty: none
  std::string pci_bus_id;            ///< empty: no PCI device, as loopback and bridges
  std::vector<std::string> bridges;  ///< PCIe bridges above it by bus address, the root port first
  int numa_node = -1;                ///< -1: unknown or none. In Machine: the kernel's number
  int pcie_switch = -1;              ///< in Server: the vertex of the switch that it shares with
                                     ///< GPUs; -1: none
  Figure link_gbps;                  ///< each way; without a source: unknown
  NicState state = NicState::kUnknown;  ///< at this moment, so not in a profile; nor are addresses
  std::vector<std::string> addresses;   ///< IPv4 first, as text without the prefix length

  bool is_virtual() const { return pci_bus_id.empty(); }
};

/// The costs of operations without those of their bytes. Used by the emulated server, shown by
/// `braid topo`. A discovered server has none: values 0, sources empty.
struct Costs {
  Figure api_call_us;         ///< CPU time of one driver call that enqueues work
  Figure event_call_us;       ///< of recording an event, or telling a stream to wait for one
  Figure copy_start_us;       ///< a copy engine's start, before the first byte
  Figure kernel_start_us;     ///< from the due time of a kernel to its first instruction
  Figure event_wait_us;       ///< until a stream sees another stream's event, same GPU
  Figure peer_event_wait_us;  ///< the same across GPUs
  Figure wait_value_us;       ///< until a stream that waits on a value sees the change
  Figure write_value_us;      ///< a stream's write of a value
  Figure host_function_us;    ///< from a stream reaching a host function to its start
  Figure synchronize_us;      ///< from the end of work to the CPU's return from synchronizing on it
  Figure local_atomic_us;     ///< one system-scope atomic on this GPU's own memory
  Figure peer_atomic_us;      ///< the same on a peer's memory, over NVLink
  Figure host_store_us;       ///< one load or store of host memory by a kernel
  Figure poll_us;             ///< the interval at which a polling kernel looks again
};

/// The costs by name, in the order above: "api_call_us", ...
struct CostRow {
  const char* name;
  Figure Costs::*figure;
};
std::span<const CostRow> cost_rows();

/// "memory", "socket", "pcie" or "nvlink".
const char* link_kind_name(LinkKind kind);

/// The rates at which SMs move bytes over PCIe; copy engines reach the link's capacity.
struct KernelSpeed {
  Figure host_read_gbps;   ///< one GPU's SMs reading host memory
  Figure host_write_gbps;  ///< one GPU's SMs writing host memory
  Figure block_gbps;       ///< one thread block of the pull kernel, at most
};

struct Server {
  std::string name;         ///< "h20x8"
  std::string description;  ///< one line
  std::vector<Vertex> vertices;
  std::vector<Link> links;
  std::vector<Gpu> gpus;  ///< by CUDA ordinal
  std::vector<Nic> nics;
  Sourced<NumaDistances> numa_distances;  ///< of the NUMA nodes' indices; without nodes: unknown
  Costs costs;
  KernelSpeed kernel;
  Sourced<int> copy_engines_h2d;  ///< per GPU: copies in that direction that run at once
  Sourced<int> copy_engines_d2h;
  Sourced<int> copy_engines_peer;
  std::string faults_json;  ///< the profile's "faults" object as JSON text, for the emulated server
                            ///< to read; empty when the profile has none

  int numa_node_count() const;
  /// True when the two GPUs reach each other without crossing PCIe.
  bool has_nvlink(int gpu_a, int gpu_b) const;
};

/// One link crossed in one direction.
struct Hop {
  int link = 0;
  bool forward = true;
  bool operator==(const Hop&) const = default;
};

/// The links that bytes cross from a NUMA node's memory to a GPU (`to_gpu`), or back.
/// Empty when the graph has no such way.
std::vector<Hop> host_route(const Server& server, int numa_node, int gpu, bool to_gpu);

/// The links between two GPUs: NVLink where there is one, else PCIe.
std::vector<Hop> peer_route(const Server& server, int from_gpu, int to_gpu);

/// One way between host memory and `target`, as `braid topo` shows it: direct, or through `relay`.
struct Path {
  int target = 0;
  int relay = -1;         ///< -1: the direct path
  std::vector<Hop> hops;  ///< from host memory to the target
  double gbps = 0;        ///< its narrowest link
  bool crosses_socket = false;
};

/// The direct path first, then relays whose way from `numa_node` crosses no socket, then the
/// others; a relay is a GPU that has NVLink to the target.
std::vector<Path> paths_to(const Server& server, int target, int numa_node);

enum class Nearness { kSameSwitch, kSameNode, kFar };

/// How near a NIC is to a GPU: bytes between them cross one switch, or the root of the NUMA node.
Nearness nearness(const Server& server, int gpu, int nic);
/// The numbers of the NICs that are this near to a GPU. Virtual ones are near to none.
std::vector<int> nics_near(const Server& server, int gpu, Nearness nearness);

/// Checks that ends exist, ids are unique, capacities are positive, every GPU reaches memory, and
/// NUMA distances are those of all nodes.
Status validate(const Server& server);

}  // namespace braid::topology
