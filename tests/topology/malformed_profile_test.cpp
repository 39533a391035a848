// Malformed profiles: each error names the file, the key path and what was expected.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/topology/shipped.h"
#include "topology/profile.h"

namespace braid::topology {
namespace {

using Json = nlohmann::ordered_json;

struct Case {
  const char* patch;  ///< JSON patch applied to h20x8
  const char* message;
};

constexpr Case kCases[] = {
    {R"([{"op":"replace","path":"/links/3/forward_gbps/value","value":"fast"}])",
     R"(bad.json: links[3].forward_gbps.value: expected a number above 0, found "fast")"},
    {R"([{"op":"replace","path":"/links/3/forward_gbps/value","value":0}])",
     "bad.json: links[3].forward_gbps.value: expected a number above 0, found 0"},
    {R"([{"op":"replace","path":"/links/0/both_gbps/value","value":-1.5}])",
     "bad.json: links[0].both_gbps.value: expected a number above 0, found -1.5"},
    {R"([{"op":"replace","path":"/links/1/backward_gbps","value":80}])",
     "bad.json: links[1].backward_gbps: expected an object with value, source, found 80"},
    {R"([{"op":"remove","path":"/links/1/backward_gbps/source"}])",
     "bad.json: links[1].backward_gbps.source: missing"},
    {R"([{"op":"replace","path":"/costs/poll_us/source","value":""}])",
     R"(bad.json: costs.poll_us.source: expected text in quotes, found "")"},
    {R"([{"op":"replace","path":"/costs/poll_us/value","value":0}])",
     "bad.json: costs.poll_us.value: expected a number above 0, found 0"},
    {R"([{"op":"replace","path":"/costs/api_call_us/value","value":-1}])",
     "bad.json: costs.api_call_us.value: expected a number of 0 or more, found -1"},
    {R"([{"op":"remove","path":"/costs/copy_start_us"}])",
     "bad.json: costs.copy_start_us: missing"},
    {R"([{"op":"add","path":"/costs/kernel_strat_us","value":1}])",
     R"(bad.json: costs.kernel_strat_us: unknown key. The known ones are api_call_us, )"},
    {R"([{"op":"add","path":"/numa_node","value":1}])",
     R"(bad.json: numa_node: unknown key. The known ones are name, description, )"},
    {R"([{"op":"add","path":"/colour","value":1}])",
     "bad.json: colour: unknown key. The known ones are name, description, "},
    {R"([{"op":"replace","path":"/costs/api_call_us/value","value":1e300}])",
     "bad.json: costs.api_call_us.value: expected at most 65536, found 1e+300"},
    {R"([{"op":"copy","path":"/gpus/3/pci_bus_id","from":"/gpus/1/pci_bus_id"}])",
     "bad.json: gpu3 has the pci_bus_id of gpu1, "},
    {R"([{"op":"add","path":"/links/2/forward","value":1}])",
     R"(bad.json: links[2].forward: unknown key. The known ones are kind, ends, forward_gbps, )"},
    {R"([{"op":"replace","path":"/links/2/kind","value":"pci"}])",
     R"(bad.json: links[2].kind: expected memory, socket, pcie or nvlink, found "pci")"},
    {R"([{"op":"replace","path":"/links/3/ends/1/1","value":"gpu9"}])",
     R"(bad.json: links[3].ends[1][1]: expected the name of a vertex, such as "numa0" or "gpu0", )"
     R"(found "gpu9")"},
    {R"([{"op":"replace","path":"/links/3/ends/1","value":["gpu1"]}])",
     R"(bad.json: links[3].ends[1]: expected two vertices: ["numa0", "gpu0"], found ["gpu1"])"},
    {R"([{"op":"add","path":"/links/3/ends/1/2","value":"gpu1"}])",
     R"(bad.json: links[3].ends[1]: expected two vertices)"},
    {R"([{"op":"replace","path":"/links/3/ends","value":[]}])",
     "bad.json: links[3].ends: expected a list of pairs of vertices, found []"},
    {R"([{"op":"replace","path":"/links","value":{}}])",
     "bad.json: links: expected a list of links, found {}"},
    {R"([{"op":"remove","path":"/gpus"}])", "bad.json: gpus: missing"},
    {R"([{"op":"replace","path":"/gpus","value":[]}])",
     "bad.json: gpus: expected a list of at least one GPU, found []"},
    {R"([{"op":"replace","path":"/gpus/7/numa_node","value":2}])",
     "bad.json: gpus[7].numa_node: expected a whole number from 0 to 1, found 2"},
    {R"([{"op":"replace","path":"/gpus/7/numa_node","value":0.5}])",
     "bad.json: gpus[7].numa_node: expected a whole number from 0 to 1, found 0.5"},
    {R"([{"op":"replace","path":"/gpus/7","value":"H20"}])",
     R"(bad.json: gpus[7]: expected an object with pci_bus_id, numa_node, found "H20")"},
    {R"([{"op":"replace","path":"/gpus/3/pci_bus_id","value":24}])",
     "bad.json: gpus[3].pci_bus_id: expected text in quotes, found 24"},
    {R"([{"op":"replace","path":"/numa_nodes","value":"two"}])",
     R"(bad.json: numa_nodes: expected a whole number from 1 to 64, found "two")"},
    {R"([{"op":"replace","path":"/pcie_switches","value":1e9}])",
     "bad.json: pcie_switches: expected a whole number from 0 to 64"},
    {R"([{"op":"replace","path":"/gpu_model/compute_capability/value","value":9.0}])",
     "bad.json: gpu_model.compute_capability.value: expected text in quotes, found 9.0"},
    {R"([{"op":"replace","path":"/gpu_model/compute_capability/value","value":"sm_90"}])",
     R"(bad.json: gpu_model.compute_capability.value: expected a compute capability such as "9.0",)"
     R"( found "sm_90")"},
    {R"([{"op":"replace","path":"/gpu_model/sm_count/value","value":0}])",
     "bad.json: gpu_model.sm_count.value: expected a whole number from 1 to 4096, found 0"},
    {R"([{"op":"replace","path":"/gpu_model/memory_gib/value","value":1e18}])",
     "bad.json: gpu_model.memory_gib.value: expected at most 65536, found 1e+18"},
    {R"([{"op":"remove","path":"/gpu_model/memory_gib"}])",
     "bad.json: gpu_model.memory_gib: missing"},
    {R"([{"op":"replace","path":"/faults","value":[1]}])",
     "bad.json: faults: expected an object, found [1]"},
    {R"([{"op":"add","path":"/faults/contexts_fail_alon","value":true}])",
     "bad.json: faults.contexts_fail_alon: unknown key. The known ones are calls, links, busy, "},
    {R"([{"op":"add","path":"/faults/calls","value":[
         {"name":"cuMemAloc_v2","nth":1,"error":"CUDA_ERROR_OUT_OF_MEMORY"}]}])",
     R"(bad.json: faults.calls[0].name: there is no "cuMemAloc_v2". The nearest names are )"
     "cuMemAlloc_v2"},
    {R"([{"op":"add","path":"/faults/calls","value":[
         {"name":"cuMemAlloc_v2","nth":1,"error":"CUDA_ERROR_OUT_OF_MEMRY"}]}])",
     R"(bad.json: faults.calls[0].error: there is no "CUDA_ERROR_OUT_OF_MEMRY". The nearest names)"
     " are CUDA_ERROR_OUT_OF_MEMORY"},
    {R"([{"op":"add","path":"/faults/calls","value":[
         {"name":"cuMemAlloc_v2","nth":0,"error":"CUDA_ERROR_OUT_OF_MEMORY"}]}])",
     "bad.json: faults.calls[0].nth: expected a whole number from 1 to 2147483647, found 0"},
    {R"([{"op":"add","path":"/faults/links","value":[
         {"ends":["numa0","gpu9"],"factor":0.5,"from_us":0}]}])",
     "bad.json: faults.links[0].ends: is not a link of the server"},
    {R"([{"op":"add","path":"/faults/busy","value":[{"gpu":8,"from_us":0,"to_us":1}]}])",
     "bad.json: faults.busy[0].gpu: expected a whole number from 0 to 7, found 8"},
    {R"([{"op":"add","path":"/numa_distances","value":{"value":[[10,21],[21]],"source":"seen"}}])",
     "bad.json: numa_distances.value[1]: expected 2, one for each NUMA node, found 1"},
    {R"([{"op":"add","path":"/numa_distances","value":{"value":[[10,21]],"source":"seen"}}])",
     "bad.json: numa_distances.value: expected 2, one for each NUMA node, found 1"},
    {R"([{"op":"add","path":"/numa_distances","value":{"value":[[10,-1],[21,10]],"source":"seen"}}])",
     "bad.json: numa_distances.value[0][1]: expected a whole number from 1 to 255, found -1"},
    {R"([{"op":"add","path":"/numa_distances","value":{"value":[[10,21],[10,10]],"source":"seen"}}])",
     "bad.json: numa_distances.value[1][0]: expected more than the 10 within the node, found 10"},
    {R"([{"op":"add","path":"/numa_distances","value":[[10,21],[21,10]]}])",
     "bad.json: numa_distances: expected an object with value, source, found "},
    {R"([{"op":"remove","path":"/links/1"}])", "bad.json: no links lead from memory1 to gpu0"},
    {R"([{"op":"add","path":"/links/3/ends/0","value":["switch0","gpu0"]}])",
     "bad.json: the link switch0 - gpu0 is there twice"},
    {R"([{"op":"replace","path":"","value":[]}])",
     "bad.json: expected an object with name, description"},
};

TEST(MalformedProfile, EachErrorNamesFileKeyAndExpectation) {
  Json whole = Json::parse(shipped_text("h20x8"));
  whole["faults"] = Json::object();
  for (const Case& broken : kCases) {
    const Json json = whole.patch(Json::parse(broken.patch));
    const auto server = parse_profile(json.dump(), "bad.json");
    ASSERT_FALSE(server.ok()) << broken.patch;
    EXPECT_EQ(server.status().message().find(broken.message), 0u)
        << "expected: " << broken.message << "\nfound:    " << server.status().message();
  }
}

std::string error_of(const std::string& text) {
  const auto server = parse_profile(text, "bad.json");
  return server.ok() ? "read without an error" : server.status().message();
}

TEST(MalformedProfile, SyntaxErrorsGiveLineAndColumn) {
  EXPECT_EQ(
      error_of("{\n  \"name\": \"x\",\n  oops\n}").find("bad.json: line 3, column 3: not JSON"), 0u)
      << error_of("{\n  \"name\": \"x\",\n  oops\n}");
  EXPECT_EQ(error_of("").find("bad.json: line 1, column 1: not JSON"), 0u) << error_of("");
  EXPECT_EQ(error_of("{\"name\": \"x\"").find("bad.json: line 1, column 13: not JSON"), 0u)
      << error_of("{\"name\": \"x\"");
  EXPECT_EQ(error_of("{\"name\": 1e999}").find("bad.json: "), 0u);
  EXPECT_EQ(error_of("\"\xff\"").find("bad.json: line 1, column 2: not JSON"), 0u)
      << error_of("\"\xff\"");
}

TEST(MalformedProfile, AKeyThatIsThereTwiceIsNamed) {
  EXPECT_EQ(error_of(R"({"name": "a", "links": [{"kind": 1, "kind": 2}]})"),
            "bad.json: the key \"kind\" is twice in one object. Remove one of them");
}

// Any cut of a good file is an error with the file's name, and never a crash.
TEST(MalformedProfile, AFileCutShortAnywhereIsRefused) {
  const std::string text = shipped_text("h200x4");
  const size_t end = text.rfind('}');
  for (size_t size = 0; size <= end; size += 7)
    ASSERT_EQ(error_of(text.substr(0, size)).find("bad.json: line "), 0u) << size;
}

}  // namespace
}  // namespace braid::topology
