// A folder that looks like sysfs, for tests of what reads it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace braid::topology {

namespace fs = std::filesystem;

class SysfsTree : public testing::Test {
 protected:
  SysfsTree() : root_(fs::temp_directory_path() / ("braid_sysfs_" + std::to_string(getpid()))) {}
  ~SysfsTree() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }

  // A device below `above`, as the kernel lays it out: a real folder and a link by address.
  void device(const std::string& above, const std::string& bus_id, const std::string& speed,
              const std::string& lanes, const std::string& node) {
    const fs::path folder = fs::path("sys/devices") / above / bus_id;
    write(folder / "max_link_speed", speed);
    write(folder / "current_link_width", lanes);
    write(folder / "numa_node", node);
    fs::create_directories(root_ / "sys/bus/pci/devices");
    fs::create_directory_symlink(root_ / folder, root_ / "sys/bus/pci/devices" / bus_id);
  }

  /// A network interface of a device, which may be one that hangs below the PCI device.
  void interface(const std::string& name, const fs::path& device, const std::string& state,
                 const std::string& megabits) {
    const fs::path folder = device / "net" / name;
    write(folder / "operstate", state);
    write(folder / "carrier", state == "down" ? "0" : "1");
    write(folder / "speed", megabits);
    if (!device.string().starts_with("sys/devices/virtual"))
      fs::create_directory_symlink(root_ / device, root_ / folder / "device");
    fs::create_directories(root_ / "sys/class/net");
    fs::create_directory_symlink(root_ / folder, root_ / "sys/class/net" / name);
  }

  /// An RDMA device with one port. `interface`: of Ethernet; empty: InfiniBand.
  void rdma_device(const std::string& name, const fs::path& device, const std::string& interface,
                   const std::string& state, const std::string& rate) {
    const fs::path folder = device / "infiniband" / name;
    write(folder / "ports/1/state", state);
    write(folder / "ports/1/rate", rate);
    if (!interface.empty()) write(folder / "ports/1/gid_attrs/ndevs/0", interface);
    fs::create_directory_symlink(root_ / device, root_ / folder / "device");
    fs::create_directories(root_ / "sys/class/infiniband");
    fs::create_directory_symlink(root_ / folder, root_ / "sys/class/infiniband" / name);
  }

  fs::path root_;
};

}  // namespace braid::topology
