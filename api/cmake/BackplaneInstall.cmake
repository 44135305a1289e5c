# Installs the files beside programs, libraries and headers.

# Installs the pages of the tree in the same folders as in the tree, so that links between them
# work. The examples come with their sources and data: users build and read them there.
function(backplane_install_documents)
  install(FILES README.md CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  file(GLOB_RECURSE pages RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
    api/*.md backends/*.md conformance/*.md examples/*.md ops_spec/*.md registry/*.md runtime/*.md)
  foreach(page IN LISTS pages)
    cmake_path(GET page PARENT_PATH folder)
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
  endforeach()
  install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
    PATTERN "*_test.py" EXCLUDE PATTERN "__pycache__" EXCLUDE)
endfunction()

# Installs <name>.pc, with which build systems other than CMake find the library. Its paths are
# relative to the file, so that a prefix can be moved.
function(backplane_install_pkg_config name)
  set(folder ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${folder} OUTPUT_VARIABLE to_prefix)
  configure_file(
    ${PROJECT_SOURCE_DIR}/api/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
