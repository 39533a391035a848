# CPack runs this before it packs what is in CPACK_TEMPORARY_DIRECTORY. The umask of whoever makes the packages is in the
# rights of folders there, and would be in those of everybody's /usr.
file(GLOB_RECURSE paths LIST_DIRECTORIES true ${CPACK_TEMPORARY_DIRECTORY}/*)
foreach(path ${CPACK_TEMPORARY_DIRECTORY} ${paths})
  if(IS_DIRECTORY ${path} AND NOT IS_SYMLINK ${path})
    file(CHMOD ${path} PERMISSIONS
         OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endif()
endforeach()
