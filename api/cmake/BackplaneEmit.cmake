# Generates sources. The emitters in ops_spec need Python with PyYAML and jsonschema; if several
# Pythons are on the path, one that has both is used.
function(backplane_has_spec_modules result python)
  execute_process(COMMAND ${python} -c "import yaml, jsonschema; jsonschema.Draft202012Validator"
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

find_program(BACKPLANE_PYTHON NAMES python3.13 python3.12 python3.11 python3
  HINTS /usr/bin VALIDATOR backplane_has_spec_modules
  DOC "Python 3.10 or newer with PyYAML and jsonschema")
if(NOT BACKPLANE_PYTHON)
  message(FATAL_ERROR
    "Backplane generates sources with Python 3, PyYAML and jsonschema, and found no Python that "
    "has both. On Debian and Ubuntu: apt install python3 python3-yaml python3-jsonschema. "
    "Another Python is chosen with -DBACKPLANE_PYTHON=/path/to/python3.")
endif()

# backplane_emit(<target> <script> <output>)
#
# Adds <output>, a path below the current binary folder, to the sources of <target>. <script>, a
# path below the current source folder, is called as `script OUTPUT` and writes it; it may import
# what is in ops_spec. It runs again when the spec or the script has changed.
function(backplane_emit target script output)
  cmake_path(ABSOLUTE_PATH script)
  cmake_path(ABSOLUTE_PATH output BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  set(spec ${PROJECT_SOURCE_DIR}/ops_spec)
  # The emitters read every file of the folder, so a family that is added must run them again.
  file(GLOB inputs CONFIGURE_DEPENDS ${spec}/ops/*.yaml)
  cmake_path(GET output FILENAME name)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${spec} PYTHONDONTWRITEBYTECODE=1
      ${BACKPLANE_PYTHON} ${script} ${output}
    DEPENDS ${script} ${inputs} ${spec}/schema.json ${spec}/spec.py ${spec}/expressions.py
      ${spec}/classes.py ${spec}/compute.py ${spec}/reduce.py
      ${spec}/elementwise.py ${spec}/reductions.py
      ${spec}/emit_highway.py ${spec}/emit_cuda.py ${spec}/emit_glsl.py
      ${PROJECT_SOURCE_DIR}/conformance/emit_elementwise.py
      ${spec}/primitives.py ${spec}/formulas.py
      ${spec}/generate.py ${spec}/signatures.py ${spec}/gradient_code.py
    COMMENT "Emitting ${name}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
