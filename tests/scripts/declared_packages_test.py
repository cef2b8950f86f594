"""Tests of scripts/declared_packages.py.

  declared_packages_test.py          how packages and files are followed
  declared_packages_test.py TREE     a package taken off the lists is missed by the build tree TREE
"""
import contextlib
import importlib.util
import io
import os
import sys
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../scripts/declared_packages.py")
_spec = importlib.util.spec_from_file_location("declared_packages", SCRIPT)
checked = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(checked)


def package(name, depends="", before="", provides="", essential="no", priority="optional",
            status="install ok installed"):
    return "\t".join([name, status, before, depends, provides, essential, priority])


def packages(*lines):
    return checked.Packages("\n".join(lines))


class Closure(unittest.TestCase):
    def test_of_nothing_is_what_every_debian_has(self):
        some = packages(package("apt", "libc6"), package("libc6"), package("vim"),
                        package("bash", essential="yes"), package("login", priority="required"))
        self.assertEqual(some.closure([]), {"apt", "libc6", "bash", "login"})

    def test_follows_dependencies_and_those_before(self):
        some = packages(package("dnnl-dev", "dnnl (= 2.6), headers:any"),
                        package("dnnl", before="libc6 (>= 2.3)"), package("libc6"),
                        package("headers"), package("opencl-dev"))
        self.assertEqual(some.closure(["dnnl-dev"]), {"dnnl-dev", "dnnl", "libc6", "headers"})

    def test_takes_the_first_alternative_that_is_there(self):
        some = packages(package("a", "gone | b | c"), package("b"), package("c"))
        self.assertEqual(some.closure(["a"]), {"a", "b"})

    def test_takes_an_alternative_that_is_there_anyway(self):
        some = packages(package("a", "b | c"), package("b"), package("c"))
        self.assertEqual(some.closure(["c", "a"]), {"a", "c"})

    def test_resolves_virtual_packages_by_what_is_installed(self):
        some = packages(package("a", "compiler"), package("gcc", provides="compiler (= 1), cc"),
                        package("clang", provides="compiler", status="deinstall ok config-files"))
        self.assertEqual(some.closure(["a"]), {"a", "gcc"})

    def test_of_a_package_that_is_not_installed_is_unknown(self):
        with self.assertRaisesRegex(checked.Unchecked, "not installed as Debian packages: a"):
            packages(package("b")).closure(["a", "b"])


class Files(unittest.TestCase):
    def test_have_the_owners_that_dpkg_names(self):
        owners = checked.parse_owners("diversion by dash from: /bin/sh\n"
                                      "libc6:amd64, libc6:i386: /lib/libc.so.6\n")
        self.assertEqual(dict(owners), {"/lib/libc.so.6": ["libc6", "libc6"]})

    def test_may_be_listed_on_either_side_of_a_merged_usr(self):
        self.assertEqual(checked.spellings("/usr/lib/x.so"), ["/usr/lib/x.so", "/lib/x.so"])
        self.assertEqual(checked.spellings("/bin/sh"), ["/bin/sh", "/usr/bin/sh"])
        self.assertEqual(checked.spellings("/usr/include/x.h"), ["/usr/include/x.h"])

    def test_are_read_with_every_link_that_leads_to_them(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = os.path.realpath(folder)
            for name, target in (("libx.so", "libx.so.1"), ("libx.so.1", "libx.so.1.0")):
                os.symlink(target, os.path.join(folder, name))
            open(os.path.join(folder, "libx.so.1.0"), "wb").close()
            self.assertEqual(checked.links_to(folder + "/libx.so"),
                             [folder + name for name in ("/libx.so", "/libx.so.1", "/libx.so.1.0")])

    def test_of_cuda_are_known_by_name(self):
        for name in ("cudnn_version.h", "libcudnn.so.9", "nccl.h", "libnccl.so.2.27.3"):
            self.assertTrue(checked.CUDA_NAMES.fullmatch(name), name)
        for name in ("CL.h", "libOpenCL.so", "mycudnn.h"):
            self.assertFalse(checked.CUDA_NAMES.fullmatch(name), name)


class Commands(unittest.TestCase):
    def test_name_their_programs(self):
        self.assertEqual(checked.Tree.programs(": && sh -c true && cd / && ls"),
                         [checked.shutil.which("sh"), checked.shutil.which("ls")])


    def test_that_link_libfuzzer_have_its_main(self):
        for flags in (("-fsanitize=fuzzer",), ("-lm", "-fsanitize=address,fuzzer")):
            self.assertNotIn("main", checked.Tree._empty_program(flags))
        for flags in ((), ("-fsanitize=fuzzer-no-link,address",)):
            self.assertIn("main", checked.Tree._empty_program(flags))


def check(tree, *more):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = checked.main([tree, *more])
    return status, said.getvalue()


def misses_what_is_taken_off(tree):
    """What oneDNN's CMake package asks for without depending on it: the case that the check is for."""
    status, said = check(tree, "--without", "ocl-icd-opencl-dev")
    if status == checked.CANNOT:
        return skip(said.strip().split("not checked: ")[-1].splitlines()[0])
    if "libOpenCL.so" not in checked.Tree(tree).ninja("commands", "plan-run"):
        return skip("oneDNN was not found, or is one without OpenCL")
    sys.stdout.write(said)
    for expected in ("of ocl-icd-opencl-dev, which the list of run, gui, test does not bring:",
                     "/libOpenCL.so, read by linking "):
        if status != 1 or expected not in said:
            print(f"status {status}; expected 1 and: {expected}")
            return 1
    return 0


def skip(reason):
    """As tests/support/skip.cmake does."""
    line = "a package taken off the lists is missed: " + reason
    print("SKIPPED: " + line)
    if "ECHELON_SKIP_LOG" in os.environ:
        with open(os.environ["ECHELON_SKIP_LOG"], "a", encoding="utf-8") as log:
            log.write(line + "\n")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        sys.exit(misses_what_is_taken_off(sys.argv[1]))
    unittest.main()
