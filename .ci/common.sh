# quickstart, test and the scripts beside this file source it; nobody runs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*"; }

die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

usage_error() {
  printf '%s: %s; see %s --help\n' "${0##*/}" "$*" "$0" >&2
  exit 2
}

# Prints the comment block at the head of the script, which is its manual.
print_help() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; }

# Runs one step under a title, says how long the step took, and ends the script if it fails.
step() {
  local title=$1 begin=$SECONDS
  shift
  say "==> $title"
  "$@" || die "failed: $title"
  say "    $((SECONDS - begin)) s"
}

# Prints the number of compiler processes: one per core, but each needs 1 GiB of memory.
default_jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  if ((memory < 1)); then memory=1; fi
  say $((cores < memory ? cores : memory))
}

# A gate that is run by itself, without .ci/run, takes the default.
: "${BACKPLANE_CI_JOBS:=$(default_jobs)}"

# Prints a number from 0 to N - 1 for the arguments N and BLOCK. The hash of the commit chooses it,
# so that commits take turns. Choices that must not depend on each other have different BLOCKs: the
# first has 1, and each other one the product of N and BLOCK of the one before.
turn() {
  local commit
  commit=$(git rev-parse --short=7 HEAD) || die "there is no commit that could choose a part"
  say $((16#$commit / $2 % $1))
}

# Prints which of the work runs that takes longest. It is a word of BACKPLANE_CI_PART, or in CI
# (CI=true) one that the hash of the commit chooses, because a run of all takes more than an hour on
# two cores:
#   cuda     the cuda backend is built with its device code and for the emulated device, and tested;
#            sim and vulkan are not
#   devices  the suite over slow devices, and the tests that build libraries of other versions
#   mutants  the tests that start the suite over many broken backends
#   asan     the tests of the gate asan; sim and vulkan are not built
#   all      everything; the default outside CI
ci_part() {
  local parts=(cuda devices mutants asan) part=${BACKPLANE_CI_PART:-}
  if [[ -z $part && ${CI:-} == true ]]; then part=${parts[$(turn 4 1)]}; fi
  part=${part:-all}
  [[ " all ${parts[*]} " == *" $part "* ]] ||
    die "BACKPLANE_CI_PART is '$part'; allowed: all ${parts[*]}"
  say "$part"
}

# Checks the number given to --jobs.
check_jobs() {
  [[ ${1:-} =~ ^[1-9][0-9]*$ ]] || usage_error "--jobs takes a number from 1, not '${1:-}'"
}

# The compile commands by which the gates check sources with other tools than the build's compiler.
database=build/ci/commands/compile_commands.json

# Prints the files that match the patterns and that the last commit changed, or those since commit
# BACKPLANE_CI_BASE.
changed_files() {
  local base
  if ! base=$(git rev-parse --quiet --verify "${BACKPLANE_CI_BASE:-HEAD~1}^{commit}"); then
    base=$(git hash-object -t tree /dev/null)
  fi
  git diff --name-only --diff-filter=AMR "$base" HEAD -- "$@"
}

# Writes the database, and prints the sources that the last commit changed, or those since commit
# BACKPLANE_CI_BASE, one per line. Only sources that the build of preset dev compiles are printed,
# because others have no flags to check them with. The order depends on the commit, so that a limit
# selects other sources each time.
changed_sources() {
  local built=build/dev/compile_commands.json file
  [[ -f $built ]] || die "no $built: run ./test first"
  python3 .ci/compile_commands.py "$built" "${database%/*}"
  changed_files '*.c' '*.cpp' |
    shuf --random-source=<(yes "$(git rev-parse HEAD)") |
    while IFS= read -r file; do
      ! grep -qF "\"$PWD/$file\"" "$database" || printf '%s\n' "$file"
    done
}
