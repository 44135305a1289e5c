# What makes a build of this project faster where it is found, and changes nothing else: a compiler
# cache, a quick linker, and checks of addresses that are calls. Only for the top-level project: a
# user's own choice is not ours to make.
set(BACKPLANE_LINKER AUTO CACHE STRING
  "Linker: AUTO (mold or lld where found), DEFAULT (the compiler's own), or a name for -fuse-ld")

if(PROJECT_IS_TOP_LEVEL)
  find_program(BACKPLANE_CCACHE ccache)
  mark_as_advanced(BACKPLANE_CCACHE)
  if(BACKPLANE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_C_COMPILER_LAUNCHER ${BACKPLANE_CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${BACKPLANE_CCACHE})
  endif()

  set(linker ${BACKPLANE_LINKER})
  if(linker STREQUAL "AUTO")
    set(linker DEFAULT)
    include(CheckLinkerFlag)
    foreach(candidate IN ITEMS mold lld)
      check_linker_flag(CXX -fuse-ld=${candidate} BACKPLANE_HAS_${candidate})
      if(BACKPLANE_HAS_${candidate})
        set(linker ${candidate})
        break()
      endif()
    endforeach()
  endif()
  if(NOT linker STREQUAL "DEFAULT")
    foreach(kind IN ITEMS EXE SHARED MODULE)
      string(APPEND CMAKE_${kind}_LINKER_FLAGS " -fuse-ld=${linker}")
    endforeach()
  endif()

  # g++ needs a fifth to a third less time for sources whose checks are not spelled out in line.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*address")
    add_compile_options(
      $<$<COMPILE_LANGUAGE:C,CXX>:--param=asan-instrumentation-with-call-threshold=0>)
  endif()
  message(STATUS "Backplane: linker ${linker}, compiler cache ${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()
