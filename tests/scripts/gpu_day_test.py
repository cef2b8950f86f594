"""scripts/gpu_day.sh on emulated GPUs: packed, run and published.

  gpu_day_test.py BUILD     BUILD: the tree with plan, plan-run and the stand-ins
"""
import csv
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
SCRIPT = os.path.join(ROOT, "scripts", "gpu_day.sh")
BUILD = ""
# Programs of the machine that the tests pretend to be.
SMI = """#!/bin/sh
echo 'Some GPU, GPU-1, 580.0, 1000 MHz, 1980 MHz, 2619 MHz, 100 W, 700 W, 40'
"""
SANITIZER = """#!/bin/sh
[ "$1 $2 $3 $4" = "--tool memcheck --error-exitcode 99" ] || exit 98
shift 4
exec "$@"
"""
PYTHON = """#!/bin/sh
case "$*" in
-c*) echo /nowhere ;;
*pytorch.py) echo gpt2 wide_heads ;;
*pytorch.py\\ wide_heads\\ 16\\ 2\\ *) echo '{"step_seconds": 0.5, "tokens_per_second": 64.0, "torch": "9.9"}' ;;
*) exit 97 ;;
esac
"""


def shell(*command, **environment):
    # What a build's environment could add must not change what is run.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TMPDIR")
            if name in os.environ}
    return subprocess.run(command, text=True, capture_output=True, check=False, timeout=280,
                          env={**kept, "OMP_NUM_THREADS": "1", **environment})


def write_program(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    if os.path.exists(path):
        os.remove(path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


def content_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


class GpuDay(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.tree = os.path.join(cls.scratch.name, "tree")
        cls.packed = shell(SCRIPT, "pack", cls.tree, BUILD, "--stand-ins")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def place(self, *names):
        return os.path.join(self.scratch.name, *names)

    def run_day(self, name, *flags, tree=None, gpus="1", **environment):
        """Exit code, and the document."""
        out = self.place(name + ".json")
        ended = shell(os.path.join(tree or self.tree, "scripts", "gpu_day.sh"), "run", out, *flags,
                      PRETENDED_GPUS=gpus, PRETENDED_MEBIBYTES="4096", **environment)
        self.assertTrue(os.path.exists(out), ended.stderr)
        self.assertLess(os.path.getsize(out), 16 << 20)
        with open(out, encoding="utf-8") as file:
            return ended, json.load(file)

    def parts(self, document):
        return {each["name"]: each for each in document["parts"]}

    def test_1_the_packed_tree_is_small_and_has_what_it_needs(self):
        self.assertEqual(self.packed.returncode, 0, self.packed.stderr)
        size = sum(os.path.getsize(path) for path in
                   glob.glob(self.tree + "/**", recursive=True) if os.path.isfile(path))
        self.assertLess(size, 64 << 20)
        with open(os.path.join(self.tree, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertTrue(manifest["stand_ins"])
        for program in ("cli/plan", "cli/plan-run", "cli/echelon_cuda.so"):
            self.assertIn(program, manifest["files"])
        self.assertTrue(any(name.startswith("lib/libfmt") for name in manifest["files"]))
        self.assertFalse([name for name in manifest["files"] if name.startswith("lib/libc.so")])

    def test_2_everything_runs_on_an_emulated_gpu_and_is_published(self):
        tools = self.place("tools")
        write_program(tools, "nvidia-smi", SMI)
        write_program(tools, "compute-sanitizer", SANITIZER)
        write_program(tools, "python3-with-torch", PYTHON)
        ended, document = self.run_day("whole", "--python", tools + "/python3-with-torch",
                                       PYTHON=sys.executable,
                                       PATH=tools + ":" + os.environ["PATH"])
        parts = self.parts(document)
        self.assertEqual(document["not_done"], {}, ended.stdout)
        self.assertEqual(ended.returncode, 0)
        self.assertTrue(document["stand_ins"])
        self.assertLess(document["seconds"], document["budget_seconds"])
        self.assertEqual(document["machine"]["nvidia_smi_before"][0]["driver_version"], "580.0")
        self.assertIn("All tests passed", parts["tests: cuda:kernels on a GPU"]["result"]["output"])
        for part in document["parts"]:
            self.assertLessEqual(part["seconds"], part["limit_seconds"] + 5, part["name"])
        calibration = parts["calibration"]["result"]
        self.assertEqual(calibration["gpu"]["name"], "emulated GPU 0")
        self.assertEqual(calibration["rates"]["framework"], "echelon")
        trained = parts["train tiny, 16 tokens"]["result"]
        self.assertEqual(sorted(trained["mfu"]), ["6N+12LhT", "6N+6LhT"])
        # 12LhT - 6LhT of two layers, two heads of 64 and 16 tokens.
        flops = trained["model_flops_per_token"]
        self.assertAlmostEqual(flops["6N+12LhT"] - flops["6N+6LhT"], 6 * 2 * 128 * 16, delta=1)
        self.assertAlmostEqual(trained["mfu"]["6N+6LhT"] / trained["mfu"]["6N+12LhT"],
                               flops["6N+6LhT"] / flops["6N+12LhT"], places=9)
        for which in ("measured", "predicted"):
            self.assertGreater(trained["memory"][which]["optimizer_bytes"], 0)
        self.assertEqual(parts["PyTorch tiny, 16 tokens"]["result"]["torch"], "9.9")
        zeros = list(parts["experiment: products of zeros"]["result"].values())[0]
        self.assertEqual(sorted(zeros), ["numbers_seconds", "zeros_seconds"])
        self.assertEqual(sorted(parts["experiment: a message of NCCL"]["result"]),
                         ["blocking_seconds", "nonblocking_seconds"])
        for how in ("nonblocking", "blocking", "not split"):
            trained = parts["experiment: tp 2, communicators " + how]["result"]
            self.assertEqual(trained["plan"]["tp"], 2)
        trained = parts["experiment: norms of query and key heads"]["result"]
        self.assertGreater(trained["step_seconds"], 0)
        for blocks in ("16", "32"):
            trained = parts[f"experiment: dp 2, {blocks} thread blocks"]["result"]
            self.assertEqual(trained["plan"]["dp"], 2)
        self.assertEqual(parts["experiment: killed and resumed"]["result"]["resumed_with"], 2)
        self.publish(document)

    def publish(self, document):
        """Into a copy of what is written to, as figures of an H200."""
        root = self.place("root")
        for path in ("docs/cuda.md", "README.md", "tests/validation/runs.csv",
                     "evaluation/catalog/run_machines.json"):
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(root, path))
        for path in ("topologies/catalog/gpus", "costmodel/catalog/calibrations"):
            shutil.copytree(os.path.join(ROOT, path), os.path.join(root, path))
        refused = shell(SCRIPT, "publish", self.place("whole.json"))
        self.assertIn("found figures of emulated GPUs", refused.stderr)
        # The second time changes nothing.
        texts = [self.published(root, document, "NVIDIA H200") for _ in range(2)]
        self.assertEqual(texts[0], texts[1])
        page = texts[0]["docs/cuda.md"]
        self.assertIn("On **NVIDIA H200**", page)
        self.assertIn("| tiny, 16 tokens | ", page)
        self.assertIn("| 64 (9.9) |", page)
        self.assertIn("| calibration | ok | ", page)
        self.assertNotIn("Nothing has run on a GPU", page)
        self.assertIn("has run on NVIDIA H200", texts[0]["README.md"])
        self.check_rows(root, texts[0]["tests/validation/runs.csv"])
        rates = json.loads(content_of(
            os.path.join(root, "costmodel/catalog/calibrations/hopper-echelon.json")))
        self.assertEqual((rates["name"], rates["gpu"]), ("hopper-echelon", "hopper"))
        self.check_calibration(root)
        self.assertTrue(rates["fitted_to"].startswith("scripts/gpu_day.sh on NVIDIA H200"))
        self.publish_another(root, document, texts[0])

    def published(self, root, document, gpu, *flags):
        """As figures of this GPU; what the files that are written to are then."""
        self.parts(document)["calibration"]["result"]["gpu"]["name"] = gpu
        given = self.place("given.json")
        with open(given, "w", encoding="utf-8") as file:
            json.dump(document, file)
        done = shell(SCRIPT, "publish", given, "--root", root, "--no-page", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {path: content_of(os.path.join(root, path)) for path in
                ("docs/cuda.md", "README.md", "tests/validation/runs.csv",
                 "costmodel/catalog/calibrations/hopper-echelon.json")}

    def publish_another(self, root, document, before):
        """An H100 is added to the H200, and does not take over the family's rates."""
        theirs = self.parts(document)["PyTorch tiny, 16 tokens"]["result"]
        theirs["microbatch"] = 7
        texts = [self.published(root, document, "NVIDIA H100 80GB HBM3") for _ in range(2)]
        self.assertEqual(texts[0], texts[1])
        for path in ("docs/cuda.md", "README.md"):
            for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3"):
                self.assertEqual(texts[0][path].count(f"<!-- gpu: {name} -->"), 1)
            added = texts[0][path].index("<!-- gpu: NVIDIA H100 80GB HBM3 -->")
            self.assertEqual(before[path][:added - 1], texts[0][path][:added - 1])
        self.assertIn("(9.9, microbatch 7 instead of 2)", texts[0]["docs/cuda.md"])
        runs = "tests/validation/runs.csv"
        self.assertTrue(texts[0][runs].startswith(before[runs]))
        self.assertIn(",H100-SXM5-80GB,", texts[0][runs][len(before[runs]):])
        rates = "costmodel/catalog/calibrations/hopper-echelon.json"
        self.assertEqual(texts[0][rates], before[rates])
        replaced = self.published(root, document, "NVIDIA H100 80GB HBM3", "--rates")[rates]
        self.assertIn('"fitted_to": "scripts/gpu_day.sh on NVIDIA H100 80GB HBM3, ', replaced)
        # A day on which nothing was trained loses no row.
        self.parts(document)["train tiny, 16 tokens"]["status"] = "failed"
        untrained = self.published(root, document, "NVIDIA H100 80GB HBM3")
        self.assertEqual(untrained[runs], texts[0][runs])

    def check_calibration(self, root):
        """`plan` reads the file, and scripts/calibrations.sh would keep it."""
        file = os.path.join(root, "costmodel/catalog/calibrations/hopper-echelon.json")
        read = shell(os.path.join(BUILD, "cli", "plan"), "predict", "--model", "gpt2", "--cluster",
                     "dgx-h200", "--gpus", "1", "--seq", "1024", "--global-batch", "8",
                     "--framework", "echelon", "--calibration", file, "--json")
        self.assertEqual(read.returncode, 0, read.stderr)
        self.assertEqual(json.loads(read.stdout)["calibration"], "hopper-echelon")
        script = content_of(os.path.join(ROOT, "scripts/calibrations.sh"))
        mark = script.split("grep -q '")[1].split("'")[0]
        self.assertIn(mark, content_of(file))

    def check_rows(self, root, text):
        """All other rows keep their bytes, and `plan validate` predicts the new one."""
        before = content_of(os.path.join(ROOT, "tests/validation/runs.csv"))
        self.assertTrue(text.startswith(before))
        rows = [row for row in csv.DictReader(text.splitlines()) if row["source"] ==
                "echelon-gpu-day"]
        self.assertEqual([(row["gpu"], row["seq"], row["framework"]) for row in rows],
                         [("H200-SXM5-141GB", "16", "echelon")])
        alone = self.place("rows.csv")
        with open(alone, "w", encoding="utf-8") as file:
            file.write(before.splitlines()[0] + "\n" + text[len(before):])
        judged = shell(os.path.join(BUILD, "cli", "plan"), "validate", alone, "--json")
        self.assertEqual(judged.returncode, 0, judged.stderr)
        found = json.loads(judged.stdout)
        self.assertEqual((found["time"]["rows"], found["memory"]["rows"]), (1, 1))

    def test_3_parts_that_fail_hang_or_lack_a_library_do_not_stop_the_next(self):
        tree = self.place("broken")
        shutil.copytree(self.tree, tree)
        programs = os.path.join(tree, "programs")
        # An archive that was packed again replaces what an earlier one left.
        write_program(programs + "/cli", "plan", "#!/bin/sh\nexit 77\n")
        write_program(programs, "archive.sha256", "another")
        self.run_day("unpacked", "--budget", "0", tree=tree)
        with open(programs + "/cli/plan", "rb") as file:
            self.assertEqual(file.read(4), b"\x7fELF")
        write_program(programs + "/tests", "cuda_kernels_tests", "#!/bin/sh\n"
                      "printf '\\nSKIPPED: another: no reason\\n'\necho no >&2\nexit 3\n")
        tools = self.place("refusing")
        write_program(tools, "compute-sanitizer", "#!/bin/sh\necho Device not supported\nexit 1\n")

        write_program(programs + "/tests", "cuda_backend_tests", "#!/bin/sh\nsleep 600 & wait\n")
        # The plugin asks for a library that is nowhere.
        plugin = programs + "/cli/echelon_cuda.so"
        with open(plugin, "rb") as file:
            content = file.read()
        self.assertIn(b"\0libfmt.so.", content)
        os.remove(plugin)
        with open(plugin, "wb") as file:
            file.write(content.replace(b"\0libfmt.so.", b"\0libfxt.so."))
        ended, document = self.run_day("broken", "--limit", "tests: cuda:backend on a GPU=3",
                                       tree=tree, PATH=tools + ":" + os.environ["PATH"])
        parts = self.parts(document)
        told = {name: (parts[name]["status"], parts[name]["reason"]) for name in parts}
        status, reason = told["tests: cuda:kernels on a GPU"]
        self.assertEqual((status, reason[-2:]), ("failed", "no"))
        self.assertEqual(told["sanitizer"][0], "missing")
        self.assertIn("Device not supported", told["sanitizer"][1])
        status, reason = told["tests: cuda:backend on a GPU"]
        self.assertEqual(status, "timed out")
        self.assertIn("killed: it had not ended within its limit", reason)
        self.assertLess(parts["tests: cuda:backend on a GPU"]["seconds"], 20)
        for name in ("calibration", "train tiny, 16 tokens", "experiment: killed and resumed"):
            self.assertEqual(told[name][0], "missing", told[name])
            self.assertIn("libfxt.so.", told[name][1])
        self.assertEqual(set(document["not_done"]), {name for name in parts
                                                     if parts[name]["status"] != "ok"})
        self.assertEqual(ended.returncode, 3)  # no part used a GPU

    def test_4_without_a_gpu_the_file_says_so(self):
        ended, document = self.run_day("none", CUDA_VISIBLE_DEVICES="")
        self.assertEqual(ended.returncode, 3, ended.stdout)
        self.assertIn("nothing was measured", document["not_done"]["calibration"])

    def test_5_a_budget_that_is_spent_leaves_out_the_rest(self):
        ended, document = self.run_day("short", "--budget", "2.05", CUDA_VISIBLE_DEVICES="")
        self.assertNotEqual(ended.returncode, 0)
        self.assertEqual(document["parts"][-1]["status"], "no time")
        self.assertLess(document["seconds"], 30)

    def test_6_a_build_without_the_programs_is_not_packed(self):
        found = shell(SCRIPT, "pack", self.place("empty"), self.place("nowhere"))
        self.assertEqual(found.returncode, 3)
        self.assertIn("CTestTestfile.cmake", found.stderr)

    def test_7_a_tree_with_the_real_backend_fits_too(self):
        if not os.path.exists(os.path.join(BUILD, "cli", "echelon_cuda.so")):
            self.skipTest("this build has no CUDA backend")
        tree, link = self.place("real"), self.place("link")
        os.symlink(BUILD, link)
        packed = shell(SCRIPT, "pack", tree, link)
        self.assertEqual(packed.returncode, 0, packed.stderr)
        with open(os.path.join(tree, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        self.assertEqual([(each["name"], each["program"]) for each in manifest["tests"]],
                         [("cuda:kernels on a GPU", "tests/cuda_gpu_tests"),
                          ("cuda:backend on a GPU", "tests/cuda_gpu_backend_tests")])
        self.assertTrue({"tests/cuda_gpu_tests", "cli/plan"} <= set(manifest["files"]))
        _, document = self.run_day("real", "--budget", "10", tree=tree, CUDA_VISIBLE_DEVICES="")
        kernels = self.parts(document)["tests: cuda:kernels on a GPU"]
        self.assertEqual(kernels["status"], "missing")
        self.assertIn("SKIPPED: cuda:kernels on a GPU: no GPU", kernels["reason"])

    def test_8_libraries_of_the_wheels_come_before_those_of_the_toolkit(self):
        sys.path.insert(0, os.path.join(ROOT, "bench", "gpu"))
        import parts
        wheels = [self.place("venv", "site-packages", "nvidia", each, "lib")
                  for each in ("cu13", "cudnn", "nccl")]
        for each in (*wheels, self.place("toolkit-1.2", "lib64")):
            os.makedirs(each)
        write_program(self.place(), "python-of-wheels",
                      f"#!/bin/sh\nprintf '\\n/nowhere\\n{self.place('venv', 'site-packages')}\\n'\n")
        parts.NVIDIA_FOLDERS = (self.place("toolkit-*", "lib64"), self.place("nowhere"))
        self.assertEqual(parts.nvidia_folders(self.place("python-of-wheels")),
                         [*wheels, self.place("toolkit-1.2", "lib64")])
        # Of several Pythons the first one with PyTorch.
        write_program(self.place("first"), "python3", "#!/bin/sh\nexit 1\n")
        write_program(self.place("second", ".venv", "bin"), "python3", "#!/bin/sh\nexit 0\n")
        parts.OTHER_PYTHONS = (self.place("*", ".venv", "bin", "python3"),)
        known = os.environ["PATH"]
        os.environ["PATH"] = self.place("first")
        self.assertEqual(parts.python_with_torch(), self.place("second", ".venv", "bin", "python3"))
        os.environ["PATH"] = known


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
