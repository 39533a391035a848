#include "tools/fabric_doctor.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "base/try.h"
#include "cuda/driver.h"
#include "fabric/library/endpoint_count.h"
#include "fabric/library/rail_address.h"
#include "fabric/library/rail_choice.h"
#include "fabric/library/trust.h"
#include "fabric/local/domain.h"
#include "fabric/ofi/domain.h"
#include "fabric/ofi/library.h"
#include "fabric/ofi/shm_room.h"
#include "fabric/staged/domain.h"
#include "tools/commands.h"
#include "tools/topo_text.h"
#include "topology/machine.h"

namespace braid::tools {
namespace {

namespace ofi = fabric::ofi;
using OpenDomain = Result<std::unique_ptr<fabric::Domain>>;

// ---- What engines of this user's find ----

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

/// Of engines that name neither addresses nor NICs. False: they do not open.
bool describe_rails(const std::vector<topology::Nic>& nics) {
  const Result<fabric::RailChoice> choice = fabric::rails_for({}, nics);
  if (!choice.ok()) {
    fmt::print("rails         no: {}\n", choice.status().message());
    return false;
  }
  std::string rails;
  for (const std::string& address : choice.value().addresses)
    rails += (rails.empty() ? "" : ", ") + address;
  fmt::print("rails         {}: {}\n", rails,
             is_set(fabric::kNicsVariable)
                 ? fmt::format("as {} says", fabric::kNicsVariable)
                 : fmt::format("{} is not set, so other hosts are not reached unless the program "
                               "names addresses or NICs",
                               fabric::kNicsVariable));
  return true;
}

/// Why a rail has so many endpoints, and for whom.
std::string reason_of(size_t endpoints, size_t rails, const fabric::EndpointCount& count) {
  std::string text =
      !count.asked ? fmt::format("by its NIC, {} rail{}, {} CPU{} and {} open files", rails,
                                 rails == 1 ? "" : "s", count.room.cpus,
                                 count.room.cpus == 1 ? "" : "s", count.room.descriptors)
      : endpoints == *count.asked
          ? fmt::format("as {} says", fabric::kEndpointsVariable)
          : fmt::format("{} says {}, but {} open files allow no peer several",
                        fabric::kEndpointsVariable, *count.asked, count.room.descriptors);
  if (endpoints == 1) return text;
  text += fmt::format("; for the first {} peers, half as many with gpu_memory",
                      fabric::doors_at_all_endpoints(count.room, endpoints));
  return ofi::is_ample(ofi::shm_room()) ? text
                                        : text + "; shm has 1, since /dev/shm has little room";
}

/// False: no engine opens.
bool describe_endpoints(const std::string& address, const std::vector<topology::Nic>& nics) {
  const Result<fabric::RailChoice> choice = fabric::rails_for({}, nics);
  const size_t rails = choice.ok() ? choice.value().addresses.size() : 1;
  const Result<fabric::EndpointCount> counts = fabric::endpoint_count(rails, nics);
  if (!counts.ok()) {
    fmt::print("endpoints     no: {}\n", counts.status().message());
    return false;
  }
  const size_t endpoints = counts.value().at(address);
  fmt::print("endpoints     {} on a rail at {} whose bytes the CPU copies (tcp;ofi_rxm, shm): {}\n",
             endpoints, address, reason_of(endpoints, rails, counts.value()));
  return true;
}

/// False: this host does not have the address.
bool describe_address(const std::string& address, const std::vector<topology::Nic>& nics) {
  const Status here = fabric::check_rail_address(address, nics);
  if (!here.ok()) fmt::print("address       no: {}\n", here.message());
  return here.ok();
}

/// False: no engine opens at this address.
bool describe_secret(const std::string& address) {
  const Result<fabric::Secret> secret = fabric::secret_for({}, {address});
  if (!secret.ok())
    fmt::print("secret        no: {}\n", secret.status().message());
  else if (secret.value().is_set())
    fmt::print("secret        {}\n", std::getenv(fabric::kSecretVariable));
  else
    fmt::print("secret        none, and none is needed at {}\n", address);
  return secret.ok();
}

void describe_shared_memory() {
  const ofi::ShmRoom room = ofi::shm_room();
  const Status enough = ofi::check(room);
  fmt::print("/dev/shm      {}\n",
             enough.ok() ? fmt::format("{} MiB free", room.free_mib) : enough.message());
}

// ---- Providers ----

std::string works(const ofi::Quirks& quirks, const std::string& address) {
  if (!quirks.reaches_hosts) return "works, within this host";
  return quirks.takes_device ? "works" : "works at " + address;
}

bool is_there(const char* path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

bool has_entries(const char* folder) {
  std::error_code ignored;
  return std::filesystem::directory_iterator(folder, ignored) !=
         std::filesystem::directory_iterator();
}

/// Of verbs and efa: what the kernel and the libraries below libfabric lack. Empty: nothing.
std::string missing_for_rdma(const ofi::Quirks& quirks) {
  const bool is_efa = quirks.provider == std::string("efa");
  const std::string modules = is_efa ? "efa" : "mlx5_ib, irdma, bnxt_re or that of your NIC";
  if (!has_entries("/sys/class/infiniband"))
    return "the kernel has no RDMA device. If there is such a NIC: modprobe " + modules;
  if (!is_there("/dev/infiniband")) return "/dev/infiniband is missing: modprobe ib_uverbs";
  for (const auto& entry : std::filesystem::directory_iterator("/dev/infiniband"))
    if (entry.path().filename().string().starts_with("uverbs") &&
        access(entry.path().c_str(), R_OK | W_OK) != 0)
      return "no permission for " + entry.path().string() + ": join its group, or chmod 666";
  return "apt-get install libibverbs1 ibverbs-providers librdmacm1";
}

// ---- GPUs ----

/// Why no program of this user gets at a GPU here; empty: something else.
std::string missing_for_gpus() {
  if (!is_there("/dev/nvidiactl"))
    return is_there("/sys/module/nvidia") ? "/dev/nvidiactl is missing: run nvidia-modprobe"
                                          : "the kernel module is not loaded: modprobe nvidia";
  for (const char* path : {"/dev/nvidiactl", "/dev/nvidia-uvm"})
    if (access(path, R_OK | W_OK) != 0)
      return std::string("no permission for ") + path + ", or it is missing: nvidia-modprobe -u";
  return {};
}

Result<cuda::Driver> driver_with_gpus() {
  Result<cuda::Driver> driver = cuda::open_driver();
  if (!driver.ok())
    return Status::error("there is no CUDA driver (libcuda.so.1)",
                         "Install NVIDIA's (Debian: nvidia-driver and libcuda1; Ubuntu: "
                         "nvidia-driver-NNN)");
  int count = 0;
  CUresult result = driver.value().cuInit(0);
  if (result == CUDA_SUCCESS) result = driver.value().cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS)
    return Status::error("the driver says " + driver.value().describe(result), missing_for_gpus());
  if (count == 0) return Status::error("the driver shows no GPU", "Look at CUDA_VISIBLE_DEVICES");
  return driver;
}

bool has(const cuda::Driver& driver, int gpu, CUdevice_attribute attribute) {
  CUdevice device = 0;
  int value = 0;
  return driver.cuDeviceGet(&device, gpu) == CUDA_SUCCESS &&
         driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

/// Pairs of GPUs, "0-1, 0-2": those that cannot reach each other's memory.
std::string pairs_apart(const cuda::Driver& driver, int count) {
  std::string pairs;
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b) {
      int there = 0, back = 0;
      (void)driver.cuDeviceCanAccessPeer(&there, a, b);
      (void)driver.cuDeviceCanAccessPeer(&back, b, a);
      if (there == 0 || back == 0)
        pairs += (pairs.empty() ? "" : ", ") + std::to_string(a) + "-" + std::to_string(b);
    }
  return pairs;
}

/// It needs no libfabric. False: it does not work.
bool describe_local(const cuda::Driver& driver, int count) {
  if (const OpenDomain opened = fabric::local::open_domain(); !opened.ok()) {
    fmt::print("  {:21} no: {}\n", "local", opened.status().message());
    return false;
  }
  bool shares_mappings = true;
  for (int gpu = 0; gpu < count; ++gpu)
    shares_mappings =
        shares_mappings &&
        has(driver, gpu, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  fmt::print("  {:21} works, between processes of this user: memory of cuMemAlloc{}\n", "local",
             shares_mappings ? ", and of cuMemCreate with a POSIX file descriptor"
                             : " alone, since not all GPUs share mappings by file descriptors");
  if (const std::string pairs = pairs_apart(driver, count); !pairs.empty())
    fmt::print("  {:21} GPUs {} have no peer access: open the engines with gpu_memory instead\n",
               "", pairs);
  return true;
}

void describe_staged(const ofi::Quirks& quirks, const std::string& address) {
  OpenDomain opened = ofi::open_domain(quirks, address);
  if (opened.ok()) opened = fabric::staged::stage(std::move(opened).value());
  const std::string name = std::string("staged, ") + quirks.provider;
  if (opened.ok())
    fmt::print("  {:21} works, through pinned host memory: option gpu_memory\n", name);
  else
    fmt::print("  {:21} no: see {} above\n", name, quirks.provider);
}

/// No provider of libfabric touches memory of a GPU itself, so each is staged. True: `local` works.
bool describe_gpu_memory(const std::string& address, bool has_libfabric) {
  const Result<cuda::Driver> driver = driver_with_gpus();
  if (!driver.ok()) {
    fmt::print("GPU memory    no: {}\n", driver.status().message());
    return false;
  }
  int count = 0;
  (void)driver.value().cuDeviceGetCount(&count);
  fmt::print("GPU memory    {} GPU{}\n", count, count == 1 ? "" : "s");
  const bool has_local = describe_local(driver.value(), count);
  if (!has_libfabric) fmt::print("  {:21} no: see libfabric above\n", "staged");
  for (const ofi::Quirks* quirks : ofi::all_quirks())
    if (has_libfabric) describe_staged(*quirks, address);
  return has_local;
}

/// True: one of them works.
bool describe_providers(const std::string& address) {
  bool works_here = false;
  for (const ofi::Quirks* quirks : ofi::all_quirks()) {
    const OpenDomain domain = ofi::open_domain(*quirks, address);
    works_here = works_here || domain.ok();
    fmt::print("{:13} {}\n", quirks->provider,
               domain.ok() ? works(*quirks, address) : domain.status().message());
    const bool is_rdma = quirks->takes_device || quirks->keeps_broken_connections;
    if (!domain.ok() && is_rdma) fmt::print("{:13} {}\n", "", missing_for_rdma(*quirks));
  }
  return works_here;
}

}  // namespace

int fabric_doctor(const std::string& address) {
  const std::vector<topology::Nic> nics = topology::host_nics();
  fmt::print("{}\n", nics_text(nics));
  const bool has_rails = describe_rails(nics);
  bool is_usable = describe_address(address, nics);
  if (is_usable) {
    const bool has_endpoints = describe_endpoints(address, nics);
    is_usable = describe_secret(address) && has_endpoints;
  }
  describe_shared_memory();
  const auto library = ofi::library();
  if (library.ok()) {
    const uint32_t version = library.value()->version();
    fmt::print("libfabric     {}.{}\n", FI_MAJOR(version), FI_MINOR(version));
  } else {
    fmt::print("libfabric     no: {}\n", library.status().message());
  }
  const bool has_provider = library.ok() && describe_providers(address);
  const bool has_local = describe_gpu_memory(address, library.ok());
  return has_rails && is_usable && (has_provider || has_local) ? 0 : 1;
}

}  // namespace braid::tools
