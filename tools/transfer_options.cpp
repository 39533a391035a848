#include "tools/transfer_options.h"

#include <string>

#include "fabric/library/rail_choice.h"
#include "fabric/library/trust.h"
#include "transfer/directory/store.h"

namespace braid::tools {

std::shared_ptr<Transfer::Options> add_transfer_options(CLI::App& command) {
  auto options = std::make_shared<Transfer::Options>();
  command.add_option("--name", options->name, "for others of this host and user");
  command.add_option("--listen", options->listen, "where others ask by name")
      ->type_name("HOST:PORT")
      ->default_str("the first --address, any port");
  command.add_option("--address", options->addresses, "of a network interface: a rail at each")
      ->delimiter(',')
      ->allow_extra_args(false)  // what follows is a segment
      ->default_str("by --nics, or that of --listen, or 127.0.0.1");
  command.add_option("--nics", options->nics, "eth0,eth1 or ^docker0: a rail at each")
      ->default_str(std::string("$") + fabric::kNicsVariable);
  command.add_option("--provider", options->providers, "of libfabric: shm, tcp;ofi_rxm, ...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("mapped,shm,tcp;ofi_rxm, and those for GPUs with --gpu-memory");
  command
      .add_option("--store", options->store,
                  "where the names of a cluster are kept; a password belongs in the variable")
      ->type_name("redis://HOST:PORT|etcd://HOST:PORT")
      ->default_str(std::string("$") + transfer::kStoreVariable);
  command.add_option("--secret-file", options->secret_file, "that all engines share")
      ->type_name("FILE")
      ->default_str(std::string("$") + fabric::kSecretVariable);
  command.add_flag("--allow-unauthenticated", options->allow_unauthenticated,
                   "let other hosts reach rails without a secret");
  command.add_flag("--gpu-memory", options->gpu_memory, "rails that reach memory of GPUs too");
  return options;
}

Transfer::Options beside(const Transfer::Options& options) {
  Transfer::Options further = options;
  further.name.clear();
  const size_t colon = further.listen.rfind(':');
  if (colon != std::string::npos) further.listen.replace(colon, std::string::npos, ":0");
  return further;
}

}  // namespace braid::tools
