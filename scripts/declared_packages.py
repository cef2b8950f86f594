#!/usr/bin/env python3
"""scripts/declared_packages.py TREE [--lists plan,run,gui,test] [--without PACKAGE]...

Checks that every file outside the project which configuring, compiling and linking the build tree TREE
read comes from a Debian package that scripts/packages.sh declares, or that one of those depends on, or
that every Debian has. So a library that happens to be installed here, and is in no list, is found
before somebody with a bare machine finds it.

What was read is asked of CMake and ninja: the files that CMake read (the inputs of build.ninja), the
compilers' dependency files, the programs of all commands, and what the linker opens for the
libraries of each link. The lists `plan`, `run` and `gui` must cover the programs that their commands
build; `test` and `ci` everything in TREE, and what configuring read.

Exit 0: all is declared. 1: it is not; each file is printed with its package, the list that lacks it
and what read it. 77: this cannot be checked here (no dpkg, or a declared package is not one of dpkg's).
--without takes a package off the lists, to see the check fail.
"""
import argparse
import collections
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

PROJECT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
CANNOT = 77

# What each list must cover: these programs, or everything.
TARGETS = {"plan": ["plan"], "run": ["plan", "plan-run"], "gui": ["plan", "plan-run", "plan-gui"]}

# Built in where it is found, and not on the list of these commands: MPI carries the messages of
# processes that mpirun starts (runtime/comm/mpi/absent.cpp stands in).
OPTIONAL = {"run": ["libopenmpi-dev"], "gui": ["libopenmpi-dev"]}

# Programs that are used where they are found; nothing that is built differs without them.
OPTIONAL_PROGRAMS = {"ccache": "keeps compiled objects",
                     "git": "tells the commit that `plan --version` prints",
                     "python3": "runs the tests of bench/ and scripts/",
                     "llvm-ar": "stands in for binutils' beside clang",
                     "llvm-ranlib": "the same"}

# Not in Debian: what the CUDA backend is built with, where it is. The toolkit is known by its folder.
CUDA_NAMES = re.compile(r"(lib)?(cudnn|nccl)[^/]*[.](h|so[.0-9]*|a)")


class Unchecked(Exception):
    """Why nothing can be said."""


def output_of(command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


# ---- packages ----------------------------------------------------------------------------------

class Packages:
    """The installed packages, by name: what each depends on and what it provides."""

    def __init__(self, described):
        """DESCRIBED: lines of name, status, pre-depends, depends, provides, essential, priority,
        separated by tabs."""
        self.needs, self.providers, self.minimal = {}, collections.defaultdict(list), {"apt"}
        for line in described.splitlines():
            name, status, before, depends, provides, essential, priority = line.split("\t")
            if not status.endswith(" installed"):
                continue
            self.needs.setdefault(name, [])
            self.needs[name] += self._alternatives(before) + self._alternatives(depends)
            for provided in self._alternatives(provides):
                self.providers[provided[0]].append(name)
            if essential == "yes" or priority == "required":
                self.minimal.add(name)

    @staticmethod
    def _alternatives(field):
        """'a (>= 1), b:any | c' as [[a], [b, c]]."""
        return [[re.split(r"[\s(:\[<]", choice.strip())[0] for choice in group.split("|")]
                for group in field.split(",") if group.strip()]

    def _chosen(self, choices, closure):
        """What apt takes of alternatives: what is there anyway, or the first. A virtual package
        stands for all its providers, since apt's choice among them is not known."""
        for choice in choices:
            here = [name for name in [choice] + self.providers[choice] if name in closure]
            if here:
                return here
        for choice in choices:
            if choice in self.needs:
                return [choice]
            if self.providers[choice]:
                return self.providers[choice]
        return []

    def closure(self, names):
        """NAMES, a minimal Debian, and all that they depend on; recommended packages are not
        installed (scripts/wrapper.sh)."""
        missing = sorted(name for name in names if name not in self.needs)
        if missing:
            raise Unchecked("not installed as Debian packages: " + " ".join(missing))
        closure = set()
        waiting = collections.deque(sorted(self.minimal & set(self.needs)) + list(names))
        while waiting:
            name = waiting.popleft()
            if name in closure:
                continue
            closure.add(name)
            for choices in self.needs[name]:
                waiting.extend(self._chosen(choices, closure))
        return closure


def installed_packages():
    if not shutil.which("dpkg-query"):
        raise Unchecked("there is no dpkg")
    fields = ("Package", "Status", "Pre-Depends", "Depends", "Provides", "Essential", "Priority")
    return Packages(output_of(
        ["dpkg-query", "-W", "-f", "\\t".join("${%s}" % field for field in fields) + "\\n"]))


def declared(command):
    """The list of ./plan, ./plan run, ./plan gui, ./test or .ci/run."""
    return output_of(["sh", "-c", '. "$0/scripts/packages.sh" && packages_of "$1"', PROJECT,
                      command]).split()


def spellings(path):
    """A package may list a file of /usr/lib below /lib, or the other way round."""
    merged = r"/(bin|sbin|lib|lib32|lib64|libx32)/"
    if re.match("/usr" + merged, path):
        return [path, path[len("/usr"):]]
    return [path, "/usr" + path] if re.match(merged, path) else [path]


def parse_owners(text):
    """`dpkg-query -S` as {path: [package]}."""
    owners = collections.defaultdict(list)
    for line in text.splitlines():
        if line.startswith("diversion by "):
            continue
        names, _, path = line.partition(": ")
        owners[path] += [name.split(":")[0] for name in names.split(", ")]
    return owners


def owners_of(paths):
    owners = {}
    asked = sorted({spelling for path in paths for spelling in spellings(path)})
    for first in range(0, len(asked), 2000):
        # Exits 1 when one of them has no owner, and says so on stderr.
        found = subprocess.run(["dpkg-query", "-S"] + asked[first:first + 2000], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        owners.update(parse_owners(found))
    return {path: sorted({name for spelling in spellings(path)
                          for name in owners.get(spelling, [])}) for path in paths}


# ---- what was read -----------------------------------------------------------------------------

def links_to(path):
    """PATH and what its symbolic links lead to: each of them is read. Links of
    update-alternatives belong to no package; what they name does."""
    steps = []
    while True:
        folder = os.path.realpath(os.path.dirname(path))
        path = os.path.join(folder, os.path.basename(path))
        if not os.path.islink(path):
            return steps + [path]
        target = os.path.join(folder, os.readlink(path))
        if not path.startswith("/etc/alternatives/") and not target.startswith("/etc/alternatives/"):
            steps.append(path)
        path = target


class Tree:
    """A build tree, as CMake and ninja know it."""

    def __init__(self, folder):
        self.folder = os.path.realpath(folder)
        if not os.path.exists(os.path.join(self.folder, "build.ninja")):
            raise Unchecked(f"{folder} is not a build tree")
        with open(os.path.join(self.folder, "CMakeCache.txt"), encoding="utf-8") as cache:
            self.cache = dict(re.findall(r"^([\w.-]+):\w+=(.*)$", cache.read(), re.M))
        self.compiler = shutil.which(self.cache["CMAKE_CXX_COMPILER"])
        self.project = self.cache["CMAKE_HOME_DIRECTORY"]
        self.commands = {entry["output"]: entry["command"]
                         for entry in json.loads(self.ninja("compdb"))}
        self.headers = self._headers()

    def ninja(self, tool, *arguments):
        # -n: the logs are read, not rewritten.
        return output_of([self.cache["CMAKE_MAKE_PROGRAM"], "-C", self.folder, "-n", "--quiet",
                          "-t", tool, *arguments])

    def configured_from(self):
        lines = [line.strip().lstrip("| ") for line in self.ninja("query", "build.ninja").splitlines()]
        return [line for line in lines if line.startswith("/")]

    def _headers(self):
        """The compilers' dependency files, by object."""
        headers, output = {}, None
        for line in self.ninja("deps").splitlines():
            if line.startswith("    "):
                headers[output].append(line.strip())
            elif ": #deps" in line:
                output = line.split(": #deps")[0]
                headers[output] = []
        return headers

    def outputs(self, targets):
        """All that is made on the way to TARGETS; everything for None."""
        if targets is None:
            return list(self.commands)
        made = {os.path.basename(output) for output in self.commands}
        for target in targets:
            if target not in made:
                raise Unchecked(f"{self.folder} does not build {target}")
        inputs = self.ninja("inputs", *targets).split("\n")
        finals = [output for output in self.commands
                  if os.path.basename(output) in targets and self._is_link(self.commands[output])]
        return [output for output in inputs + finals if output in self.commands]

    def _is_link(self, command):
        words = command.split()
        return self.compiler in words and "-c" not in words

    @staticmethod
    def programs(command):
        """The first word of each part of a command, and what a launcher of compilers starts."""
        programs = []
        for part in re.split(r"&&|\|\||;", command):
            try:
                words = [word for word in shlex.split(part) if "=" not in word]
            except ValueError:  # quotes around the `;` of a list: its first word is enough
                words = part.split()[:1]
            programs += words[:2] if words and os.path.basename(words[0]) == "ccache" else words[:1]
        found = [shutil.which(program) for program in programs if program not in (":", "cd")]
        return [program for program in found if program]

    def opened_by_link(self, outputs):
        """{file: output}: what the linker opens for the libraries outside TREE, of which a program
        that does nothing is linked with each set."""
        sets = {}
        for output in outputs:
            command = self.commands[output]
            if self._is_link(command):
                sets.setdefault(self._outside_words(command), output)
        if not sets:
            raise Unchecked(f"no command in {self.folder} links with {self.compiler}")
        opened = {}
        with tempfile.TemporaryDirectory() as scratch:
            empty = os.path.join(scratch, "empty.cpp")
            for words, output in sets.items():
                with open(empty, "w", encoding="utf-8") as source:
                    source.write(self._empty_program(words))
                said = subprocess.run(
                    [self.compiler, empty, "-o", os.path.join(scratch, "program"), *words,
                     "-Wl,--trace"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    cwd=self.folder)
                if said.returncode:
                    raise Unchecked(f"a program with the libraries of {output} cannot be linked:\n"
                                    + said.stdout)
                for line in said.stdout.splitlines():
                    path = re.sub(r"^\((.*)\).*$", r"\1", line.strip())  # (archive.a)member.o
                    if path.startswith("/") and not path.startswith(scratch) and os.path.exists(path):
                        opened.setdefault(path, output)
        return opened

    @staticmethod
    def _empty_program(words):
        if any(re.match(r"-fsanitize=(.*,)?fuzzer(,|$)", word) for word in words):  # brings main()
            return ("extern \"C\" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) {"
                    " return 0; }\n")
        return "int main() {}\n"

    def _outside_words(self, command):
        """The words of a link that name libraries outside TREE, and the switches that bring some."""
        part = next(part for part in command.split("&&") if self.compiler in part.split())
        words = shlex.split(part)
        words = words[words.index(self.compiler) + 1:]
        return tuple(word for word in words if not self._is_ours(word) and
                     (word.startswith(("-l", "-L", "-fsanitize", "-fopenmp", "-pthread"))
                      or re.fullmatch(r"/.*[.](a|o|so[.0-9]*)", word)))

    def _is_ours(self, word):
        return word.startswith((self.folder + "/", self.project + "/"))

    def called_by_compiler(self):
        for program in ("cc1plus", "as", "ld", "collect2"):
            path = output_of([self.compiler, "-print-prog-name=" + program]).strip()
            path = shutil.which(path)
            if path:
                yield path

    def read(self, targets):
        """{file outside the project: what read it} for TARGETS, or for everything."""
        read = {}
        outputs = self.outputs(targets)
        unbuilt = [output for output in outputs
                   if " -c " in self.commands[output] and output not in self.headers]
        if unbuilt:
            raise Unchecked(f"{len(unbuilt)} objects are not compiled, {unbuilt[0]} for one")
        for output in outputs:
            for path in self.headers.get(output, []):
                read.setdefault(os.path.join(self.folder, path), "compiling " + output)
            for path in self.programs(self.commands[output]):
                read.setdefault(path, "the command of " + output)
        for path in self.called_by_compiler():
            read.setdefault(path, "the compiler")
        for path, output in self.opened_by_link(outputs).items():
            read.setdefault(path, "linking " + output)
        if targets is None:
            for path in self.configured_from():
                read.setdefault(path, "CMake")
        steps = {}
        for path, reader in read.items():
            path = os.path.normpath(path)
            if self._is_ours(path):
                continue
            for step in links_to(path):
                if not self._is_ours(step):
                    steps.setdefault(step, reader)
        return steps

    def cuda_folders(self):
        nvcc = self.cache.get("ECHELON_NVCC", "")
        if not nvcc.startswith("/"):
            return []
        folders = {os.path.dirname(os.path.dirname(path)) for path in (nvcc, os.path.realpath(nvcc))}
        return sorted(folders | {os.path.realpath(folder) for folder in folders})


# ---- the check ---------------------------------------------------------------------------------

def extra(path, tree):
    """Why a file may come from elsewhere, or None."""
    program = re.sub(r"[.0-9]+$", "", os.path.basename(path))
    for name in OPTIONAL_PROGRAMS:
        if program == re.sub(r"[.0-9]+$", "", name):
            return name
    if any(path.startswith(folder + "/") for folder in tree.cuda_folders() if folder != "/usr"):
        return "the CUDA toolkit"
    if CUDA_NAMES.fullmatch(os.path.basename(path)):
        return "cuDNN and NCCL"
    return None


def check(tree, packages, lists, without):
    """Prints what is not declared; whether all is."""
    undeclared = {}  # file -> (what read it, the lists that lack it)
    extras, used, everything, owners = collections.Counter(), set(), set(), {}
    for name in lists:
        names = [package for package in declared(name) if package not in without]
        closure = packages.closure(names)
        optional = [package for package in OPTIONAL.get(name, []) if package in packages.needs]
        may_be = packages.closure(names + optional)
        read = tree.read(TARGETS.get(name))
        owners.update(owners_of([path for path in read if path not in owners]))
        for path, reader in read.items():
            if closure & set(owners[path]):
                used.update(closure & set(owners[path]))
            elif may_be & set(owners[path]):
                pass
            elif extra(path, tree):
                extras[extra(path, tree)] += path not in everything
            else:
                undeclared.setdefault(path, (reader, []))[1].append(name)
            everything.add(path)
    if undeclared:
        tell(undeclared, owners)
        print(f"declared_packages: {len(undeclared)} of {len(everything)} files are of packages that "
              "scripts/packages.sh does not declare")
        return False
    also = "".join(f"; {count} of {name}" for name, count in sorted(extras.items()) if count)
    print(f"declared_packages: {len(everything)} files of {len(used)} packages, all declared{also}")
    return True


def tell(undeclared, owners):
    """The files, by package and the lists that lack it; the first few of each."""
    groups = collections.defaultdict(list)
    for path, (reader, names) in sorted(undeclared.items()):
        groups[" or ".join(owners[path]) or "no package", ", ".join(names)].append((path, reader))
    for (package, names), files in sorted(groups.items()):
        print(f"of {package}, which the list of {names} does not bring:")
        for path, reader in files[:5]:
            print(f"  {path}, read by {reader}")
        if files[5:]:
            print(f"  and {len(files) - 5} more")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree")
    parser.add_argument("--lists", default="plan,run,gui,test")
    parser.add_argument("--without", action="append", default=[])
    asked = parser.parse_args(arguments)
    try:
        fine = check(Tree(asked.tree), installed_packages(), asked.lists.split(","), asked.without)
    except Unchecked as why:
        print(f"declared_packages: not checked: {why}")
        return CANNOT
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
