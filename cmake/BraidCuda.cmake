# Finds cuda.h and nvcc, and embeds compiled kernels. Nothing links libcuda or libcudart.
#
# Looked at in this order: -DCUDAToolkit_ROOT, .deps/cuda (wheels that scripts/bootstrap puts there
# only when the machine's toolkit is absent or too old), $CUDA_HOME, $CUDA_PATH, PATH, /usr/local/cuda.
if(BRAID_NVCC AND NOT EXISTS ${BRAID_NVCC})  # a toolkit that has gone since the last configuration
  unset(BRAID_NVCC CACHE)
  unset(BRAID_CUDA_INCLUDE CACHE)
endif()
find_program(BRAID_NVCC nvcc
  HINTS ${CUDAToolkit_ROOT} ${CMAKE_SOURCE_DIR}/.deps/cuda $ENV{CUDA_HOME} $ENV{CUDA_PATH}
  PATHS /usr/local/cuda
  PATH_SUFFIXES bin)
if(NOT BRAID_NVCC)
  message(FATAL_ERROR "nvcc was not found. Run scripts/bootstrap, or set CUDA_HOME to a CUDA toolkit "
                      "(12.8 or newer).")
endif()
get_filename_component(braid_nvcc_real ${BRAID_NVCC} REALPATH)
get_filename_component(braid_cuda_root ${braid_nvcc_real} DIRECTORY)
get_filename_component(braid_cuda_root ${braid_cuda_root} DIRECTORY)
find_path(BRAID_CUDA_INCLUDE cuda.h
  HINTS ${braid_cuda_root}/include ${braid_cuda_root}/targets/x86_64-linux/include
        $ENV{CUDA_HOME}/include)
if(NOT BRAID_CUDA_INCLUDE)
  message(FATAL_ERROR "cuda.h was not found beside ${BRAID_NVCC}. Install the toolkit's headers, or "
                      "run scripts/bootstrap.")
endif()
message(STATUS "CUDA: ${BRAID_NVCC}, ${BRAID_CUDA_INCLUDE}")

add_library(braid_cuda_headers INTERFACE)
target_include_directories(braid_cuda_headers SYSTEM INTERFACE ${BRAID_CUDA_INCLUDE})

set(BRAID_CUDA_TARGETS
  -gencode arch=compute_80,code=sm_80
  -gencode arch=compute_90,code=sm_90
  -gencode arch=compute_100,code=sm_100
  -gencode arch=compute_90,code=compute_90)  # PTX: architectures newer than the list

# braid_embed_kernels(target file.cu symbol): compiles to one fat binary and links its bytes in as
# `extern "C" const unsigned char symbol[]`.
function(braid_embed_kernels target source symbol)
  set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.fatbin)
  add_custom_command(OUTPUT ${fatbin}
    COMMAND ${BRAID_NVCC} -fatbin -std=c++17 -O3 -ccbin ${CMAKE_CXX_COMPILER}
            -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/tests ${BRAID_CUDA_TARGETS}
            -MD -MF ${fatbin}.d -o ${fatbin} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
    DEPENDS ${source} DEPFILE ${fatbin}.d
    COMMENT "nvcc ${source}" VERBATIM)
  set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.S)
  file(CONFIGURE OUTPUT ${wrapper} @ONLY CONTENT
"    .section .rodata
    .globl @symbol@
    .hidden @symbol@
    .balign 16
@symbol@:
    .incbin \"@fatbin@\"
    .section .note.GNU-stack,\"\",%progbits
")
  set_source_files_properties(${wrapper} PROPERTIES OBJECT_DEPENDS ${fatbin})
  target_sources(${target} PRIVATE ${wrapper})
endfunction()
