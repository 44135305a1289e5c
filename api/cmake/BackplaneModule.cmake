# backplane_module(<name> [SHARED] SOURCES ... [PUBLIC_HEADERS ...] [LINK ...] [LINK_PRIVATE ...]
#                  [TESTS ...])
#
# Defines the library backplane_<name>, alias backplane::<name>, with the project's language level
# and warnings, and one CTest entry per file in TESTS. Every compiled module uses it.
#   SHARED          Makes a shared library with hidden visibility. Its sources are compiled into the
#                   object library backplane_<name>_objects. The tests link the object library, so
#                   that they reach what is not exported. Generated sources are added to it.
#   PUBLIC_HEADERS  Installed headers, under include/. Private headers are not listed.
#   LINK            Modules whose types appear in the public headers.
#   LINK_PRIVATE    Libraries that only the sources use; users of the module do not see them.
function(backplane_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SHARED" ""
    "SOURCES;PUBLIC_HEADERS;LINK;LINK_PRIVATE;TESTS")
  set(target backplane_${name})

  if(arg_SHARED)
    set(compiled ${target}_objects)
    add_library(${compiled} OBJECT ${arg_SOURCES})
    target_include_directories(${compiled} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include)
    add_library(${target} SHARED $<TARGET_OBJECTS:${compiled}>)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  else()
    set(compiled ${target})
    add_library(${target} STATIC ${arg_SOURCES})
  endif()
  add_library(backplane::${name} ALIAS ${target})
  target_sources(${target} PUBLIC
    FILE_SET HEADERS BASE_DIRS include FILES ${arg_PUBLIC_HEADERS})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} INSTALL_RPATH $ORIGIN)

  target_include_directories(${compiled} PRIVATE ${PROJECT_SOURCE_DIR})
  foreach(library IN LISTS target compiled)
    target_compile_features(${library} PUBLIC cxx_std_20)
    target_link_libraries(${library}
      PUBLIC ${arg_LINK}
      PRIVATE $<BUILD_INTERFACE:backplane::warnings>)
    foreach(private IN LISTS arg_LINK_PRIVATE)
      target_link_libraries(${library} PRIVATE $<BUILD_INTERFACE:${private}>)
    endforeach()
  endforeach()
  set_target_properties(${compiled} PROPERTIES
    C_EXTENSIONS OFF
    CXX_EXTENSIONS OFF
    C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)

  backplane_precompile(${compiled})
  foreach(source IN LISTS arg_TESTS)
    backplane_test(${name} ${source} LINK ${compiled} ${arg_LINK_PRIVATE})
  endforeach()
endfunction()

# backplane_unite(<target> <group> <regex>)
#
# With BACKPLANE_UNITE_SOURCES, compiles the sources of <target> whose paths match <regex> as one
# source. It is for folders whose sources all need the same large templates (of nlohmann-json, of
# CLI11, of the layers): compiled together, they take a third of the time. A name in an anonymous
# namespace must occur once in its group.
function(backplane_unite target group regex)
  if(NOT BACKPLANE_UNITE_SOURCES)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "${regex}")
  set_source_files_properties(${sources} PROPERTIES UNITY_GROUP ${group})
  # g++ mistakes the anonymous namespaces of united sources for anonymous namespaces of headers.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endfunction()

# backplane_precompile(<target>)
#
# With BACKPLANE_PRECOMPILE_HEADERS, reads the headers of the standard library once for all C++
# sources of <target>. They take the compiler more than a third of the time of a source without
# optimisation.
function(backplane_precompile target)
  if(BACKPLANE_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CXX>:${PROJECT_SOURCE_DIR}/api/cmake/standard_headers.hpp>")
  endif()
endfunction()

# backplane_test(<module> <source> [LINK ...])
#
# Defines the GoogleTest program and CTest entry <module>.<stem of source>, such as
# registry.claims_test. The module may have more headers that its tests precompile, in the variable
# <module>_test_headers.
function(backplane_test module source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LINK")
  if(NOT BACKPLANE_BUILD_TESTS)
    return()
  endif()
  cmake_path(GET source STEM stem)
  set(test ${module}.${stem})
  add_executable(${test} ${source})
  target_compile_features(${test} PRIVATE cxx_std_20)
  target_include_directories(${test} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${test} PRIVATE ${arg_LINK} backplane::warnings GTest::gtest_main)
  set_target_properties(${test} PROPERTIES CXX_EXTENSIONS OFF)
  if(BACKPLANE_PRECOMPILE_HEADERS)
    if(DEFINED ${module}_test_headers)
      backplane_test_headers(backplane_${module}_test_headers ${${module}_test_headers})
      target_precompile_headers(${test} REUSE_FROM backplane_${module}_test_headers)
    else()
      backplane_test_headers(backplane_test_headers)
      target_precompile_headers(${test} REUSE_FROM backplane_test_headers)
    endif()
  endif()
  add_test(NAME ${test} COMMAND ${test})
  set_tests_properties(${test} PROPERTIES TIMEOUT 300)
endfunction()

# backplane_runs_long_tests(<result> <kind>)
#
# Sets <result> to whether BACKPLANE_LONG_TESTS selects the long tests of <kind>:
#   devices   the suite over slow devices
#   mutants   the suite over many broken backends
#   versions  what builds libraries of other versions
function(backplane_runs_long_tests result kind)
  set(kinds devices mutants versions)
  foreach(word IN LISTS kind BACKPLANE_LONG_TESTS)
    if(NOT word IN_LIST kinds AND NOT word MATCHES "^(ON|OFF)$")
      message(FATAL_ERROR "BACKPLANE_LONG_TESTS: '${word}' is not ON, OFF, or one of ${kinds}")
    endif()
  endforeach()
  set(is_selected FALSE)
  if(BACKPLANE_LONG_TESTS STREQUAL "ON" OR kind IN_LIST BACKPLANE_LONG_TESTS)
    set(is_selected TRUE)
  endif()
  set(${result} ${is_selected} PARENT_SCOPE)
endfunction()

# backplane_long_test(<kind> <test>...)
#
# Lets CTest skip the tests in builds that do not run the long tests of <kind>.
function(backplane_long_test kind)
  backplane_runs_long_tests(is_run ${kind})
  if(NOT is_run)
    set_tests_properties(${ARGN} PROPERTIES DISABLED TRUE)
  endif()
endfunction()

# backplane_test_headers(<target> [<header>...])
#
# Defines the target whose precompiled headers unit tests use with BACKPLANE_PRECOMPILE_HEADERS:
# reading GoogleTest takes the compiler a second for each test.
function(backplane_test_headers target)
  if(TARGET ${target})
    return()
  endif()
  add_library(${target} OBJECT ${PROJECT_SOURCE_DIR}/api/tests/precompiled.cpp)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_link_libraries(${target} PRIVATE backplane::warnings GTest::gtest)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_precompile_headers(${target} PRIVATE
    <gtest/gtest.h> <algorithm> <array> <cmath> <filesystem> <fstream> <functional> <map> <memory>
    <optional> <random> <set> <string> <thread> <vector> ${ARGN})
endfunction()

# backplane_fuzz_target(<module> <source> CORPUS <folder> [LINK ...])
#
# Defines the program and CTest entry <module>.<stem of source>, such as registry.manifest_fuzz,
# from a source that defines LLVMFuzzerTestOneInput (api/fuzz/fuzz.hpp). CORPUS has the seeds: small
# files, one for each kind of input, and each input that once failed.
#
# In every preset the test runs the seeds and 20,000 mutations of them, which are the same in each
# run (api/fuzz/driver.cpp). In preset fuzz, which needs clang, the program uses libFuzzer:
#
#   cmake --preset fuzz && cmake --build --preset fuzz --target registry.manifest_fuzz
#   mkdir -p found && build/fuzz/bin/registry.manifest_fuzz -max_total_time=60 found \
#     registry/fuzz/corpus/manifest
option(BACKPLANE_USE_LIBFUZZER "Build the fuzz targets with clang's libFuzzer" OFF)
function(backplane_fuzz_target module source)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "CORPUS" "LINK")
  if(NOT BACKPLANE_BUILD_TESTS)
    return()
  endif()
  cmake_path(GET source STEM stem)
  set(target ${module}.${stem})
  set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/${arg_CORPUS})
  add_executable(${target} ${source})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${target} PRIVATE ${arg_LINK} backplane::warnings)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  if(BACKPLANE_USE_LIBFUZZER)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    # libFuzzer writes what it finds into the first folder, so that must not be the folder of the
    # sources.
    set(found ${CMAKE_CURRENT_BINARY_DIR}/found/${stem})
    file(MAKE_DIRECTORY ${found})
    add_test(NAME ${target} COMMAND ${target} -runs=20000 -seed=1 ${found} ${corpus})
  else()
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/api/fuzz/driver.cpp)
    add_test(NAME ${target} COMMAND ${target} ${corpus})
  endif()
  set_tests_properties(${target} PROPERTIES TIMEOUT 300 LABELS fuzz)
endfunction()

# Flags for the project's own code. They are never exported to users. CI alone makes warnings
# errors: a newer compiler with a new warning must not stop a user's build. A member left out of an
# initialiser is zero, and zero means "not given": tables grow in this way, so there is no warning
# about it. When it optimises, g++ 12 reports overlaps in std::string, overruns in std::sort and
# uninitialised variants that are not there; clang-tidy looks for the real ones.
add_library(backplane_warnings INTERFACE)
add_library(backplane::warnings ALIAS backplane_warnings)
target_compile_options(backplane_warnings INTERFACE
  $<$<COMPILE_LANG_AND_ID:C,GNU,Clang>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion
    -Wstrict-prototypes -Wno-missing-field-initializers>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion
    -Wno-missing-field-initializers>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict -Wno-array-bounds
    -Wno-maybe-uninitialized -Wno-stringop-overflow>)

# Debian hardens its programs with these options. FORTIFY checks nothing without optimisation, and
# the sanitizers bring checks of their own. `full RELRO` makes the tables of the dynamic linker
# read-only before main.
if(UNIX AND NOT APPLE AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
  target_compile_options(backplane_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>)
  # Some compilers define it already, and a second definition would be a warning.
  target_compile_options(backplane_warnings INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:
      -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2>)
  target_link_options(backplane_warnings INTERFACE LINKER:-z,relro LINKER:-z,now)
endif()
