# backplane_add_backend(<name> SOURCES ... [LINK ...] [MANIFEST <vendor.backend>])
#
# Defines the plugin <name>: a loadable module that exports bp_backend_entry and nothing else. The
# plugin does not link while a symbol of it is undefined. The backends in this tree use the
# function, and so do vendors through find_package(Backplane).
#   LINK      Libraries that the backend needs, such as the vendor's driver.
#   MANIFEST  The backend's name. With it the function writes <name>.json into backends.d of the
#             build tree, where hosts discover the plugin. It installs the plugin into
#             lib/backplane, and the manifest into lib/backplane/backends.d, with the waivers.yaml
#             of the folder beside it.

# The ABI that this package's headers define; .ci/check_tree.py compares it with base.h.
set(BACKPLANE_ABI_MAJOR 0)
set(BACKPLANE_ABI_MINOR_MIN 3)
set(BACKPLANE_ABI_MINOR 4)

function(backplane_add_backend name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MANIFEST" "SOURCES;LINK")
  add_library(${name} MODULE ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE backplane::api ${arg_LINK})
  set_target_properties(${name} PROPERTIES
    C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    INSTALL_RPATH $ORIGIN)

  # The C++ library's own headers mark symbols visible, which hidden visibility leaves exported. The
  # version script does not.
  if(UNIX AND NOT APPLE)
    set(map ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/backend.map)
    target_link_options(${name} PRIVATE LINKER:--version-script=${map})
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${map})
    backplane_refuse_undefined_symbols(${name})
  endif()

  if(arg_MANIFEST)
    backplane_write_manifest(${name} ${arg_MANIFEST})
    backplane_copy_waivers(${name})
  endif()
  if(name IN_LIST BACKPLANE_LINK_STATIC_BACKENDS)
    backplane_add_static_backend(${name} "${arg_MANIFEST}"
      SOURCES ${arg_SOURCES} LINK ${arg_LINK})
  endif()
endfunction()

# Makes a symbol that no library of LINK has an error when the plugin is linked, not when it is
# loaded. Sanitizers leave symbols to the program that they watch, so their builds may have
# undefined symbols.
function(backplane_refuse_undefined_symbols target)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" config)
  foreach(flags IN ITEMS C_FLAGS CXX_FLAGS MODULE_LINKER_FLAGS)
    if("${CMAKE_${flags}} ${CMAKE_${flags}_${config}}" MATCHES "-fsanitize=")
      return()
    endif()
  endforeach()
  target_link_options(${target} PRIVATE LINKER:-z,defs)
endfunction()

# Writes the manifest of the build tree, and installs the plugin with a manifest of its own. In the
# installed manifest the path of the library is relative to the manifest, so that a prefix can be
# moved.
function(backplane_write_manifest target backend)
  include(GNUInstallDirs)
  set(major ${BACKPLANE_ABI_MAJOR})
  set(minor_min ${BACKPLANE_ABI_MINOR_MIN})
  set(minor ${BACKPLANE_ABI_MINOR})
  set(content [[{
  "name": "@backend@",
  "library": "@library@",
  "abi": {"major": @major@, "minor_min": @minor_min@, "minor": @minor@}
}
]])
  set(folder ${CMAKE_BINARY_DIR}/backends.d)
  set(library $<PATH:RELATIVE_PATH,$<TARGET_FILE:${target}>,${folder}>)
  string(CONFIGURE "${content}" manifest @ONLY)
  file(GENERATE OUTPUT ${folder}/${target}.json CONTENT "${manifest}")

  set(library ../$<TARGET_FILE_NAME:${target}>)
  string(CONFIGURE "${content}" manifest @ONLY)
  set(installed ${CMAKE_CURRENT_BINARY_DIR}/manifest/${target}.json)
  file(GENERATE OUTPUT ${installed} CONTENT "${manifest}")
  backplane_install_built(${target} ${CMAKE_INSTALL_LIBDIR}/backplane)
  # A manifest without its plugin would promise a backend that is not there.
  backplane_install_beside(${target} ${installed} backends.d ${target}.json)
endfunction()

# Installs a program or a plugin if it was built, and otherwise says that it was not. So a build of
# only a few targets can be installed too.
function(backplane_install_built target folder)
  install(TARGETS ${target} RUNTIME DESTINATION ${folder} OPTIONAL
    LIBRARY DESTINATION ${folder} OPTIONAL)
  set(build "cmake --build ${CMAKE_BINARY_DIR} --target ${target}")
  install(CODE "
    if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
      message(STATUS \"Not built, so not installed: ${target} (${build})\")
    endif()")
endfunction()

# Installs a file as lib/backplane/<folder>/<name> if plugin <target> was built. The script of the
# installation asks for the plugin when it runs.
function(backplane_install_beside target file folder name)
  set(destination ${CMAKE_INSTALL_LIBDIR}/backplane/${folder})
  install(CODE "
    if(EXISTS \"$<TARGET_FILE:${target}>\")
      file(INSTALL DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${destination}\" TYPE FILE
        FILES \"${file}\" RENAME \"${name}\")
    endif()")
endfunction()

# Puts the waivers of the backend beside the plugin, where bp-conformance looks, if the folder has
# any.
function(backplane_copy_waivers target)
  set(waivers ${CMAKE_CURRENT_SOURCE_DIR}/waivers.yaml)
  if(NOT EXISTS ${waivers})
    return()
  endif()
  include(GNUInstallDirs)
  set(name ${CMAKE_SHARED_MODULE_PREFIX}${target}.waivers.yaml)
  set(folder ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  if(NOT folder)
    set(folder ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  configure_file(${waivers} ${folder}/${name} COPYONLY)
  backplane_install_beside(${target} ${waivers} . ${name})
endfunction()

# Builds the same backend as a static library <target>_static. Its entry has a name of its own,
# because two backends in one program cannot both define bp_backend_entry.
function(backplane_add_static_backend target backend)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LINK")
  set(twin ${target}_static)
  add_library(${twin} STATIC ${arg_SOURCES})
  # Generator expressions read these at the end, so what the backend adds to its plugin after the
  # call counts too.
  target_include_directories(${twin} PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  target_compile_definitions(${twin} PRIVATE
    $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>
    bp_backend_entry=bp_backend_entry_${target})
  target_compile_options(${twin} PRIVATE $<TARGET_PROPERTY:${target},COMPILE_OPTIONS>)
  target_compile_features(${twin} PRIVATE $<TARGET_PROPERTY:${target},COMPILE_FEATURES>)
  target_link_libraries(${twin} PRIVATE backplane::api ${arg_LINK})
  set_target_properties(${twin} PROPERTIES
    BACKPLANE_NAME "${backend}"
    C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
endfunction()

# Generates the table of the backends in BACKPLANE_LINK_STATIC_BACKENDS into the build tree, adds it
# to the shared module <target>, and links the backends. registry/plugins/static_backends.hpp
# declares the table.
function(backplane_link_static_backends target)
  set(declarations "")
  set(rows "")
  set(count 0)
  foreach(backend IN LISTS BACKPLANE_LINK_STATIC_BACKENDS)
    set(entry bp_backend_entry_${backend})
    string(APPEND declarations "extern \"C\" bp_backend_entry_fn ${entry};\n")
    string(APPEND rows
      "    {\"$<TARGET_PROPERTY:${backend}_static,BACKPLANE_NAME>\", ${entry}},\n")
    math(EXPR count "${count} + 1")
    target_link_libraries(${target} PRIVATE ${backend}_static)
    target_link_libraries(${target}_objects PRIVATE ${backend}_static)
  endforeach()
  set(table ${CMAKE_CURRENT_BINARY_DIR}/static_backends.cpp)
  file(GENERATE OUTPUT ${table} CONTENT
"// Written by CMake from BACKPLANE_LINK_STATIC_BACKENDS.
#include \"registry/plugins/static_backends.hpp\"

${declarations}
const bp_static_backend kStaticBackends[] = {
${rows}    {nullptr, nullptr},
};
const size_t kStaticBackendCount = ${count};
")
  target_sources(${target}_objects PRIVATE ${table})
endfunction()

# Refuses a name in BACKPLANE_LINK_STATIC_BACKENDS that no backend of the build has.
function(backplane_check_static_backends)
  foreach(backend IN LISTS BACKPLANE_LINK_STATIC_BACKENDS)
    if(NOT TARGET ${backend}_static)
      message(FATAL_ERROR
        "BACKPLANE_LINK_STATIC_BACKENDS: ${backend} is not a backend of this build")
    endif()
  endforeach()
endfunction()
