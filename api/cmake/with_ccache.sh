#!/bin/sh
# Runs a compiler through ccache, in a build with precompiled headers.
#
# usage: with_ccache.sh CCACHE COMPILER ARGUMENT...
#
# A header is precompiled without ccache. g++ shows ccache the precompiled header of the build
# before in place of the text, so ccache would give back what was made of another text.
for argument in "$@"; do
  if [ "$argument" = c++-header ]; then
    shift
    exec "$@"
  fi
done
# Without both of these settings ccache keeps nothing that uses a precompiled header.
export CCACHE_SLOPPINESS=pch_defines,time_macros
exec "$@"
