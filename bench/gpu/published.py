#!/usr/bin/env python3
"""Puts the figures of a gpu_day.py run where they are read.

published.py IN.json [--root DIR] [--no-page] [--rates]
    DIR (default: this repository) gets
      docs/cuda.md, README.md         between the marks "gpu day begin" and "gpu day end", for each
                                      GPU that was published: tables, and one sentence
      tests/validation/runs.csv       a row for every model that was trained
      docs/accuracy.md                by scripts/accuracy.sh, which reads that table (--no-page:
                                      not now)
      costmodel/catalog/calibrations  FAMILY-echelon.json: the rates that were measured; those of
                                      another GPU of the family stay (--rates: are replaced)
    What an earlier run wrote of the same GPU is replaced. Figures of emulated GPUs are for trying
    this out: they need --root.
"""

import argparse
import csv
import glob
import io
import json
import os
import re
import subprocess
import sys

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
MARKS = ("<!-- gpu day begin -->", "<!-- gpu day end -->")
SOURCE = "echelon-gpu-day"
CATEGORIES = ("weights", "gradients", "optimizer", "activations", "workspace", "communication",
              "context", "total")


def results(document, prefix):
    """Label and result of the parts that begin like this and are ok."""
    return {each["name"][len(prefix):]: each["result"] for each in document["parts"]
            if each["name"].startswith(prefix) and each["status"] == "ok"}


def gpu_of(document):
    """What the calibration found, else what nvidia-smi named."""
    found = results(document, "calibration").get("")
    if found:
        return found["gpu"]
    listed = document["machine"].get("nvidia_smi_before") or [{"name": "an unknown GPU"}]
    return {"name": listed[0]["name"]}


def table(head, rows):
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines) + "\n"


def versions(document):
    """"driver 580.1, CUDA 13.0, NCCL 2.28.9", of what is known."""
    gpu = gpu_of(document)
    listed = (document["machine"].get("nvidia_smi_before") or [{}])[0]
    told = []
    if listed.get("driver_version"):
        told.append("driver " + listed["driver_version"])
    if gpu.get("runtime"):
        told.append(f"CUDA {gpu['runtime'] // 1000}.{gpu['runtime'] % 1000 // 10}")
    if gpu.get("nccl"):
        told.append(f"NCCL {gpu['nccl'] // 10000}.{gpu['nccl'] // 100 % 100}.{gpu['nccl'] % 100}")
    return ", ".join([*told, document["version"].splitlines()[0]])


def cell_of(theirs, ours):
    """PyTorch's speed, with what else it needed."""
    told = f"{theirs['tokens_per_second']:,.0f} ({theirs['torch']}"
    if theirs.get("microbatch", ours["plan"]["microbatch"]) != ours["plan"]["microbatch"]:
        told += f", microbatch {theirs['microbatch']} instead of {ours['plan']['microbatch']}"
    return told + ")"


def trained_tables(document):
    trained, pytorch = results(document, "train "), results(document, "PyTorch ")
    if not trained:
        return "No model was trained.\n"
    speed, held = [], []
    for label, run in trained.items():
        theirs = pytorch.get(label)
        ratio = run["predicted_over_measured"]
        speed.append([
            label, f"{run['tokens_per_second']:,.0f}", f"{run['mfu']['6N+6LhT']:.1%}",
            f"{run['mfu']['6N+12LhT']:.1%}", f"{run['step_seconds'] * 1e3:.1f} ms",
            f"{run['predicted_step_seconds'] * 1e3:.1f} ms", f"{ratio - 1:+.1%}",
            cell_of(theirs, run) if theirs else "-"])
        held.append([label] + [
            " / ".join(f"{run['memory'][which].get(part + '_bytes', 0) / 2**30:.2f}"
                       for which in ("measured", "predicted")) for part in CATEGORIES])
    return (table(["model", "tokens/s", "MFU, 6N+6LhT", "MFU, 6N+12LhT", "step", "predicted",
                   "error", "PyTorch, tokens/s"], speed)
            + "\nMemory in GiB, measured / predicted:\n\n" + table(["model", *CATEGORIES], held))


def block(document):
    """The text between the marks."""
    gpu = gpu_of(document)
    parts, undone = document["parts"], document["not_done"]
    emulated = " (emulated: the figures mean nothing)" if document["stand_ins"] else ""
    lines = [f"On **{gpu['name']}**{emulated}, {document['date']}, {versions(document)}: "
             f"{len(parts) - len(undone)} of {len(parts)} parts of `scripts/gpu_day.sh` in "
             f"{document['seconds']:.0f} s.\n", trained_tables(document)]
    rows = [[each["name"], each["status"], f"{each['seconds']:.1f}"] for each in parts]
    lines.append(table(["part", "", "s"], rows))
    if undone:
        told = [f"* {name}: {reason.splitlines()[0][:200]}" for name, reason in undone.items()]
        lines.append("Not done:\n\n" + "\n".join(told) + "\n")
    return "\n".join(lines)


def sentence(document):
    """README's: what has run on a GPU."""
    undone = document["not_done"]
    return (f"GPUs: `plan run --backend cuda` has run on {gpu_of(document)['name']}, "
            f"{document['date']}: {len(document['parts']) - len(undone)} of "
            f"{len(document['parts'])} parts of `scripts/gpu_day.sh` passed "
            "([docs/cuda.md](docs/cuda.md)). Its other tests run on emulated GPUs.\n")


def write_block(path, gpu, text):
    """The part of this GPU: in place of its earlier one, else after those of others."""
    with open(path, encoding="utf-8") as file:
        page = file.read()
    if page.count(MARKS[0]) != 1 or page.count(MARKS[1]) != 1:
        sys.exit(f"published.py: expected the marks {MARKS[0]} and {MARKS[1]} in {path}, once each")
    before, _, rest = page.partition(MARKS[0])
    known, _, after = rest.partition(MARKS[1])
    # What is before the first mark of a GPU says that none was there.
    parts = re.split(r"^<!-- gpu: (.*) -->\n", known, flags=re.M)[1:]
    texts = dict(zip(parts[::2], parts[1::2]))
    texts[gpu] = text
    block = "\n".join(f"<!-- gpu: {name} -->\n{each.strip()}\n" for name, each in texts.items())
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{MARKS[0]}\n{block}{MARKS[1]}{after}")


def in_catalog(root, name):
    """The catalog's GPU of that name of a driver, or None."""
    for path in glob.glob(os.path.join(root, "topologies", "catalog", "gpus", "*.json")):
        with open(path, encoding="utf-8") as file:
            gpu = json.load(file)
        if name in gpu.get("driver_names", []):
            return gpu
    return None


def name_in_table(root, name):
    """The name that tables of runs have for a driver's GPU; the driver's own if they have none."""
    gpu = in_catalog(root, name)
    if gpu is None:
        return name
    machines = os.path.join(root, "evaluation", "catalog", "run_machines.json")
    with open(machines, encoding="utf-8") as file:
        listed = json.load(file)["machines"]
    return next((each["name"] for each in listed if each["gpu"] == gpu["name"]), gpu["name"])


def row_of(document, gpu, number, label, run):
    """A row of tests/validation/runs.csv."""
    model, plan, held = run["model"], run["plan"], run["memory"]["measured"]
    formula = "6N+12LhT"
    per_token = run["model_flops_per_token"][formula]
    return {
        "row_id": f"{SOURCE}-{number:04}", "source": SOURCE, "publisher": "Echelon", "grade": "A",
        "status": "ok", "framework": "echelon",
        "framework_detail": document["version"].splitlines()[0], "date": document["date"],
        "task": "pretrain", "model": model["name"],
        **{key: model[key] for key in ("layers", "hidden", "ffn_hidden", "heads", "kv_heads",
                                       "head_dim", "vocab")},
        "seq": run["sequence"], "gated_mlp": int(model["gated_mlp"]),
        "tied_embeddings": int(model["tied_embeddings"]),
        "attention": "mha" if model["heads"] == model["kv_heads"] else "gqa",
        "gpu": gpu, "gpus": 1, "gpus_per_node": 1, "tp": 1, "cp": 1, "pp": 1, "vpp": 1, "dp": 1,
        "sequence_parallel": 0, "zero": 0, "zero_group_size": 1, "microbatch": plan["microbatch"],
        "global_batch": run["global_batch"], "grad_accumulation": plan["microbatches"],
        "recompute": plan["recompute"], "precision": "bf16",
        "precision_detail": "bf16, fp32 gradients, master weights and moments",
        "flash_attention": 1, "torch_compile": 0, "offload": "none",
        "step_seconds": f"{run['step_seconds']:.6g}", "step_kind": "measured",
        "tokens_per_second_per_gpu": f"{run['tokens_per_second']:.1f}",
        "tflops_per_gpu": f"{run['tokens_per_second'] * per_token / 1e12:.5g}",
        "tflops_formula": formula,
        # What runs allocate, without what CUDA holds besides: the allocator keeps nothing.
        "peak_memory_bytes": held["total_bytes"] - held["context_bytes"], "memory_kind": "reserved",
        "locator": f"scripts/gpu_day.sh, {label}", "notes": f"median of {run['steps']} steps"}


def write_rows(path, document, gpu):
    """Our rows for this GPU in the table, in place of those of the same models; returns their
    number."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    head = next(csv.reader(io.StringIO(text)))
    kept = [row for row in csv.DictReader(io.StringIO(text)) if row["source"] == SOURCE]
    trained = results(document, "train ")
    others = [row for row in kept if row["gpu"] != gpu
              or row["locator"].partition(", ")[2] not in trained]
    number = max([int(row["row_id"].rpartition("-")[2]) for row in others], default=0)
    ours = [row_of(document, gpu, number + 1 + i, label, run)
            for i, (label, run) in enumerate(trained.items())]
    out = io.StringIO(newline="")
    ends = "\r\n" if "\r\n" in text else "\n"
    writer = csv.DictWriter(out, head, lineterminator=ends)
    writer.writerows(others + ours)
    # All other rows keep their bytes: quoting differs between writers.
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(SOURCE + "-")]
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write("".join(lines) + out.getvalue())
    return len(ours)


def write_calibration(root, document, replace):
    """The shipped calibration of the GPU's family, as measured; returns what was done. That of
    another GPU of the family stays unless `replace`."""
    found = results(document, "calibration").get("")
    if found is None:
        return "no calibration was measured: the shipped one stays"
    gpu = in_catalog(root, found["gpu"]["name"])
    if gpu is None:
        return (f"topologies/catalog/gpus/ has no GPU with the driver's name {found['gpu']['name']}: "
                "the shipped calibrations stay")
    rates = dict(found["rates"], gpu=gpu["family"])
    rates["name"] = f"{gpu['family']}-{rates['framework']}"
    begin = f"scripts/gpu_day.sh on {found['gpu']['name']}, "
    rates["fitted_to"] = f"{begin}{document['date']}, {document['version'].splitlines()[0]}"
    path = os.path.join("costmodel", "catalog", "calibrations", rates["name"] + ".json")
    if os.path.exists(os.path.join(root, path)) and not replace:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            before = json.load(file)["fitted_to"]
        if before.startswith("scripts/gpu_day.sh on ") and not before.startswith(begin):
            return f"{path}: the rates of {before} stay (--rates replaces them)"
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        json.dump(rates, file, indent=2)
        file.write("\n")
    return f"{path}: the rates are written"


def main():
    flags = argparse.ArgumentParser(prog="gpu_day.sh publish", description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("given", metavar="IN.json")
    flags.add_argument("--root", metavar="DIR")
    flags.add_argument("--no-page", action="store_true")
    flags.add_argument("--rates", action="store_true")
    asked = flags.parse_args()
    with open(asked.given, encoding="utf-8") as file:
        document = json.load(file)
    if document.get("kind") != "gpu day" or document.get("schema") != 1:
        sys.exit(f"published.py: {asked.given} is not of scripts/gpu_day.sh run")
    if document["stand_ins"] and asked.root is None:
        sys.exit("published.py: found figures of emulated GPUs, expected measured ones (--root DIR "
                 "publishes into another tree)")
    root = asked.root or ROOT
    for page, text in (("docs/cuda.md", block(document)), ("README.md", sentence(document))):
        write_block(os.path.join(root, page), gpu_of(document)["name"], text)
        print(f"{page}: the block is written")
    runs = os.path.join(root, "tests", "validation", "runs.csv")
    rows = write_rows(runs, document, name_in_table(root, gpu_of(document)["name"]))
    print(f"{runs}: {rows} rows of {SOURCE}")
    print(write_calibration(root, document, asked.rates))
    if not asked.no_page:
        subprocess.run([os.path.join(root, "scripts", "accuracy.sh")], check=True)
    print("Left to do: the tests of costmodel and evaluation, whose goldens know the old rates "
          "(ECHELON_UPDATE_GOLDENS=1)")


if __name__ == "__main__":
    main()
