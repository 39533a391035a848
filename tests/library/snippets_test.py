#!/usr/bin/env python3
"""The C++ of the documents compiles without a warning, as users of C++17 copy it from there.

  snippets_test.py SOURCE-FOLDER COMPILER DOCUMENT

Each block becomes a function. What a block may name and does not declare, since it is the reader's own, is listed here.
"""
import pathlib
import re
import subprocess
import sys

EVERYWHERE = """
int fail(const std::string& message);
extern void* memory;
extern uint64_t size;
"""
OF_DOCUMENT = {
    "library": """
struct Request {};
extern Request request;
extern uint64_t device, tensor;
extern void* host;
extern size_t size_bytes, device_pitch_bytes, host_pitch_bytes, row_bytes, row_count;
extern CUstream_st* stream;
extern braid::Engine engine;
std::vector<const void*> blocks_of(const Request& request);
void offload(const Request& request);
""",
    "kv": """
extern braid::Rotation::Model model;
extern uint32_t gpu_slots, host_slots, rank;
extern CUctx_st* context;
extern uint64_t cache;
extern CUstream_st* stream;
extern std::vector<braid::BlockNumber> preempted, resumed, full;
extern braid::Rotation::Options options;
extern braid::Rotation::Plan plan;
extern std::vector<std::byte> reports[2], commands;
void launch_model(CUstream_st* stream);
void recompute(const std::vector<braid::BlockNumber>& blocks);
void create_and_seal_blocks();
void send_step(size_t rank, braid::Rotation::Bytes commands);
void send_outputs(braid::Rotation::Bytes report);
int stop(braid::Rotation::Bytes report);
""",
    "transfer": """
void tell_the_others(const std::string& name);
""",
    "fabric": """
using Bytes = braid::Fabric::ByteList;
extern braid::Fabric fabric;
extern Bytes address;
void give_to_the_writer(const Bytes& address);
Bytes order_of(const Bytes& descriptor, uint32_t immediate);
Bytes descriptor_in(const Bytes& order);
uint32_t immediate_in(const Bytes& order);
""",
    "serving": """
extern int64_t now_us, arrival_us;
extern uint32_t free_blocks;
extern uint64_t id;
void preempt(uint64_t request);
void admit(uint64_t request);
""",
}
FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-unused-variable", "-fsyntax-only"]


def blocks(document):
    """(number of the first line, lines) of each block of C++."""
    lines = document.read_text("utf-8").split("\n")
    starts = [number for number, line in enumerate(lines) if line == "```cpp"]
    return [(start + 2, lines[start + 1:lines.index("```", start)]) for start in starts]


def program(document):
    found = blocks(document)
    assert found, f"{document} has no C++"
    includes = [line for _, lines in found for line in lines if line.startswith("#include")]
    parts = ["#include <chrono>", "#include <cstdio>", "#include <string>", *includes,
             EVERYWHERE, OF_DOCUMENT[document.stem]]
    for number, lines in found:
        body = ["" if line.startswith("#include") else line for line in lines]
        parts += [f"int block_in_line_{number}() {{", f'#line {number} "{document}"', *body, "return 0;", "}"]
    return "\n".join(parts) + "\n"


def main(source, compiler, name):
    source = pathlib.Path(source)
    command = [compiler, *FLAGS, f"-I{source / 'include'}", "-x", "c++", "-"]
    subprocess.run(command, input=program(source / "docs" / f"{name}.md"), text=True, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
