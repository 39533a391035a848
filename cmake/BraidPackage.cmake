# What an installation holds beside the targets, and `make package`: a tarball and a .deb.
set(documents share/doc/braid)
install(FILES README.md HACKING.md LICENSE THIRD_PARTY_NOTICES DESTINATION ${documents})
# Debian looks for licences in a file of this name.
file(STRINGS LICENSE copyright REGEX "Copyright [0-9]+ ")
string(STRIP "${copyright}" copyright)
file(READ THIRD_PARTY_NOTICES notices)
configure_file(cmake/copyright.in ${CMAKE_BINARY_DIR}/copyright @ONLY)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS LICENSE THIRD_PARTY_NOTICES)
install(FILES ${CMAKE_BINARY_DIR}/copyright DESTINATION ${documents})
install(DIRECTORY docs examples DESTINATION ${documents})
install(DIRECTORY python DESTINATION share/braid PATTERN __pycache__ EXCLUDE)

# A build without nvcc is for one machine's emulated servers.
if(NOT BRAID_NVCC OR BRAID_SANITIZE)
  return()
endif()
# tests/package holds every file to it. A newer compiler's libraries may need all that its glibc has.
set(oldest_glibc 2.35)
execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE glibc)
string(REGEX REPLACE "[^0-9.]" "" glibc "${glibc}")
if(glibc VERSION_GREATER 2.36)
  set(oldest_glibc ${glibc})
endif()

set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
string(REGEX REPLACE "Copyright [0-9]+ " "" CPACK_PACKAGE_CONTACT "${copyright}")
set(CPACK_PACKAGE_VENDOR ${CPACK_PACKAGE_CONTACT})
set(CPACK_PACKAGE_FILE_NAME braid-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${oldest_glibc})")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libfabric1, libcurl4")  # loaded where they are
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/PackageRights.cmake)
set(CMAKE_SKIP_PACKAGE_ALL_DEPENDENCY ON)  # the tests are no part of it
include(CPack)
