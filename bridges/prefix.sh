# shellcheck shell=bash
# Sourced by the programs of the bridges.

# Prints the full path of an installed Backplane, or says what is wrong and returns 1.
installed_prefix() {
  local path
  if ! path=$(realpath -e "$1" 2>/dev/null); then
    printf '%s does not exist; allowed: the folder of an installed Backplane\n' "$1" >&2
    return 1
  fi
  if ! compgen -G "$path/lib*/cmake/Backplane/BackplaneConfig.cmake" >/dev/null &&
    ! compgen -G "$path/lib/*/cmake/Backplane/BackplaneConfig.cmake" >/dev/null; then
    printf '%s has no Backplane; install one there: cmake --install build/release --prefix %s\n' \
      "$path" "$path" >&2
    return 1
  fi
  printf '%s\n' "$path"
}
