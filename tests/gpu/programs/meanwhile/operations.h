// All operations of `meanwhile`, in the order in which they run: the name, whether it is done on
// the GPU that relays too, and what prepares it.
#pragma once

#include "code.h"
#include "life.h"
#include "memory.h"
#include "transfers.h"

namespace meanwhile {

inline const std::vector<Operation> kOperations = {
    {"cudaMalloc", true, allocate_now},
    {"cudaFree", true, free_now},
    {"cudaMallocAsync", true, pool_allocate},
    {"cudaFreeAsync", true, pool_free},
    {"cudaMemPoolTrimTo", true, pool_trim},
    {"cudaMemPoolCreate", false, pool_create},
    {"cudaMemPoolDestroy", false, pool_destroy},
    {"cudaMallocHost", true, pin_now},
    {"cudaFreeHost", true, unpin_now},
    {"cudaHostRegister", true, register_now},
    {"cudaHostUnregister", true, unregister_now},
    {"cudaMallocManaged", false, managed_allocate},
    {"cudaFree.managed", false, managed_free},
    {"cudaMallocArray", false, array_allocate},
    {"cudaFreeArray", false, array_free},
    {"cuMemMap", true, map_now},
    {"cuMemUnmap", true, unmap_now},
    {"cuMemExportToShareableHandle", false, export_now},
    {"cudaIpcGetMemHandle", true, ipc_handle},
    {"cudaMemGetInfo", true, ask_memory},

    {"kernel.loaded", true, launch_loaded_kernel},
    {"kernel.lazy", true, launch_lazy_kernel},
    {"kernel.stack", true, launch_lazy_stack},
    {"cudaMemcpyToSymbol.lazy", true, copy_to_lazy_symbol},
    {"cuModuleLoadData", true, load_module},
    {"cuModuleUnload", true, unload_module},
    {"cuLibrary.launch", true, launch_of_library},
    {"nvrtc", true, compile_and_launch},
    {"cudaDeviceSetLimit", true, change_stack_limit},
    {"graph.capture", true, graph_whole},
    {"graph.launch", true, graph_launch},
    {"graph.destroy", true, graph_destroy},
    {"cudaProfilerStart", false, profiler},

    {"cudaStreamCreate", true, create_streams},
    {"cudaStreamDestroy", true, destroy_streams},
    {"cudaEventCreate", true, create_events},
    {"cudaEventDestroy", true, destroy_events},
    {"cuCtxCreate", true, create_context},
    {"cuCtxDestroy", true, destroy_context},
    {"cuDevicePrimaryCtxRetain", true, retain_context},
    {"cudaDeviceEnablePeerAccess", true, enable_peer},
    {"cudaDeviceDisablePeerAccess", true, disable_peer},
    {"cudaDeviceSynchronize", true, wait_for_device},
    {"cudaStreamSynchronize.own", true, wait_for_own_stream},
    {"cudaStreamSynchronize.copies", false, wait_for_copies},
    {"cudaEventSynchronize", false, wait_for_event},
    {"cudaStreamQuery", false, ask_stream},
    {"cudaEventQuery", false, ask_event},
    {"cudaStreamWaitEvent", true, stream_waits_for_event},
    {"cudaLaunchHostFunc", true, host_function},
    {"cuStreamWaitValue32", true, wait_value},
    {"kernel.default_stream", true, default_stream},
    {"fork", false, fork_now},
    {"posix_spawn", false, spawn_now},

    whole_up("cudaMemcpy.pageable.up", &Scene::pageable, Form::kSynchronous),
    whole_down("cudaMemcpy.pageable.down", &Scene::pageable, Form::kSynchronous),
    whole_up("cudaMemcpyAsync.pageable.up", &Scene::pageable, Form::kAsynchronous),
    whole_up("cudaMemcpy.pinned.up", &Scene::pinned, Form::kSynchronous),
    whole_down("cudaMemcpy.pinned.down", &Scene::pinned, Form::kSynchronous),
    whole_up("cudaMemcpyAsync.pinned.up", &Scene::pinned, Form::kAsynchronous),
    whole_down("cudaMemcpyAsync.pinned.down", &Scene::pinned, Form::kAsynchronous),
    {"cudaMemcpyAsync.small", true, small_up},
    {"cudaMemcpy2DAsync", false, rows_up},
    {"cudaMemcpyBatchAsync", true, batch_up},
    {"cudaMemcpyPeerAsync", true, peer_copy},
    {"cudaMemcpyAsync.device", true, device_copy},
    {"cudaMemset", true, fill_now},
    {"managed", true, managed_touch},
};

}  // namespace meanwhile
