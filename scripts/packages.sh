# shellcheck shell=sh disable=SC2034,SC2086
# Debian packages that each command needs, in one place: ./plan and ./test install them, the checks of
# a bare machine read them. POSIX sh, sourced. `packages_of plan|run|gui|test|ci` prints a whole list.

plan_packages="g++ cmake ninja-build libboost-dev libeigen3-dev nlohmann-json3-dev libfmt-dev
  libcli11-dev libcsv-dev libxxhash-dev libzstd-dev libyaml-cpp-dev
  libtomlplusplus-dev"
# Each of these comes on top of the one before. oneDNN's CMake package asks for OpenCL, but its Debian
# package does not depend on it.
run_packages="libdnnl-dev ocl-icd-opencl-dev libssl-dev"
gui_packages="qt6-base-dev qt6-charts-dev libqt6opengl6-dev qt6-svg-dev fonts-dejavu-core"
test_packages="catch2 libbenchmark-dev libopenmpi-dev openmpi-bin groff-base zsh
  slurmctld slurmd slurm-client munge iproute2"
ci_packages="clang-format clang libclang-rt-dev libomp-dev mmdebstrap python3"

packages_of() {
  case $1 in
  plan) printf '%s\n' $plan_packages ;;
  run) printf '%s\n' $plan_packages $run_packages ;;
  gui) printf '%s\n' $plan_packages $run_packages $gui_packages ;;
  test) printf '%s\n' $plan_packages $run_packages $gui_packages $test_packages ;;
  ci) printf '%s\n' $plan_packages $run_packages $gui_packages $test_packages $ci_packages ;;
  *) return 1 ;;
  esac
}
