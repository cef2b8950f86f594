// ./plan and ./test, copied into a project of one file that builds in a second.
// Over 400 lines because all of it tests one pair of scripts in one sample project.
#include <chrono>
#include <sstream>
#include <string>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

/// A tree with our wrappers, a program `plan` that prints its arguments, one per line, and, if
/// configured, the same program as plan-run and plan-gui. A folder of fakes is first on PATH: a
/// dpkg-query that reports every package as installed.
class Project {
 public:
  Project() {
    const fs::path source = ECHELON_SOURCE_DIR;
    copy(source / "plan", "plan");
    copy(source / "test", "test");
    copy(source / "scripts/wrapper.sh", "scripts/wrapper.sh");
    copy(source / "scripts/packages.sh", "scripts/packages.sh");
    copy(source / "tests/support/skip.cmake", "tests/support/skip.cmake");
    dir.write("repo/CMakePresets.json",
              R"({"version": 6, "configurePresets": [
                   {"name": "release", "generator": "Ninja",
                    "binaryDir": "${sourceDir}/build/release"}]})");
    dir.write(
        "repo/CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.25)\nproject(fake CXX)\nadd_subdirectory(cli)\n"
        "enable_testing()\n"
        "add_test(NAME good COMMAND plan)\n"
        "add_test(NAME slow COMMAND plan)\n"
        "set_tests_properties(slow PROPERTIES LABELS long)\n"
        "add_test(NAME absent COMMAND ${CMAKE_COMMAND} -DNAME=absent \"-DREASON=no such thing\""
        " -P ${CMAKE_SOURCE_DIR}/tests/support/skip.cmake)\n"
        "set_tests_properties(absent PROPERTIES SKIP_REGULAR_EXPRESSION \"SKIPPED: \")\n");
    dir.write("repo/cli/CMakeLists.txt",
              "add_library(parts main.cpp)\nadd_executable(plan ${CMAKE_BINARY_DIR}/of_plan.cpp)\n"
              "file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/of_plan.cpp CONTENT \"\")\n"
              "target_link_libraries(plan parts)\n"
              "if(ECHELON_RUNTIME)\n  add_executable(plan-run ${CMAKE_BINARY_DIR}/of_plan.cpp)\n"
              "  target_link_libraries(plan-run parts)\nendif()\n"
              "if(ECHELON_GUI)\n  add_executable(plan-gui ${CMAKE_BINARY_DIR}/of_plan.cpp)\n"
              "  target_link_libraries(plan-gui parts)\nendif()\n");
    write_program("\\n");
    fake("dpkg-query", "echo 'install ok installed'");
    fake("nvcc", "exit 1");  // no CUDA next to it
  }

  void write_program(const std::string& separator) const {
    dir.write("repo/cli/main.cpp",
              "#include <cstdio>\nint main(int n, char** words) {\n"
              "  for (int i = 1; i < n; ++i) std::printf(\"%s" +
                  separator + "\", words[i]);\n}\n");
  }

  void fake(const std::string& name, const std::string& script) const {
    make_executable(dir.write("fakes/" + name, "#!/bin/sh\n" + script + "\n"));
  }

  /// Runs a shell command in the tree with the fakes first on PATH.
  [[nodiscard]] ProcessResult run(const std::string& command) const {
    return run_shell(
        "PATH=" + shell_word((dir.path() / "fakes").string()) + ":$PATH; export PATH; " + command,
        dir.path() / "repo");
  }

  /// How often `object` was compiled, by ninja's own log.
  [[nodiscard]] int compiled(const std::string& object) const {
    const std::string log = slurp(built(".ninja_log"));
    int times = 0;
    for (std::size_t at = log.find(object); at != std::string::npos;
         at = log.find(object, at + 1)) {
      ++times;
    }
    return times;
  }

  [[nodiscard]] fs::path built(const std::string& file) const {
    return dir.path() / "repo/build/release" / file;
  }

  /// The same with only the fakes and links to `tools` on PATH.
  [[nodiscard]] ProcessResult run_with_only(const std::string& tools,
                                            const std::string& command) const {
    return run_shell("mkdir -p ../only; for t in " + tools +
                         "; do ln -sf \"$(command -v $t)\" ../only/; done; cp ../fakes/* ../only/; "
                         "PATH=$PWD/../only; export PATH; " +
                         command,
                     dir.path() / "repo");
  }

  TempDir dir;

 private:
  void copy(const fs::path& from, const std::string& to) const {
    fs::create_directories((dir.path() / "repo" / to).parent_path());
    fs::copy_file(from, dir.path() / "repo" / to);
  }
  static void make_executable(const fs::path& file) { fs::permissions(file, fs::perms::owner_all); }
};

constexpr const char* kBasicTools =
    "sh cat chmod cmake date dirname env find flock getconf grep mkdir mktemp mv ninja printf "
    "readlink rm sed tail touch tr";

TEST_CASE("./plan builds once, passes arguments on verbatim and keeps stdout clean") {
  const Project project;
  const ProcessResult first = project.run("./plan 'a  b' '' '*' '$HOME' -- \"it's\"");
  INFO(first.err);
  CHECK(first.exit_code == 0);
  CHECK(first.out == "a  b\n\n*\n$HOME\n--\nit's\n");
  CHECK(first.err.find("building") != std::string::npos);

  // From another folder, through a link: the same program, without output from the wrapper.
  const ProcessResult linked = project.run(
      "ln -s ../repo/plan ../fakes/link && cd / && \"$OLDPWD\"/../fakes/link x && link y");
  CHECK(linked.out == "x\ny\n");
  CHECK(linked.err.empty());
}

TEST_CASE("./plan run builds plan-run, which is kept up to date from then on") {
  const Project project;
  REQUIRE(project.run("./plan a").out == "a\n");
  CHECK(!fs::exists(project.built("cli/plan-run")));
  CHECK(project.run("./plan run p.json").out == "run\np.json\n");
  const auto last_built = [&] { return fs::last_write_time(project.built("cli/plan-run")); };
  const auto first = last_built();
  project.write_program("!");
  CHECK(project.run("./plan a").out == "a!");
  CHECK(last_built() > first);
  CHECK(!fs::exists(project.built("cli/plan-gui")));
}

TEST_CASE("no command recompiles the objects of another") {
  const Project project;
  const std::string object = "main.cpp.o";
  for (const char* command : {"./plan a", "./plan run a", "./plan gui a", "./plan a", "./test",
                              "./plan run --backend cuda", "./plan a"}) {
    INFO(command);
    REQUIRE(project.run(command).exit_code == 0);
    CHECK(project.compiled(object) == 1);
  }
  // Configured parts stay configured, and the programs count as built after all of them were.
  CHECK(fs::exists(project.built("cli/plan-gui")));
  CHECK(project.run("./plan gui b").err.empty());
  const Project tested;
  REQUIRE(tested.run("./test").exit_code == 0);
  CHECK(tested.run("./plan run b").err.empty());
  CHECK(tested.compiled(object) == 1);
}

TEST_CASE("manual configuration is kept") {
  const Project project;
  REQUIRE(project.run("./plan a").exit_code == 0);
  REQUIRE(project.run("cmake --preset release -DBUILD_TESTING=ON").exit_code == 0);
  REQUIRE(project.run("./plan run a").exit_code == 0);
  const std::string cache = slurp(project.built("CMakeCache.txt"));
  CHECK(cache.find("\nBUILD_TESTING:UNINITIALIZED=ON") != std::string::npos);
  CHECK(cache.find("\nECHELON_GUI:UNINITIALIZED=OFF") != std::string::npos);
}

TEST_CASE("CMake arguments stay in effect after the command that gives them") {
  const Project project;
  const auto cached = [&](const char* entry) {
    return slurp(project.built("CMakeCache.txt")).find(entry) != std::string::npos;
  };
  REQUIRE(project.run("./plan a").exit_code == 0);
  CHECK(!cached("EXTRA:"));
  REQUIRE(project.run("PLAN_CMAKE_ARGS=-DEXTRA=given ./test").exit_code == 0);
  CHECK(cached("EXTRA:UNINITIALIZED=given"));
  REQUIRE(project.run("./plan run a").exit_code == 0);
  CHECK(cached("EXTRA:UNINITIALIZED=given"));
  CHECK(project.compiled("main.cpp.o") == 1);
}

TEST_CASE("a build shows its progress") {
  const Project project;
  const ProcessResult piped = project.run("./plan a");
  INFO(piped.err);
  CHECK(piped.err.find("plan: configuring\n") != std::string::npos);
  CHECK(piped.err.find("plan: building for the first time: plan; about ") != std::string::npos);
  CHECK(piped.err.find("plan: compiling 1 of 4\n") != std::string::npos);
  CHECK(piped.err.find('\r') == std::string::npos);

  project.write_program("!");
  const ProcessResult watched = project.run("script -qefc './plan a' /dev/null </dev/null");
  INFO(watched.out);
  if (watched.exit_code == 127) return skip("script, which pretends a terminal, is not installed");
  for (const char* far : {"\rplan: compiling 1 of ", "\rplan: compiling 3 of 3", "\r\x1b[K"}) {
    INFO(far);
    CHECK(watched.out.find(far) != std::string::npos);
  }
}

TEST_CASE("no more compilers run beside each other than memory holds") {
  const Project project;
  project.fake("getconf", "echo 8");
  const auto jobs = [&](const std::string& free_kib, const std::string& container_bytes) {
    project.dir.write("repo/meminfo",
                      "MemTotal: 99999999 kB\nMemAvailable:   " + free_kib + " kB\n");
    project.dir.write("repo/limit", container_bytes + "\n");
    return project
        .run(
            "here=$PWD; me=x; . scripts/wrapper.sh; proc_meminfo=meminfo; cgroup_limit=limit; jobs")
        .out;
  };
  CHECK(jobs("64000000", "max") == "9\n");
  CHECK(jobs("4000000", "max") == "3\n");
  CHECK(jobs("500000", "max") == "1\n");
  CHECK(jobs("64000000", "2147483648") == "2\n");
  CHECK(
      project
          .run("here=$PWD; me=x; . scripts/wrapper.sh; proc_meminfo=none; cgroup_limit=none; jobs")
          .out == "9\n");
}

TEST_CASE("./plan rebuilds after a source was edited or added or the tree was moved") {
  const Project project;
  REQUIRE(project.run("./plan a").out == "a\n");
  project.write_program("!");
  CHECK(project.run("./plan a").out == "a!");

  const ProcessResult moved = project.run("cp -a ../repo ../copy && cd ../copy && ./plan b");
  INFO(moved.err);
  CHECK(moved.out == "b!");
}

TEST_CASE("./plan takes less than 0.1 s if nothing changed") {
  const Project project;
  REQUIRE(project.run("./plan a").out == "a\n");
  double best = 1e9;  // of several, because the machine has other work
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const ProcessResult warm = project.run("./plan a");
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    REQUIRE(warm.err.empty());
    best = std::min(best, seconds.count());
  }
  INFO(best);
  CHECK(best < 0.1);
}

TEST_CASE("a failed build shows its error on stderr and exits with 3") {
  const Project project;
  project.dir.write("repo/cli/main.cpp", "int main() { return nonsense; }\n");
  const ProcessResult failed = project.run("./plan a");
  CHECK(failed.exit_code == 3);
  CHECK(failed.out.empty());
  CHECK(failed.err.find("nonsense") != std::string::npos);
  project.write_program("\\n");
  CHECK(project.run("./plan a").out == "a\n");
}

TEST_CASE("a failed configuration shows its error and exits with 3") {
  const Project project;
  project.dir.write("repo/CMakeLists.txt", "message(FATAL_ERROR \"no luck\")\n");
  const ProcessResult failed = project.run("./plan a");
  CHECK(failed.exit_code == 3);
  CHECK(failed.err.find("no luck") != std::string::npos);
}

TEST_CASE("concurrent first runs build once, and all answer") {
  const Project project;
  const ProcessResult all = project.run(
      "for i in 1 2 3 4; do ./plan $i >../out.$i 2>../err.$i & done; wait; cat ../out.*; cat "
      "../err.* >&2");
  INFO(all.err);
  CHECK(all.out == "1\n2\n3\n4\n");
  const std::size_t once = all.err.find("first time");
  CHECK(once != std::string::npos);
  CHECK(all.err.find("first time", once + 1) == std::string::npos);
}

TEST_CASE("PLAN_NO_INSTALL names the missing packages and touches nothing") {
  const Project project;
  project.fake("dpkg-query", "exit 1");
  project.fake("c++", "exit 1");
  project.fake("apt-get", "echo called >>../apt");
  const ProcessResult missing = project.run("PLAN_NO_INSTALL=1 ./plan a");
  CHECK(missing.exit_code == 3);
  CHECK(missing.out.empty());
  CHECK(missing.err.find("libcsv-dev") != std::string::npos);
  CHECK(missing.err.find("cmake") == std::string::npos);  // not a package, but installed
  CHECK_FALSE(fs::exists(project.dir.path() / "apt"));
}

TEST_CASE("missing packages, and only those, are installed without a question") {
  const Project project;
  project.fake("dpkg-query",
               "case $* in *libcsv-dev*) [ -f ../done ] && echo install ok installed;;"
               " *) echo install ok installed;; esac");
  project.fake("c++", "exit 1");  // its headers are not elsewhere
  project.fake("id", "echo 0");
  project.fake("apt-get", "echo \"$DEBIAN_FRONTEND $*\" >>../apt; touch ../done");
  CHECK(project.run("./plan a").exit_code == 3);  // apt is a fake, so it cannot build after all
  const std::string calls = slurp(project.dir.path() / "apt");
  CHECK(calls.find("update") != std::string::npos);
  CHECK(calls.find("noninteractive install") != std::string::npos);
  CHECK(calls.find(" libcsv-dev\n") != std::string::npos);
  CHECK(calls.find("libfmt-dev") == std::string::npos);
}

TEST_CASE("an installation shows its progress") {
  const Project project;
  project.fake("dpkg-query", "[ -f ../done ] && echo install ok installed");
  project.fake("c++", "exit 1");
  project.fake("id", "echo 0");
  project.fake("apt-get",
               "case $* in *install*APT::Status-Fd=1*) touch ../done; "
               "echo pmstatus:libfmt-dev:42.5:Unpacking; exit 100;; esac");
  const ProcessResult result = project.run("./plan a");
  INFO(result.err);
  CHECK(result.err.find("packages and what they need: ") != std::string::npos);
  CHECK(result.err.find("plan: installing 42 %\n") != std::string::npos);
  CHECK(result.err.find("pmstatus") == std::string::npos);
}

TEST_CASE("the software of every listed package is recognised without the package") {
  const Project project;
  const ProcessResult unknown = project.run(
      "here=$PWD; me=x; . scripts/wrapper.sh; for p in $(packages_of ci); do "
      "printf '%s' \"$known_packages\" | grep -q \"^$p [cfh]\" || echo \"$p\"; done");
  CHECK(unknown.exit_code == 0);
  CHECK(unknown.out.empty());
  const ProcessResult lists = project.run(
      "here=$PWD; me=x; . scripts/wrapper.sh; for l in plan run gui test ci; do packages_of $l | "
      "wc -l; done");
  // Each list contains the one before it; oneDNN's CMake package requires OpenCL.
  std::istringstream sizes(lists.out);
  int last = 0;
  for (int size = 0; sizes >> size; last = size) CHECK(size > last);
  CHECK(last > 20);
  CHECK(project.run(". scripts/packages.sh; packages_of run").out.find("\nocl-icd-opencl-dev\n") !=
        std::string::npos);
}

TEST_CASE("a failed apt shows its output and exits with 3") {
  const Project project;
  project.fake("dpkg-query", "exit 1");
  project.fake("c++", "exit 1");
  project.fake("id", "echo 0");
  project.fake("apt-get", "echo 'no network'; exit 100");
  const ProcessResult failed = project.run("./plan a");
  CHECK(failed.exit_code == 3);
  CHECK(failed.out.empty());
  CHECK(failed.err.find("no network") != std::string::npos);
}

TEST_CASE("without apt, or without root and sudo, the packages are named") {
  const Project project;
  project.fake("dpkg-query", "exit 1");
  project.fake("id", "echo 1000");
  const ProcessResult no_apt = project.run_with_only(kBasicTools, "./plan a");
  CHECK(no_apt.exit_code == 3);
  CHECK(no_apt.err.find("no apt-get") != std::string::npos);
  CHECK(no_apt.err.find("libeigen3-dev") != std::string::npos);
  project.fake("apt-get", "exit 0");
  const ProcessResult no_root = project.run_with_only(kBasicTools, "./plan a");
  CHECK(no_root.exit_code == 3);
  CHECK(no_root.err.find("as root: apt-get install") != std::string::npos);
}

TEST_CASE("without dpkg, installed software is found by its files") {
  const Project project;
  const ProcessResult found =
      project.run_with_only(std::string(kBasicTools) + " c++ g++ cc ld as ar ranlib uname id",
                            "rm ../only/dpkg-query; ./plan a");
  INFO(found.err);
  CHECK(found.out == "a\n");
}

TEST_CASE("./test runs the tests, forwards arguments and lists what was skipped and why") {
  const Project project;
  const ProcessResult all = project.run("./test --all");
  INFO(all.out << all.err);
  CHECK(all.exit_code == 0);
  CHECK(all.out.find("absent: no such thing") != std::string::npos);
  CHECK(all.out.find("Left out") == std::string::npos);
  CHECK(all.out.ends_with("\n2 passed, 0 failed, 1 skipped\n"));
  CHECK(project.run("./test -R good").out.ends_with("\n1 passed, 0 failed, 0 skipped\n"));
  CHECK(project.run("./test -R slow").out.ends_with("\n1 passed, 0 failed, 0 skipped\n"));
  CHECK(project.run("./test --all -R slow").out.ends_with("\n1 passed, 0 failed, 0 skipped\n"));

  project.dir.write("repo/cli/main.cpp", "int main() { return 1; }\n");
  const ProcessResult broken = project.run("./test");
  CHECK(broken.exit_code != 0);
  CHECK(broken.out.ends_with("\n0 passed, 1 failed, 1 skipped\n"));
}

TEST_CASE("./test without arguments skips the long tests and reports their number") {
  const Project project;
  const ProcessResult most = project.run("./test");
  INFO(most.out << most.err);
  CHECK(most.exit_code == 0);
  CHECK(most.out.find("Left out for taking over 10 s each: 1; ./test --all runs them.\n") !=
        std::string::npos);
  CHECK(most.out.ends_with("\n1 passed, 0 failed, 1 skipped\n"));
}

TEST_CASE(
    "./test fetches the headers of cuDNN's frontend once, if cuDNN exists, or reports why not") {
  const Project project;
  project.dir.write("include/cudnn.h", "");  // next to the folder of nvcc
  project.fake("python3", "echo \"$*\" >>../../../calls; echo 'no such package' >&2; exit 1");
  const ProcessResult without = project.run("PLAN_NO_INSTALL=1 ./test -R good");
  CHECK(without.err.find("cuDNN") == std::string::npos);
  const fs::path built = project.dir.path() / "repo/build";
  fs::remove_all(built);
  const ProcessResult failed = project.run("./test -R good");
  CHECK(failed.exit_code == 0);
  CHECK(failed.err.find("attention by cuDNN will not be built; its frontend cannot be fetched: no "
                        "such package") != std::string::npos);
  CHECK(fs::exists(project.dir.path() / "calls"));

  project.fake("python3",
               "case $* in *download*nvidia-cudnn-frontend==*) echo headers >frontend.whl;;"
               " *zipfile*frontend.whl*) mkdir include; cp frontend.whl include/cudnn_frontend.h;;"
               " *) exit 1;; esac");
  fs::remove_all(built);
  CHECK(project.run("./plan a").exit_code == 0);
  CHECK_FALSE(fs::exists(built / "cudnn-frontend"));  // planning needs none of it
  const ProcessResult fetched = project.run("./test -R good");
  CHECK(fetched.err.find("cuDNN") == std::string::npos);
  CHECK(slurp(built / "cudnn-frontend/include/cudnn_frontend.h") == "headers\n");
  CHECK_FALSE(fs::exists(built / "cudnn-frontend.next"));
  project.fake("python3", "exit 1");
  project.write_program("!");
  CHECK(project.run("./test -R good").err.find("cuDNN") == std::string::npos);
}

}  // namespace
}  // namespace echelon
