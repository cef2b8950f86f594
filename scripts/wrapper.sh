# shellcheck shell=sh disable=SC2086,SC2154
# What ./plan and ./test share: find what is missing, install it, configure, build. POSIX sh, sourced
# with $here (the root of the tree) and $me (the name to speak under) set. Speaks on stderr only.
#
#   PLAN_NO_INSTALL=1   never touch the system; only name what is missing (exit 3)
#   PLAN_CMAKE_ARGS     more arguments for the first `cmake --preset`

. "$here/scripts/packages.sh"

say() { printf '%s: %s\n' "$me" "$*" >&2; }
give_up() {
  say "$*"
  exit 3
}

# package, and how to recognise it where it did not come from a package: a command or a header.
known_packages='
g++ command:c++
cmake command:cmake
ninja-build command:ninja
libboost-dev header:boost/graph/adjacency_list.hpp
libeigen3-dev header:eigen3/Eigen/Core header:Eigen/Core
nlohmann-json3-dev header:nlohmann/json.hpp
libfmt-dev header:fmt/format.h
libcli11-dev header:CLI/CLI.hpp
libcsv-dev header:csv.h
libxxhash-dev header:xxhash.h
libzstd-dev header:zstd.h
libdnnl-dev header:dnnl.h
ocl-icd-opencl-dev header:CL/cl.h
catch2 header:catch2/catch.hpp header:catch2/catch_all.hpp
libbenchmark-dev header:benchmark/benchmark.h
libopenmpi-dev command:mpicxx
openmpi-bin command:mpirun
qt6-base-dev header:qt6/QtWidgets/QWidget
qt6-charts-dev header:qt6/QtCharts/QChart
libqt6opengl6-dev header:qt6/QtOpenGL/QtOpenGL
qt6-svg-dev header:qt6/QtSvg/QSvgGenerator
fonts-dejavu-core command:fc-list
clang-format command:clang-format
mmdebstrap command:mmdebstrap
python3 command:python3
groff-base command:groff
zsh command:zsh
'

# is_there PROBE...: one of the probes succeeds.
is_there() {
  for probe; do
    case $probe in
    command:*) command -v "${probe#command:}" >/dev/null 2>&1 && return 0 ;;
    header:*)
      # shellcheck disable=SC2046  # one option per folder of CMAKE_PREFIX_PATH
      printf '#if !__has_include(<%s>)\n#error\n#endif\n' "${probe#header:}" |
        ${CXX:-c++} $(printf '%s' "${CMAKE_PREFIX_PATH:-}" | tr ':' '\n' | sed '/./s|.*|-I&/include|') \
          -E -x c++ - >/dev/null 2>&1 && return 0
      ;;
    esac
  done
  return 1
}

# missing_of PACKAGE...: prints those that neither dpkg nor a probe finds.
missing_of() {
  for package; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' && continue
    # shellcheck disable=SC2046
    is_there $(printf '%s' "$known_packages" | sed -n "s/^$package //p") && continue
    printf '%s ' "$package"
  done
}

# need_packages PACKAGE...: returns when all are there, having installed what was not.
need_packages() {
  missing=$(missing_of "$@")
  missing=${missing% }
  [ -n "$missing" ] || return 0
  [ "${PLAN_NO_INSTALL:-0}" != 1 ] || give_up "missing packages (PLAN_NO_INSTALL=1): $missing"
  command -v apt-get >/dev/null 2>&1 ||
    give_up "missing, and there is no apt-get to install them with: $missing (Debian's names)"
  as_root=
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
      give_up "missing packages: $missing; as root: apt-get install $missing"
    as_root=sudo
    [ -t 2 ] || as_root='sudo -n' # nobody is there to type a password
  fi
  say "installing: $missing"
  log=$(mktemp)
  # Should the update fail, the lists that are there may still do.
  if { $as_root apt-get update -qq || true
       $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
         --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2 $missing
     } >"$log" 2>&1 </dev/null; then
    rm -f "$log"
  else
    tail -n 40 "$log" >&2
    rm -f "$log"
    give_up "could not install: $missing"
  fi
}

# fetch_cudnn_frontend: where cuDNN is, the headers of its frontend, which Debian does not have, into
# build/cudnn-frontend: from the Python package they come in. Without them attention by cuDNN is not
# built, and nothing else is missing.
fetch_cudnn_frontend() {
  place=$here/build/cudnn-frontend
  [ ! -f "$place/include/cudnn_frontend.h" ] && [ "${PLAN_NO_INSTALL:-0}" != 1 ] || return 0
  cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")")
  [ -f "$cuda/include/cudnn.h" ] || is_there header:cudnn.h || return 0
  why=$(fetch_into "$place" 2>&1) ||
    say "attention by cuDNN will not be built; its frontend cannot be fetched: $(printf '%s' "$why" | tail -n 1)"
  rm -rf "$place.next"
}
fetch_into() {
  rm -rf "$1.next" && mkdir -p "$1.next" && cd "$1.next" &&
    python3 -m pip download -q --no-deps --only-binary=:all: nvidia-cudnn-frontend==1.32.0 &&
    python3 -m zipfile -e ./*.whl . && rm -rf "$1" && mkdir "$1" && mv include "$1"
}

# unchanged PRESET: nothing was edited, added, removed, committed or installed since the last build.
# Cheaper than asking ninja, and no more optimistic: it compares times, as ninja does.
unchanged() {
  built=$here/build/$1/built
  [ -f "$built" ] || return 1
  read -r where <"$built" || return 1
  [ "$where" = "$here" ] || return 1
  [ -z "$(cd "$here" && find CMakeLists.txt CMakePresets.json cmake scripts/wrapper.sh scripts/packages.sh \
    $sources .git/HEAD .git/logs/HEAD /var/lib/dpkg/status -newer "$built" -print -quit 2>/dev/null)" ]
}

# quietly LOG COMMAND...: runs it with its output in LOG, and shows the end of LOG when it fails.
quietly() {
  log=$1
  shift
  "$@" >"$log" 2>&1 </dev/null && return 0
  tail -n 40 "$log" >&2
  return 1
}

# up_to_date PRESET PACKAGE...: builds what changed. One process at a time does so; the others wait.
up_to_date() {
  preset=$1
  shift
  ! unchanged "$preset" || return 0
  tree=$here/build/$preset
  { mkdir -p "$tree" 2>/dev/null && [ -w "$here/build" ] && [ -w "$tree" ]; } ||
    give_up "cannot write $tree"
  exec 9>"$here/build/$preset.lock"
  ! command -v flock >/dev/null 2>&1 || flock 9
  if ! unchanged "$preset"; then
    build "$preset" "$@"
  fi
  exec 9>&-
}

build() {
  preset=$1
  shift
  need_packages "$@" 9>&-
  case $preset in release | cuda) fetch_cudnn_frontend 9>&- ;; esac
  if [ -f "$tree/CMakeCache.txt" ] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$here" "$tree/CMakeCache.txt"; then
    rm -rf "$tree" # the tree was moved or copied
    mkdir -p "$tree"
  fi
  printf '%s\n' "$here" >"$tree/built.next" # what changes from here on is for the next build
  if [ ! -f "$tree/build.ninja" ] ||
    [ -n "$(find "$here/CMakePresets.json" -newer "$tree/build.ninja")" ]; then
    say "configuring"
    (cd "$here" && quietly "$tree/configure.log" cmake --preset "$preset" ${PLAN_CMAKE_ARGS:-}) 9>&- ||
      give_up "could not configure; all of it is in $tree/configure.log"
  fi
  if [ ! -f "$tree/built" ]; then
    say "building for the first time"
  else
    say "building what changed"
  fi
  if [ -t 2 ]; then # somebody watches: show ninja's progress
    cmake --build "$tree" --parallel >&2 </dev/null 9>&- || give_up "the build failed"
  else
    quietly "$tree/build.log" cmake --build "$tree" --parallel 9>&- ||
      give_up "the build failed; all of it is in $tree/build.log"
  fi
  mv "$tree/built.next" "$tree/built"
}
