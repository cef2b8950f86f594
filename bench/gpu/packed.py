#!/usr/bin/env python3
"""Packs what gpu_day.py runs into a folder of at most 64 MiB.

packed.py DIR [BUILD] [--stand-ins]
    BUILD: the folder of a release build (default: build/release) with plan, plan-run,
    echelon_cuda.so and the test programs that ctest labels gpu. They go into programs.tar.gz,
    stripped, with the shared libraries they load; left out are those of the C library, which must
    be the machine's, and NVIDIA's, which gpu_day.py looks for there.
    --stand-ins: the same programs on emulated GPUs (docs/cuda.md), to try the whole thing without
    a GPU. Exit code 3 if something is not built.
"""

import argparse
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
LIMIT = 64 << 20
# Beside the programs: what gpu_day.py, measure.py and published.py are made of.
SOURCES = ("scripts/gpu_day.sh", "bench/gpu/gpu_day.py", "bench/gpu/parts.py",
           "bench/gpu/measure.py", "bench/gpu/pytorch.py", "bench/gpu/llama2-7b-8-layers.json",
           "bench/gpu/qwen3-30b-a3b-2-layers.json", "tests/cli/wide_heads.json",
           "tests/cli/wide_heads_qwen3.json", "tests/cli/wide_heads_qwen3_moe.json", "LICENSE")
# Of the machine itself: a library must match its loader, NVIDIA's also the driver.
LEFT_OUT = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util))\.so\b|"
                      r"lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|nvidia)[-_a-z]*\.so")
# On emulated GPUs, whose threads are slow: a part of each program's tests.
STAND_INS = {
    "cuda:kernels on a GPU": ("tests/cuda_kernels_tests", "CUDA sums, products*"),
    "cuda:backend on a GPU": ("tests/cuda_backend_tests", "NCCL serves a single rank*"),
}


class NotBuilt(Exception):
    """A program that the tree needs is not there."""


def gpu_tests(build):
    """Name and program of every test that the build labels gpu."""
    path = os.path.join(build, "tests", "CTestTestfile.cmake")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise NotBuilt(f"{path}: {error.strerror}") from None
    name = r'"?(?:\[=*\[)?([^"\]\n]+)(?:\]=*\])?"?'  # as CMake quotes it: [=[NAME]=]
    programs = dict(re.findall(rf'^add_test\({name} "([^"]+)"', text, re.M))
    labelled = re.findall(rf'^set_tests_properties\({name} PROPERTIES.*\bLABELS "[^"]*\bgpu\b',
                          text, re.M)
    return {name: programs[name] for name in labelled if name in programs}


def wanted(build, stand_ins):
    """Programs by their place in the tree, and the tests among them."""
    plugin = "tests/pretended/echelon_cuda.so" if stand_ins else "cli/echelon_cuda.so"
    programs = {"cli/plan": "cli/plan", "cli/plan-run": "cli/plan-run",
                "cli/echelon_cuda.so": plugin}
    tests = []
    if stand_ins:
        for name, (program, part) in STAND_INS.items():
            programs[program] = program
            tests.append({"name": name, "program": program, "arguments": [part]})
    else:
        for name, program in gpu_tests(build).items():
            # CMake names the folder of its configuration, which a link or a copy may lead to.
            place = os.path.join("tests", os.path.basename(program))
            programs[place] = place
            tests.append({"name": name, "program": place, "arguments": []})
        if not tests:
            raise NotBuilt("no test has the label gpu: configure with the CUDA toolkit and NCCL")
    paths = {place: os.path.join(build, source) for place, source in programs.items()}
    for path in paths.values():
        if not os.path.exists(path):
            raise NotBuilt(f"{path} is not built")
    return paths, tests


def libraries_of(paths):
    """The shared libraries that programs load, by name; not those LEFT_OUT."""
    found = {}
    for path in paths:
        text = subprocess.run(["ldd", path], text=True, capture_output=True, check=False).stdout
        for name, file in re.findall(r"^\s*(\S+) => (/\S+)", text, re.M):
            if not LEFT_OUT.match(name):
                found[name] = os.path.realpath(file)
    return found


def stripped(path, folder):
    """A copy without symbols of the linker; the file itself where there is no strip."""
    copy = os.path.join(folder, "stripped")
    made = shutil.which("strip") and subprocess.run(
        ["strip", "--strip-unneeded", "-o", copy, path], capture_output=True, check=False)
    return copy if made and made.returncode == 0 else path


def write_archive(path, files):
    """The programs, by place, executable."""
    with (tempfile.TemporaryDirectory() as folder,
          tarfile.open(path, "w:gz", compresslevel=6) as out):
        for place, file in sorted(files.items()):
            with open(stripped(file, folder), "rb") as read:
                content = read.read()
            entry = tarfile.TarInfo(place)
            entry.size, entry.mode = len(content), 0o755
            out.addfile(entry, io.BytesIO(content))


def bytes_of(folder):
    return sum(os.path.getsize(os.path.join(where, name))
               for where, _, names in os.walk(folder) for name in names)


def pack(target, build, stand_ins):
    paths, tests = wanted(build, stand_ins)
    if os.path.isdir(target) and os.listdir(target):
        sys.exit(f"packed.py: {target} is not empty")
    for source in SOURCES:
        to = os.path.join(target, source)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(os.path.join(ROOT, source), to)
    files = dict(paths)
    for name, file in libraries_of(paths.values()).items():
        files[f"lib/{name}"] = file
    write_archive(os.path.join(target, "programs.tar.gz"), files)
    version = subprocess.run([paths["cli/plan"], "--version"], text=True, capture_output=True,
                             check=False).stdout.strip()
    manifest = {"schema": 1, "version": version, "stand_ins": stand_ins, "tests": tests,
                "files": sorted(files)}
    with open(os.path.join(target, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
        file.write("\n")
    size = bytes_of(target)
    if size > LIMIT:
        sys.exit(f"packed.py: {target} takes {size / (1 << 20):.1f} MiB, expected at most 64")
    print(f"{target}: {size / (1 << 20):.1f} MiB, {len(files)} programs and libraries, "
          + version.splitlines()[0])


def main():
    flags = argparse.ArgumentParser(prog="gpu_day.sh pack", description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("target", metavar="DIR")
    flags.add_argument("build", metavar="BUILD", nargs="?",
                       default=os.path.join(ROOT, "build", "release"))
    flags.add_argument("--stand-ins", action="store_true")
    asked = flags.parse_args()
    try:
        pack(asked.target, os.path.abspath(asked.build), asked.stand_ins)
    except NotBuilt as error:
        print(f"packed.py: {error}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
