# shellcheck shell=sh disable=SC2046,SC2086,SC2154
# What ./plan and ./test share: find what is missing, install it, configure, build. POSIX sh, sourced
# with $here (the root of the tree) and $me (the name to speak under) set. Speaks on stderr only.
#
#   PLAN_NO_INSTALL=1   never touch the system; only name what is missing (exit 3)
#   PLAN_CMAKE_ARGS     more arguments for `cmake --preset release`
#
# There is one tree, build/release. It begins with what the first command needs, and grows: another
# command configures more of it and compiles what is not there yet, and nothing again.

tree=$here/build/release
. "$here/scripts/packages.sh"

say() { printf '%s: %s\n' "$me" "$*" >&2; }
give_up() {
  say "$*"
  exit 3
}

# package, and how to recognise it where it did not come from a package: a command, a header or a file.
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
libyaml-cpp-dev header:yaml-cpp/yaml.h
libtomlplusplus-dev header:toml++/toml.h
libdnnl-dev header:dnnl.h
libssl-dev header:openssl/hmac.h
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
clang command:clang++
libclang-rt-dev file:/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a
libomp-dev file:/usr/lib/llvm-*/lib/libomp.so
mmdebstrap command:mmdebstrap
python3 command:python3
groff-base command:groff
zsh command:zsh
slurmctld command:slurmctld file:/usr/sbin/slurmctld
slurmd command:slurmd file:/usr/sbin/slurmd
slurm-client command:srun
munge command:munge
iproute2 command:ip file:/sbin/ip
'

# is_there PROBE...: one of the probes succeeds.
is_there() {
  for probe; do
    case $probe in
    command:*) command -v "${probe#command:}" >/dev/null 2>&1 && return 0 ;;
    file:*) for one in ${probe#file:}; do [ ! -e "$one" ] || return 0; done ;;
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
  say "installing $(printf '%s\n' $missing | grep -c .) packages and what they need: $missing"
  log=$(mktemp)
  : >"$log.failed"
  # Should the update fail, the lists that are there may still do.
  {
    $as_root apt-get update -qq || true
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2 \
      -o APT::Status-Fd=1 $missing && rm "$log.failed"
  } 2>&1 </dev/null | follow "$log"
  if [ -f "$log.failed" ]; then
    tail -n 40 "$log" >&2
    rm -f "$log" "$log.failed"
    give_up "could not install: $missing"
  fi
  rm -f "$log"
  installed=yes
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

# follow LOG: writes what it reads to LOG and says how far it is: of ninja, "[37/94] Building ...", and
# of apt, "dlstatus:5:12.5:..." and "pmstatus:g++:12.5:...". On a terminal one line that rewrites itself,
# otherwise a line every quarter of a minute.
follow() {
  started=$(date +%s)
  next=$started
  while IFS= read -r line; do
    case $line in
    dlstatus:* | pmstatus:*)
      percent=${line#*:*:}
      far="$(case $line in d*) echo downloading ;; *) echo installing ;; esac) ${percent%%[.:]*} %"
      at=0
      ;;
    '[0/'*) printf '%s\n' "$line" >&3 && continue ;;
    '['*/*'] '*)
      printf '%s\n' "$line" >&3
      of=${line#\[}
      of=${of%%]*}
      at=${of%/*}
      of=${of#*/}
      far="compiling $at of $of"
      ;;
    *) printf '%s\n' "$line" >&3 && continue ;;
    esac
    now=$(date +%s)
    if [ ! -t 2 ]; then
      [ "$now" -ge "$next" ] || continue
      next=$((now + 15))
    fi
    left=
    if [ "$at" -gt 0 ] && [ $((now - started)) -ge 15 ] && [ "$at" -lt "$of" ]; then
      left=", about $(duration $(((now - started) * (of - at) / at))) left"
    fi
    if [ -t 2 ]; then
      printf '\r%s: %s%s\033[K' "$me" "$far" "$left" >&2
    else
      say "$far$left"
    fi
  done 3>"$1"
  [ ! -t 2 ] || printf '\r\033[K' >&2
}
# duration SECONDS: "40 s" or "3 min".
duration() {
  if [ "$1" -lt 90 ]; then
    echo "$((($1 + 9) / 10 * 10)) s"
  else
    echo "$((($1 + 59) / 60)) min"
  fi
}

# What is asked for is one of the programs (plan, plan-run, plan-gui, echelon_cuda), as words in
# $wanted, or all, which is everything with its tests. $marker is as old as what was built last and
# says where and what that was.

# traits_of WANTED...: sets $sources, the folders these are compiled from, $parts, the options of CMake
# that they need, $purpose, their list in packages.sh, and $seconds, what they take of one processor
# (measured on two cores of a shared machine, without a compiler cache, between its fast hours and its
# slow ones: plan took 180 to 340).
traits_of() {
  sources='core topologies costmodel planner evaluation interop report cli'
  parts=
  purpose=plan
  seconds=0
  for one; do
    case $one in
    plan) seconds=$((seconds + 250)) ;;
    plan-run)
      sources="$sources runtime"
      parts="$parts ECHELON_RUNTIME"
      case $purpose in plan) purpose=run ;; esac
      seconds=$((seconds + 150))
      ;;
    plan-gui)
      sources="$sources gui"
      parts="$parts ECHELON_RUNTIME ECHELON_GUI"
      purpose=gui
      seconds=$((seconds + 90))
      ;;
    echelon_cuda)
      parts="$parts ECHELON_RUNTIME ECHELON_CUDA"
      seconds=$((seconds + 400))
      ;;
    all)
      sources="$sources runtime gui bench tests"
      parts="$parts ECHELON_RUNTIME ECHELON_GUI ECHELON_BENCH BUILD_TESTING"
      purpose='test'
      seconds=$((seconds + 1300))
      ;;
    esac
  done
}

# unchanged: nothing was edited, added, removed, committed or installed since the last build, and that
# built what is wanted. Cheaper than asking ninja, and no more optimistic: it compares times, as ninja
# does.
unchanged() {
  [ -f "$marker" ] || return 1
  { read -r where && read -r there; } <"$marker" || return 1
  [ "$where" = "$here" ] || return 1
  for one in $wanted; do
    case " $there " in *" $one "*) ;; *) return 1 ;; esac
  done
  traits_of $there
  [ -z "$(cd "$here" && find CMakeLists.txt CMakePresets.json cmake scripts/wrapper.sh \
    scripts/packages.sh $sources .git/HEAD .git/logs/HEAD /var/lib/dpkg/status -newer "$marker" \
    -print -quit 2>/dev/null)" ]
}

# quietly LOG COMMAND...: runs it with its output in LOG, and shows the end of LOG when it fails.
quietly() {
  log=$1
  shift
  "$@" >"$log" 2>&1 </dev/null && return 0
  tail -n 40 "$log" >&2
  return 1
}

# up_to_date WANTED...: builds what changed. One process at a time does so; the others wait.
up_to_date() {
  wanted=$*
  marker=$tree/built
  [ "$wanted" != all ] || marker=$tree/built.all
  ! unchanged || return 0
  { mkdir -p "$tree" 2>/dev/null && [ -w "$here/build" ] && [ -w "$tree" ]; } ||
    give_up "cannot write $tree"
  exec 9>"$here/build/release.lock"
  if command -v flock >/dev/null 2>&1 && ! flock -n 9; then
    say "waiting for another build here to end"
    flock 9
  fi
  unchanged || build
  exec 9>&-
}

build() {
  # What was built once stays up to date.
  there=
  if [ -f "$marker" ]; then
    { read -r where && read -r there; } <"$marker" || there=
    for one in $there; do
      case " $wanted " in *" $one "*) ;; *) wanted="$wanted $one" ;; esac
    done
  fi
  traits_of $wanted
  installed=
  need_packages $(packages_of $purpose) 9>&-
  case " $wanted " in *" all "* | *" echelon_cuda "*) fetch_cudnn_frontend 9>&- ;; esac
  if [ -f "$tree/CMakeCache.txt" ] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$here" "$tree/CMakeCache.txt"; then
    rm -rf "$tree" # the tree was moved or copied
    mkdir -p "$tree"
    there=
  fi
  printf '%s\n%s\n' "$here" "$wanted" >"$marker.next" # what changes from here on is for the next build
  configure
  compile
  mv "$marker.next" "$marker"
  case " $wanted " in *" all "*) programs_are_built ;; esac
}

# programs_are_built: with all, the programs that all holds were.
programs_are_built() {
  there=
  for one in plan plan-run plan-gui; do
    [ ! -x "$tree/cli/$one" ] || there="$there $one"
  done
  [ ! -f "$tree/cli/echelon_cuda.so" ] || there="$there echelon_cuda"
  printf '%s\n%s\n' "$here" "$there" >"$tree/built"
  touch -r "$marker" "$tree/built"
}

# configure: for the $parts that are wanted and those that were before.
configure() {
  before=
  before_with=
  if [ -f "$tree/configured" ]; then
    { read -r before && read -r before_with; } <"$tree/configured" || true
  fi
  if [ -f "$tree/CMakeCache.txt" ]; then # somebody may have turned on more by hand
    before="$before $(sed -n 's/^\([A-Z_]*\):[A-Z]*=ON$/\1/p' "$tree/CMakeCache.txt" |
      grep -xE 'ECHELON_(RUNTIME|GUI|BENCH|CUDA)|BUILD_TESTING' | tr '\n' ' ')"
  fi
  now_with=${PLAN_CMAKE_ARGS:-$before_with}
  needed=
  again=$installed
  case " $wanted " in # an nvcc that is no package may have come
  *" echelon_cuda "*) [ -f "$tree/cli/echelon_cuda.so" ] || again=yes ;;
  esac
  for part in $parts; do
    case " $before " in *" $part "*) ;; *) needed="$needed $part" ;; esac
  done
  if [ -f "$tree/build.ninja" ] && [ -f "$tree/configured" ] && [ -z "$needed$again" ] &&
    [ "$now_with" = "$before_with" ] &&
    [ -z "$(find "$here/CMakePresets.json" -newer "$tree/build.ninja")" ]; then
    return 0
  fi
  say "configuring"
  rm -f "$tree/configured"
  options=
  for part in ECHELON_RUNTIME ECHELON_GUI ECHELON_BENCH BUILD_TESTING; do
    case " $before $parts " in
    *" $part "*) options="$options -D$part=ON" ;;
    *) options="$options -D$part=OFF" ;;
    esac
  done
  case " $before $parts " in *" ECHELON_CUDA "*) options="$options -DECHELON_CUDA=ON" ;; esac
  (cd "$here" && quietly "$tree/configure.log" cmake --preset release $options $now_with) 9>&- ||
    give_up "could not configure; all of it is in $tree/configure.log"
  printf '%s\n%s\n' "$before$needed" "$now_with" >"$tree/configured"
}

# jobs: how many compilers run beside each other, at up to 1 GiB each: one more than there are cores, or
# fewer where the machine, or the container, has less memory free than that.
jobs() {
  count=$(($(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 1))
  free=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' "$proc_meminfo" 2>/dev/null)
  limit=$(sed -n 's/^\([0-9]\{1,15\}\)$/\1/p' "$cgroup_limit" 2>/dev/null) # bytes, or "max"
  for gib in ${free:+$((free / 1048576))} ${limit:+$((limit / 1073741824))}; do
    [ "$gib" -ge "$count" ] || count=$gib
  done
  [ "$count" -gt 0 ] || count=1
  echo "$count"
}
proc_meminfo=/proc/meminfo
cgroup_limit=/sys/fs/cgroup/memory.max

compile() {
  new=
  targets=
  for one in $wanted; do
    case " $there " in *" $one "*) ;; *) new="$new $one" ;; esac
    # Without CUDA or Qt there is no such target: the program says so.
    [ "$one" != all ] && ! cmake --build "$tree" --target help 2>/dev/null 9>&- |
      grep -q "^$one: phony" || targets="$targets $one"
  done
  if [ -n "$new" ]; then
    traits_of $new
    cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
    say "building for the first time:${new}; about $(duration $((seconds / cores))) on $cores cores"
  else
    say "building what changed"
  fi
  : >"$tree/build.failed"
  {
    NINJA_STATUS='[%f/%t] ' cmake --build "$tree" --parallel "$(jobs)" --target $targets &&
      rm "$tree/build.failed"
  } 2>&1 </dev/null 9>&- | follow "$tree/build.log" 9>&-
  [ ! -f "$tree/build.failed" ] || {
    grep -v '^\[[0-9]*/[0-9]*\] ' "$tree/build.log" | tail -n 40 >&2
    give_up "the build failed; all of it is in $tree/build.log"
  }
}
