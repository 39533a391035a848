# Finds cuda.h and nvcc, and embeds compiled kernels. Nothing links libcuda or libcudart.
#
# Looked at in this order: -DCUDAToolkit_ROOT, .deps/cuda (wheels that scripts/bootstrap puts there
# only when the machine's toolkit is absent or too old), $CUDA_HOME, $CUDA_PATH, PATH, /usr/local/cuda.
# Without nvcc (none found, or -DBRAID_NVCC=OFF) braid is built without its kernels, which emulated
# servers do not need.
set(braid_oldest_cuda 12.8)  # the first that knows sm_100
set(braid_cuda_places ${CUDAToolkit_ROOT} ${CMAKE_SOURCE_DIR}/.deps/cuda $ENV{CUDA_HOME} $ENV{CUDA_PATH})
if(BRAID_NVCC AND NOT EXISTS ${BRAID_NVCC})  # a toolkit that has gone since the last configuration
  unset(BRAID_NVCC CACHE)
endif()
if(BRAID_CUDA_INCLUDE AND NOT EXISTS ${BRAID_CUDA_INCLUDE}/cuda.h)
  unset(BRAID_CUDA_INCLUDE CACHE)
endif()

function(braid_is_new_nvcc result candidate)
  execute_process(COMMAND ${candidate} --version OUTPUT_VARIABLE words ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" found "${words}")
  if(NOT found OR CMAKE_MATCH_1 VERSION_LESS braid_oldest_cuda)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()
find_program(BRAID_NVCC nvcc
  HINTS ${braid_cuda_places} PATHS /usr/local/cuda PATH_SUFFIXES bin VALIDATOR braid_is_new_nvcc)

if(BRAID_NVCC)  # its own headers
  get_filename_component(braid_cuda_places ${BRAID_NVCC} REALPATH)
  get_filename_component(braid_cuda_places ${braid_cuda_places}/../.. ABSOLUTE)
endif()
find_path(BRAID_CUDA_INCLUDE cuda.h
  HINTS ${braid_cuda_places} $ENV{CUDA_HOME} PATHS /usr/local/cuda
  PATH_SUFFIXES include targets/x86_64-linux/include)
if(NOT BRAID_CUDA_INCLUDE)
  message(FATAL_ERROR "cuda.h was not found. Run scripts/bootstrap, or set CUDA_HOME to a CUDA toolkit "
                      "(${braid_oldest_cuda} or newer).")
endif()
if(BRAID_NVCC)
  message(STATUS "CUDA: ${BRAID_NVCC}, ${BRAID_CUDA_INCLUDE}")
else()
  message(WARNING "No nvcc of CUDA ${braid_oldest_cuda} or newer: this build has no kernels for GPUs, so it is for "
                  "emulated servers. For GPUs run scripts/bootstrap, or set CUDA_HOME to a toolkit.")
endif()

add_library(braid_cuda_headers INTERFACE)
target_include_directories(braid_cuda_headers SYSTEM INTERFACE ${BRAID_CUDA_INCLUDE})

set(BRAID_CUDA_TARGETS
  -gencode arch=compute_80,code=sm_80
  -gencode arch=compute_90,code=sm_90
  -gencode arch=compute_100,code=sm_100
  -gencode arch=compute_90,code=compute_90)  # PTX: architectures newer than the list

function(braid_compile_kernels source fatbin)
  add_custom_command(OUTPUT ${fatbin}
    COMMAND ${BRAID_NVCC} -fatbin -std=c++17 -O3 -ccbin ${CMAKE_CXX_COMPILER}
            -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/tests ${BRAID_CUDA_TARGETS}
            -MD -MF ${fatbin}.d -o ${fatbin} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    DEPENDS ${source} DEPFILE ${fatbin}.d
    COMMENT "nvcc ${source}" VERBATIM)
endfunction()

# braid_embed_file(target file symbol): links its bytes, and a 0 behind them, in as `extern "C" const
# unsigned char symbol[]`.
function(braid_embed_file target file symbol)
  set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.S)
  file(CONFIGURE OUTPUT ${wrapper} @ONLY CONTENT
"    .section .rodata
    .globl @symbol@
    .hidden @symbol@
    .balign 16
@symbol@:
    .incbin \"@file@\"
    .byte 0
    .section .note.GNU-stack,\"\",%progbits
")
  set_source_files_properties(${wrapper} PROPERTIES OBJECT_DEPENDS ${file})
  target_sources(${target} PRIVATE ${wrapper})
endfunction()

# braid_embed_kernels(target file.cu symbol): compiles to one fat binary and embeds it. Without nvcc
# the bytes are a text, which no GPU loads.
function(braid_embed_kernels target source symbol)
  set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.fatbin)
  if(NOT BRAID_NVCC)
    file(CONFIGURE OUTPUT ${fatbin} CONTENT "built without nvcc")
  else()
    braid_compile_kernels(${source} ${fatbin})
  endif()
  braid_embed_file(${target} ${fatbin} ${symbol})
endfunction()
