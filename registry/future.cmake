# backplane_library_of_future(<target> <folder>)
#
# Makes <target> a libbackplane for tests, with the headers of <folder>: nothing optimises it or
# warns about it.
function(backplane_library_of_future target folder)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_definitions(${target} PRIVATE BP_BUILDING_BACKPLANE)
  # These headers come first.
  target_include_directories(${target} PRIVATE
    ${folder} ${CMAKE_CURRENT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR})
  target_compile_options(${target} PRIVATE -O0 -g0 -U_FORTIFY_SOURCE)
  target_link_libraries(${target} PRIVATE nlohmann_json::nlohmann_json ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    EXPORT_COMPILE_COMMANDS OFF
    LIBRARY_OUTPUT_DIRECTORY ${folder})
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    target_link_options(${target} PRIVATE
      LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/backplane.map)
  endif()
endfunction()

# backplane_relabel(<version> <include> <objects>...)
#
# Defines backplane_<version>, the library of <objects> under another version of the ABI, whose
# headers are those of <include>. The folder future/<version> of the build has the headers and the
# library. Only served_abi.cpp is compiled again, because no other source names the version
# (.ci/check_tree.py), except for the layer oldabi, which the tests do not load.
function(backplane_relabel version include)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/future/${version})
  set(compat ${PROJECT_SOURCE_DIR}/api/tests/compat)
  file(GLOB inputs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/api/include/backplane/*)
  add_custom_command(OUTPUT ${folder}/backplane/base.h
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder}/backplane
    COMMAND ${BACKPLANE_PYTHON} -B ${compat}/future.py ${include} ${folder} ${version}
    DEPENDS ${inputs} ${include}/backplane/ops.h ${compat}/future.py
      ${PROJECT_SOURCE_DIR}/api/tests/boundary.py ${PROJECT_SOURCE_DIR}/api/tests/header_text.py
    COMMENT "Writing the headers of ABI ${version}"
    VERBATIM)
  set(target backplane_${version})
  add_library(${target} SHARED boundary/served_abi.cpp ${folder}/backplane/base.h
    "$<FILTER:$<TARGET_OBJECTS:backplane_future>,INCLUDE,/static_backends\\.cpp>")
  foreach(some IN LISTS ARGN)
    target_sources(${target} PRIVATE
      "$<FILTER:${some},EXCLUDE,/(served_abi|static_backends)\\.cpp>")
  endforeach()
  add_dependencies(${target} backplane_registry_objects backplane_future)
  backplane_library_of_future(${target} ${folder})
endfunction()

# backplane_add_future()
#
# Defines backplane_future, a libbackplane of the next revision of the operators, in which some have
# grown (api/tests/compat/grown_ops.py), and the tests that run it with programs, kernels and
# recordings of now. future/backplane in the build folder has the headers. They keep the version,
# because a host of major 0 refuses every other minor, and this is not about negotiation.
#
# The tests do the same with two minors of the next major: x.0 has the operators of now, and x.1
# those that have grown.
#
# What knows no operator is not compiled again, and the layers are united. Without
# BACKPLANE_LONG_TESTS nothing is compiled for these tests, and they are skipped.
function(backplane_add_future)
  set(future ${CMAKE_CURRENT_BINARY_DIR}/future)
  set(api ${PROJECT_SOURCE_DIR}/api)
  set(compat ${api}/tests/compat)
  set(spec ${PROJECT_SOURCE_DIR}/ops_spec)
  set(version ${BACKPLANE_ABI_MAJOR}.${BACKPLANE_ABI_MINOR})

  file(GLOB inputs CONFIGURE_DEPENDS ${api}/include/backplane/* ${spec}/ops/*.yaml ${spec}/*.py)
  set(emitted ${future}/op_infer.cpp ${future}/decompositions.cpp ${future}/op_descriptions.cpp)
  add_custom_command(OUTPUT ${future}/backplane/ops.h ${emitted}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${future}/backplane ${future}/ops_spec
    COMMAND ${BACKPLANE_PYTHON} -B ${compat}/future.py ${api}/include ${future} ${version}
      --ops ${spec}
    COMMAND ${BACKPLANE_PYTHON} -B ${future}/ops_spec/emit_infer.py ${future}/op_infer.cpp
    COMMAND ${BACKPLANE_PYTHON} -B ${future}/ops_spec/emit_decompositions.py
      ${future}/decompositions.cpp
    COMMAND ${BACKPLANE_PYTHON} -B ${future}/ops_spec/emit_descriptions.py
      ${future}/op_descriptions.cpp
    DEPENDS ${inputs} ${spec}/schema.json ${compat}/future.py ${compat}/grown_ops.py
      ${api}/tests/boundary.py ${api}/tests/header_text.py
    COMMENT "Growing the operators"
    VERBATIM)
  # The backends that are linked into the library are not part of this one.
  file(GENERATE OUTPUT ${future}/static_backends.cpp CONTENT
"#include \"registry/plugins/static_backends.hpp\"

const bp_static_backend kStaticBackends[] = {{nullptr, nullptr}};
const size_t kStaticBackendCount = 0;
")

  get_target_property(sources backplane_registry_objects SOURCES)
  # These sources include neither ops.h nor the version of the ABI.
  set(shared "boundary/(error_slot|tables)|files/sha256|calls/dtypes|state/stream_failures")
  string(APPEND shared "|tensors/(dlpack_export|dlpack_import|layout)")
  string(APPEND shared "|services/(block_addresses|caching_allocator|ended_streams|segments)")
  string(APPEND shared "|services/shared_blocks|plugins/(backend_options|environment)")
  string(APPEND shared "|plugins/host_services")
  list(FILTER sources EXCLUDE REGEX
    "^(${shared})\\.cpp$|/(op_infer|decompositions|op_descriptions|static_backends)\\.cpp$")
  set(objects $<TARGET_OBJECTS:backplane_registry_objects>)
  set(shared_objects "$<FILTER:${objects},INCLUDE,/(${shared})\\.cpp>")
  add_library(backplane_future SHARED
    ${sources} ${emitted} ${future}/backplane/ops.h ${future}/static_backends.cpp
    "${shared_objects}")
  add_dependencies(backplane_future backplane_registry_objects)
  backplane_library_of_future(backplane_future ${future})
  backplane_precompile(backplane_future)
  set(BACKPLANE_UNITE_SOURCES ON)
  backplane_unite(backplane_future layers_record "^layers/record")
  backplane_unite(backplane_future layers_validate "^layers/validate")
  backplane_unite(backplane_future layers_wrap
    "^layers/(diff|leak|mask|oldabi|second_backend|layered_backend)\\.cpp")
  backplane_unite(backplane_future layers_tell
    "^layers/(fault|fault_rules|json_text|list|options|replays|stack|trace|worlds)\\.cpp")

  math(EXPR major "${BACKPLANE_ABI_MAJOR} + 1")
  backplane_relabel(${major}.0 ${api}/include ${objects})
  backplane_relabel(${major}.1 ${future} $<TARGET_OBJECTS:backplane_future> ${shared_objects})

  # The compilers for programs do not name the version, so both majors have the same two.
  set(arguments ${CMAKE_C_COMPILER} ${BACKPLANE_SCAFFOLD_FOLDER}
    --old now ${api}/include $<TARGET_FILE:backplane_registry>
      $<TARGET_FILE:backplane_growth_compiler_now>
    --new grown ${future} $<TARGET_FILE:backplane_future>
      $<TARGET_FILE:backplane_growth_compiler_grown>
    --old ${major}.0 ${future}/${major}.0 $<TARGET_FILE:backplane_${major}.0>
      $<TARGET_FILE:backplane_growth_compiler_now>
    --new ${major}.1 ${future}/${major}.1 $<TARGET_FILE:backplane_${major}.1>
      $<TARGET_FILE:backplane_growth_compiler_grown>
    --host ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/tests/compat/growth.c
    "--flags=${CMAKE_C_FLAGS}")
  add_test(NAME api.growth
    COMMAND ${BACKPLANE_PYTHON} -B ${compat}/growth.py ${CMAKE_CURRENT_BINARY_DIR}/growth
      ${arguments})
  add_test(NAME api.growth_test
    COMMAND ${BACKPLANE_PYTHON} -B ${compat}/growth_test.py ${arguments})
  backplane_long_test(versions api.growth api.growth_test)
  backplane_runs_long_tests(is_run versions)
  if(NOT is_run)
    set_target_properties(backplane_future backplane_${major}.0 backplane_${major}.1 PROPERTIES
      EXCLUDE_FROM_ALL ON)
  endif()
endfunction()
