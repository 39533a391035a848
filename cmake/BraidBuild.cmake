# Language level, warnings, sanitizers and output folders, for every target.
option(BRAID_BUILD_TESTS "build the tests" ON)
set(BRAID_SANITIZE "" CACHE STRING "sanitizers to build with, e.g. address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# Function names and lines, as a backtrace needs them: types and variables are a third of the time to
# compile. A debugger wants -DCMAKE_BUILD_TYPE=Debug.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")

# The presets make warnings errors (CMAKE_COMPILE_WARNING_AS_ERROR). Other builds do not: gcc 12 warns
# without cause at -O3 (-Wrestrict, in std::string), as other compilers may elsewhere.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow)
if(BRAID_SANITIZE)
  # What sanitizers add is slow to optimise: -O2 -g compiles two times as long with tsan, and five
  # times with asan and ubsan. A report needs no more than line numbers.
  add_compile_options(-fsanitize=${BRAID_SANITIZE} -fno-omit-frame-pointer -Og -g1)
  if(BRAID_SANITIZE MATCHES undefined)
    # Null pointers: a third of the time to compile, and asan sees the fault. Enums: those of cuda.h
    # alone could be wrong, and in C, whose they are, they hold any number; the driver checks them.
    add_compile_options(-fno-sanitize=null,enum)
  endif()
  add_link_options(-fsanitize=${BRAID_SANITIZE})
endif()

# The layout of the build tree is the layout of an installation: bin/, lib/, share/.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/archive)
set(BRAID_EMULATOR_FOLDER lib/braid/emulator)  # as tools/locate.cpp knows it

find_program(BRAID_CCACHE ccache)
if(BRAID_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${BRAID_CCACHE})
endif()

# What is installed runs where no C++ runtime is, or another one: it carries its own inside. Sections
# that nothing uses go: among them is libstdc++'s call of arc4random, which glibc has since 2.36.
function(braid_self_contained target)
  if(NOT BRAID_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections)
  endif()
endfunction()

# A library that is loaded into other people's processes: it exports only what its version script names.
function(braid_injected_library target version_script)
  braid_self_contained(${target})
  # Bound at once: a signal handler's first call of a function takes 2.5 KiB of its stack if the loader has yet to
  # find the function, and the stack may have 8.
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${version_script} -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,nodelete -Wl,-z,now)
  set_target_properties(${target} PROPERTIES LINK_DEPENDS ${version_script})
endfunction()

# A library that programs link: libNAME.so, installed, with the headers of include/braid. CMake finds it as
# braid::EXPORT_NAME, pkg-config as NAME. It calls its own functions, also beside another version in the same process.
function(braid_linked_library target name exports description)
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} INTERFACE cxx_std_17)
  braid_injected_library(${target} ${CMAKE_CURRENT_SOURCE_DIR}/${exports})
  target_link_options(${target} PRIVATE -Wl,-Bsymbolic)
  install(TARGETS ${target} EXPORT braid LIBRARY DESTINATION lib)
  set(pkg_config ${CMAKE_CURRENT_BINARY_DIR}/package/${name}.pc)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/library.pc.in ${pkg_config} @ONLY)
  install(FILES ${pkg_config} DESTINATION lib/pkgconfig)
endfunction()
