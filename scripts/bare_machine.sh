#!/bin/bash
# scripts/bare_machine.sh [--full]: tries this tree on a bare machine, a Debian in build/bare in which
# nothing is installed but what every Debian has. The packages of each command (scripts/packages.sh)
# are installed there, one list after the other, and what each is for is configured: for ./plan, ./plan
# run and ./plan gui as much of the release tree as they take, for ./test every preset.
#
#   --full   also runs both commands of the README there, each on a bare machine of its own and
#            without a compiler cache, and prints what they take
#
# The tree is copied as git knows it: tracked files, with the changes that are not committed yet.
# Needs root, and mmdebstrap or debootstrap. Exit 77 where one of them is missing; that is no failure.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
me=bare_machine
place=$here/build/bare
say() { printf '%s: %s\n' "$me" "$*"; }
not_here() {
  say "not tried: $*"
  exit 77
}
failed() {
  say "$*"
  exit 1
}

# ---- Outside: everything happens in namespaces of its own, so that mounts and processes end with it.
if [ "${1:-}" != --inside ]; then
  full=
  case ${1:-} in
  '') ;;
  --full) full=--full ;;
  *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 2 ;;
  esac
  [ "$(id -u)" = 0 ] || not_here "making a bare machine needs root"
  command -v mmdebstrap >/dev/null || command -v debootstrap >/dev/null ||
    not_here "neither mmdebstrap nor debootstrap is installed"
  namespaces=(unshare --mount --pid --fork --kill-child --mount-proc)
  "${namespaces[@]}" true 2>/dev/null || not_here "mounting is not allowed here"
  mkdir -p "$place"
  if command -v flock >/dev/null; then
    exec 9>"$place/lock"
    flock -n 9 || failed "already running"
  fi
  inside=
  # unshare lets TERM pass; its death ends all that is inside.
  trap '[ -z "$inside" ] || kill -KILL "$inside" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf --one-file-system "$place/machine"' EXIT
  trap 'exit 130' INT TERM HUP
  "${namespaces[@]}" bash "${BASH_SOURCE[0]}" --inside $full </dev/null 9>&- &
  inside=$!
  status=0
  wait "$inside" || status=$?
  inside=
  exit $status
fi
full=${2:-}

# ---- The bare machine: as few packages as apt and dpkg need, from where this machine has its own.
minimal=$place/minimal # kept for a day
machine=$place/machine # a copy of it, and thrown away

# How this machine reaches its packages: proxies, certificates and what it lets pass.
apt_settings() {
  apt-config dump | grep -E '^Acquire::(https?::|ftp::|Check-|ForceIP|Retries|AllowInsecure)' || true
  printf 'Acquire::Languages "none";\n'
}

# The sources of the distribution itself, as lines of sources.list; others are none of a bare machine.
apt_sources() {
  # shellcheck disable=SC1091
  distribution=$(. /etc/os-release && echo "$ID")
  # shellcheck disable=SC2016  # names of apt's
  apt-get indextargets --format '$(ORIGIN)|deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' | sed -n "s/^$distribution|//Ip" | sort -u
}

find_sources() {
  apt_sources >"$place/sources.list"
  if [ ! -s "$place/sources.list" ]; then # no lists of packages yet
    apt-get update -qq >/dev/null 2>&1 || true
    apt_sources >"$place/sources.list"
  fi
  [ -s "$place/sources.list" ] || not_here "apt knows no source of this distribution"
  apt_settings >"$place/apt.conf"
}

make_minimal() {
  rm -rf --one-file-system "$minimal"
  if command -v mmdebstrap >/dev/null; then
    mmdebstrap --mode=root --variant=minbase --aptopt="$place/apt.conf" '' "$minimal" \
      "$place/sources.list"
  else
    # shellcheck disable=SC1091
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mirror=$(awk -v suite="$suite" '$3 == suite { print $2; exit }' "$place/sources.list")
    proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy)
    http_proxy=${http_proxy:-$proxy} debootstrap --variant=minbase "$suite" "$minimal" "$mirror" &&
      rm -f "$minimal"/var/cache/apt/archives/*.deb
  fi
}

dress_minimal() { # what it needs to reach packages by itself
  rm -rf "$minimal"/etc/apt/sources.list.d
  cp "$place/sources.list" "$minimal/etc/apt/sources.list"
  cp "$place/apt.conf" "$minimal/etc/apt/apt.conf.d/99this-machine"
  cp -L /etc/resolv.conf "$minimal/etc/resolv.conf"
  cp -L /etc/hosts "$minimal/etc/hosts"
  for file in /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates/*; do
    [ -f "$file" ] || continue
    mkdir -p "$minimal$(dirname "$file")"
    cp -L "$file" "$minimal$file"
  done
}

# A new copy of the bare machine with the tree in /echelon.
new_machine() {
  umount --recursive "$machine/dev" "$machine/proc" 2>/dev/null || true
  rm -rf --one-file-system "$machine"
  cp -a "$minimal" "$machine"
  mount -t proc proc "$machine/proc"
  mount --rbind /dev "$machine/dev"
  mkdir "$machine/echelon"
  copy_tree
}

copy_tree() {
  git=(git -c "safe.directory=$here" -c user.name=nobody -c user.email=nobody -C "$here")
  if [ "$("${git[@]}" rev-parse --show-toplevel 2>/dev/null)" = "$here" ]; then
    changed=$("${git[@]}" stash create) # a commit of the changes, on no branch
    "${git[@]}" archive "${changed:-HEAD}" | tar -x -C "$machine/echelon"
  else # no repository: all but what is built
    tar -c -C "$here" --exclude=./build --exclude='./build-*' . | tar -x -C "$machine/echelon"
  fi
}

# on_machine COMMAND: runs it there in the tree, with nothing of this machine's environment but how it
# reaches the network.
on_machine() {
  local name through=()
  for name in http_proxy https_proxy ftp_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || through+=("$name=${!name}")
  done
  env -i "${through[@]}" HOME=/root LC_ALL=C.UTF-8 TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$machine" /bin/bash -c "cd /echelon && $1" </dev/null
}

# logged NAME COMMAND: runs it there; its output goes into build/bare/NAME.log, whose end is shown when
# it fails.
logged() {
  on_machine "$2" >"$place/$1.log" 2>&1 && return 0
  tail -n 40 "$place/$1.log"
  return 1
}

# ---- Every list is enough for what it is for.
# configure NAME TREE COMMAND PROGRAMS...: configures build/TREE there, and finds all that PROGRAMS need.
configure() {
  local what=$1 tree=build/$2 command=$3
  shift 3
  logged "$what" "$command" || failed "$what cannot be configured"
  # -n: nothing is run, but each file that is not made must be there.
  logged "$what.ninja" "ninja -n -C $tree $*" || failed "$what lacks what $* are made of"
  case " $* " in
  *" plan-run "*)
    grep -q ECHELON_ONEDNN "$machine/echelon/$tree/build.ninja" || failed "$what lacks oneDNN"
    ;;
  esac
  say "$what is configured"
}

# What the wrappers do before they compile; the tree grows from one command to the next.
configure_command() {
  configure "$1" release "here=/echelon me=$1; . scripts/wrapper.sh; mkdir -p \$tree; installed=; \
    wanted='${*:2}'; traits_of \$wanted; configure" "${@:2}"
}

configure_preset() {
  configure "$1" "$1" "rm -rf build/$1 && cmake --preset $1" "${@:2}"
  # A compiler for CUDA is no package of Debian's; all else is found.
  ! grep 'is not built' "$place/$1.log" | grep -v runtime/cuda/ || failed "preset $1 lacks a package"
}

configure_all() {
  new_machine
  echo force-unsafe-io >"$machine/etc/dpkg/dpkg.cfg.d/hurry"
  local preset
  for list in plan run gui test ci; do
    logged "install.$list" \
      "here=/echelon me=install; . scripts/wrapper.sh; need_packages \$(packages_of $list)" ||
      failed "the list of $list cannot be installed"
    say "the list of $list is installed, after $SECONDS s"
    case $list in
    plan) configure_command plan plan ;;
    run) configure_command run plan plan-run ;;
    gui) configure_command gui plan plan-run plan-gui ;;
    test)
      for preset in $(on_machine "cmake --list-presets" | sed -n 's/^ *"\(.*\)".*/\1/p'); do
        [ "$preset" = fuzz ] || configure_preset "$preset" plan plan-run plan-gui
      done
      [ -n "${preset:-}" ] || failed "cmake names no presets"
      ;;
    ci) configure_preset fuzz plan plan-run fuzz ;;
    esac
  done
}

# ---- What the commands of the README take.
# Stands before apt-get there, and tells what of a command's time is apt's.
time_apt() {
  cat >"$machine/usr/local/bin/apt-get" <<'SHIM'
#!/bin/bash
TIMEFORMAT='%R %U %S'
timed() { # timed LOG COMMAND...
  log=$1
  shift
  { time /usr/bin/apt-get "$@" >&3 2>&4; } 3>&1 4>&2 2>>"$log"
}
case " $* " in
*" install "*) timed /tmp/download "$@" --download-only && timed /tmp/install "$@" ;;
*) timed /tmp/download "$@" ;;
esac
SHIM
  chmod +x "$machine/usr/local/bin/apt-get"
}

# run_there COMMAND: on a new bare machine; prints what it takes.
run_there() {
  new_machine
  time_apt
  say "$1 on $(nproc) cores; load before: $(cut -d' ' -f1-3 /proc/loadavg)"
  local TIMEFORMAT='%R %U %S' status=0
  { time on_machine "exec $1" >"$place/command.log" 2>&1 9>&-; } 2>"$place/time" || status=$?
  tail -n 25 "$place/command.log"
  awk -v command="$1" '
    function seconds(x) { return sprintf("%.0f s", x) }
    { wall[FILENAME] += $1; busy[FILENAME] += $2 + $3 }
    END {
      whole = ARGV[1]; down = ARGV[2]; install = ARGV[3]
      printf "%s: %s, %s of them download; without it %s\n", command, seconds(wall[whole]),
             seconds(wall[down]), seconds(wall[whole] - wall[down])
      printf "  installing packages %s, everything else %s\n", seconds(wall[install]),
             seconds(wall[whole] - wall[down] - wall[install])
      printf "  processor time %s: %s for packages, %s for everything else\n", seconds(busy[whole]),
             seconds(busy[down] + busy[install]),
             seconds(busy[whole] - busy[down] - busy[install])
    }' "$place/time" "$machine/tmp/download" "$machine/tmp/install"
  [ $status = 0 ] || failed "$1 ended with $status"
}

if [ -z "$(find "$minimal.made" -mmin -1440 2>/dev/null)" ]; then
  rm -f "$minimal.made"
  find_sources
  make_minimal >"$place/minimal.log" 2>&1 || {
    tail -n 40 "$place/minimal.log"
    failed "the bare machine cannot be made"
  }
  dress_minimal
  touch "$minimal.made"
fi
say "a bare machine of $(chroot "$minimal" dpkg-query -W | wc -l) packages"
configure_all
say "every command and preset is configured, after $SECONDS s"
if [ -n "$full" ]; then
  run_there './plan --model 7b --gpus 64'
  run_there ./test
fi
