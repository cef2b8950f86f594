#!/usr/bin/env python3
"""predict_by_others.py TOOL SOURCE: predicts the published runs of tests/validation/runs.csv with
another tool and writes its predictions to tests/validation/other_tools.csv.

predict_by_others.py compare: predicts the same rows with `plan validate --leave-out publisher`
(PLAN: the program, by default ./plan) and prints the errors of both, as docs/accuracy-notes.md has
them.

TOOL is calculon (calculon-ai/calculon), llm-analysis (cli99/llm-analysis) or simumax
(MooreThreads/SimuMax), SOURCE a checkout of it. Nothing is fitted: GPUs, efficiencies and tables of
kernels are those that the tool ships, network speeds are those of the row. A row that a tool cannot
express is left out; what it can only approximate (gated MLPs and flash attention in Calculon) is
named where it is done. Needs Python 3.10, and of the tool what it imports (numpy, pandas, sympy;
llm-analysis also fire and transformers).
"""

import contextlib
import csv
import io
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNS = ROOT / "tests/validation/runs.csv"
OUT = ROOT / "tests/validation/other_tools.csv"
FIELDS = ["tool", "commit", "row_id", "step_seconds", "peak_memory_bytes"]


class Inexpressible(Exception):
    """The row has what the tool does not describe; the text is the reason."""


def number(row, key, otherwise=None):
    text = row[key]
    if text:
        value = float(text)
        return int(value) if value == int(value) else value
    if otherwise is None:
        raise Inexpressible(f"no {key}")
    return otherwise


def shape(row):
    """The values that all tools need, as a dict of numbers."""
    values = {key: number(row, key) for key in
              ("layers", "hidden", "heads", "seq", "gpus", "microbatch")}
    values["gated"] = row["gated_mlp"] == "1"
    values["ffn_hidden"] = number(row, "ffn_hidden",
                                  None if values["gated"] else 4 * values["hidden"])
    for key in ("tp", "pp", "cp", "ep", "etp", "vpp"):
        values[key] = number(row, key, 1)
    values["kv_heads"] = number(row, "kv_heads", values["heads"])
    values["head_dim"] = number(row, "head_dim", values["hidden"] // values["heads"])
    values["vocab"] = number(row, "vocab", 51200)
    values["zero"] = number(row, "zero", 0)
    values["node"] = number(row, "gpus_per_node", 8)
    ranks = values["tp"] * values["pp"] * values["cp"]
    values["dp"] = number(row, "dp", values["gpus"] // ranks)
    values["batch"] = number(row, "global_batch",
                             values["dp"] * values["microbatch"] *
                             number(row, "grad_accumulation", 1))
    if ranks * values["dp"] != values["gpus"]:
        raise Inexpressible("degrees do not multiply to the GPUs")
    if values["batch"] % (values["dp"] * values["microbatch"]) != 0:
        raise Inexpressible("the batch does not divide")
    values["accumulation"] = values["batch"] // (values["dp"] * values["microbatch"])
    if row["task"] != "pretrain" or row["offload"] not in ("", "none"):
        raise Inexpressible("adapters, packed samples or offload")
    if row["schedule"].startswith("zb"):
        raise Inexpressible("a zero-bubble schedule")
    if row["precision"] not in ("bf16", "fp16"):
        raise Inexpressible("other precisions than 16 bits")
    return values


def dense(row, v):
    if row["experts"]:
        raise Inexpressible("experts")
    if row["attention"] not in ("mha", "gqa", "mqa", ""):
        raise Inexpressible("latent attention")
    if v["cp"] != 1:
        raise Inexpressible("context parallelism")
    return v


def whole_recompute(row):
    """none, selective or full; a part of the layers is not expressed."""
    kind = row["recompute"] or "none"
    some = row["recompute_detail"].startswith("full-block")
    if some or kind not in ("none", "selective", "full"):
        raise Inexpressible("recomputation of some layers")
    return kind


class Calculon:
    """Multi-head attention with its score matrix in memory, whatever the kernels; of a gated MLP
    one of the same weights (ffn times 3/2); no embedding, head or loss."""

    SYSTEMS = {"A100-SXM4-80GB": "a100_80g", "H100-SXM5-80GB": "h100_80g_nvl8"}

    def __init__(self, source):
        sys.path.insert(0, str(source))
        from calculon import System
        from calculon.llm import Llm
        self.llm, self.system = Llm, System
        self.log = logging.getLogger("calculon")
        self.log.addHandler(logging.NullHandler())
        self.log.propagate = False
        self.log.setLevel(logging.CRITICAL)
        self.systems = {gpu: json.loads((source / f"systems/{name}.json").read_text())
                        for gpu, name in self.SYSTEMS.items()}

    def predict(self, row):
        v = dense(row, shape(row))
        if row["gpu"] not in self.systems:
            raise Inexpressible("a GPU that it does not ship")
        if v["kv_heads"] != v["heads"]:
            raise Inexpressible("grouped queries")
        if v["zero"] > 1:
            raise Inexpressible("ZeRO-2 or 3")
        if v["layers"] % v["pp"] != 0:
            # Embedding and head, which it does not have, as a layer each: such layouts do so.
            v["layers"] += 2
        if v["layers"] % v["pp"] != 0:
            raise Inexpressible("stages of unequal layers")
        system = json.loads(json.dumps(self.systems[row["gpu"]]))
        system["networks"][0]["size"] = v["node"]
        system["mem1"]["GiB"] = 1024  # What it takes for too large is priced all the same: it ran.
        if row["nic_gbps_per_node"]:
            system["networks"][1]["bandwidth"] = float(row["nic_gbps_per_node"]) / 8 / v["node"]
        recompute = whole_recompute(row)
        sequence = row["sequence_parallel"] == "1" and v["tp"] > 1
        between = lambda ranks: 0 if ranks <= v["node"] else 1
        old = row["framework"] in ("megatron-2021", "megatron-deepspeed")
        execution = self.llm.Execution.from_json({
            "num_procs": v["gpus"], "tensor_par": v["tp"], "pipeline_par": v["pp"],
            "data_par": v["dp"], "tensor_par_net": between(v["tp"]),
            "pipeline_par_net": between(v["gpus"]), "data_par_net": between(v["tp"] * v["dp"]),
            "batch_size": v["batch"], "microbatch_size": v["microbatch"], "datatype": "float16",
            "fused_activation": True, "attention_type": "multihead",
            "activation_recompute": {"selective": "attn_only"}.get(recompute, recompute),
            "pipeline_interleaving": v["vpp"], "optimizer_sharding": v["zero"] == 1 and v["dp"] > 1,
            "tensor_par_comm_type": "rs_ag" if sequence else "ar", "tensor_par_overlap": "none",
            "seq_par_ag_redo": sequence and recompute != "full",
            "data_par_overlap": v["dp"] > 1 and not old, "weight_offload": False,
            "activations_offload": False, "optimizer_offload": False, "training": True})
        width = v["ffn_hidden"] * 3 // 2 if v["gated"] else v["ffn_hidden"]
        model = self.llm(self.llm.Application({
            "name": "row", "hidden": v["hidden"], "feedforward": width, "seq_size": v["seq"],
            "attn_heads": v["heads"], "attn_size": v["head_dim"], "num_blocks": v["layers"]}),
            self.log)
        machine = self.system(system)
        model.compile(machine, execution)
        model.run(machine)
        stats = model.get_stats_json(False)
        return stats["total_time"], stats["proc_mem_tier1_cap_req"]


class LlmAnalysis:
    """With the efficiencies that its README gives: 0.5 of the FLOPs, 0.9 of the memory speed. No
    pipeline bubble, no data-parallel time but that of gathered weights."""

    GPUS = {"A100-SXM4-80GB": "a100-sxm-80gb", "A100-SXM4-40GB": "a100-sxm-40gb",
            "H100-SXM5-80GB": "h100-sxm-80gb"}

    def __init__(self, source):
        sys.path.insert(0, str(source))
        from llm_analysis import analysis, config
        logging.disable(logging.CRITICAL)
        self.analysis, self.config = analysis, config
        # Its check of its own FLOPs holds for MLPs of four times the hidden size alone.
        analysis.TOLERANCE = float("inf")
        config.populate_model_and_gpu_configs()

    def predict(self, row):
        v = dense(row, shape(row))
        if row["gpu"] not in self.GPUS:
            raise Inexpressible("a GPU that it does not ship")
        if v["vpp"] != 1:
            raise Inexpressible("interleaving")
        recompute = whole_recompute(row)
        gpu = self.config.gpu_configs[self.GPUS[row["gpu"]]]
        if row["nic_gbps_per_node"]:
            gpu = type(gpu)(**{**gpu.__dict__, "inter_node_bandwidth_in_GB_per_sec":
                               float(row["nic_gbps_per_node"]) / 8})
        model = self.config.ModelConfig(
            name="row", num_layers=v["layers"], n_head=v["heads"], hidden_dim=v["hidden"],
            vocab_size=v["vocab"], max_seq_len=v["seq"], num_key_value_heads=v["kv_heads"],
            ffn_embed_dim=v["ffn_hidden"], mlp_gated_linear_units=v["gated"])
        tool = self.analysis.LLMAnalysis(
            model, gpu, self.config.dtype_configs["w16a16e16"],
            self.config.ParallelismConfig(
                tp_size=v["tp"], pp_size=v["pp"], dp_size=v["dp"],
                sp_size=v["tp"] if row["sequence_parallel"] == "1" else 1),
            flops_efficiency=0.5, hbm_memory_efficiency=0.9)
        zero, stage = self.analysis.DSZeRO, v["zero"]
        level = self.analysis.ActivationRecomputation
        answer = tool.training(
            batch_size_per_gpu=v["microbatch"], gradient_accumulation_steps=v["accumulation"],
            global_batch_size=v["batch"], seq_len=v["seq"],
            flash_attn=row["flash_attention"] != "0",
            activation_recomputation={"none": level.NONE, "selective": level.ATTN_COMPUTE,
                                      "full": level.FULL}[recompute],
            ds_zero=zero(stage))
        memory = (answer["weight_memory_per_gpu"] + answer["optimizer_state_memory_per_gpu"] +
                  answer["gradient_memory_per_gpu"] + answer["activation_memory_per_gpu"])
        return answer["latency_per_iter"], memory


class SimuMax:
    """On B200 with the table of kernels of its own measurements; on A100 with that of its PCIe
    cards, and networks of the row, NVLink at 300 GB/s and the NICs, at the efficiencies of the file
    of B200. Attention is always its flash attention. Both settings were chosen of two because they
    err less on these rows. It ships no Hopper."""

    UNITS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
    SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

    def __init__(self, source):
        sys.path.insert(0, str(source))
        from simumax.core import config, perf_llm
        self.config, self.perf = config, perf_llm
        b200 = json.loads((source / "configs/system/b200_bf16_ceperm.json").read_text())
        self.systems = {"B200": b200}
        a100 = json.loads((source / "configs/system/a100_pcie.json").read_text())
        a100["accelerator"]["bandwidth"] = {
            name: {**one, "gbps": 2039} for name, one in a100["accelerator"]["bandwidth"].items()}
        nvlink = json.loads(json.dumps(b200["networks"]["high_intra_node"]))
        nvlink["bandwidth"]["gbps"] = 300
        a100["networks"] = {"intra_with_pcie": False, "low_intra_node": nvlink,
                            "high_intra_node": nvlink,
                            "inter_node": b200["networks"]["inter_node"]}
        self.systems["A100-SXM4-80GB"] = a100

    def predict(self, row):
        v = shape(row)
        if v["cp"] != 1 or row["attention"] not in ("mha", "gqa", "mqa", ""):
            raise Inexpressible("context parallelism or latent attention")
        name = "B200" if row["gpu"].startswith("B200") else row["gpu"]
        if name not in self.systems:
            raise Inexpressible("a GPU that it does not ship")
        if v["zero"] > 1:
            raise Inexpressible("ZeRO-2 or 3")
        ends = v["layers"] % (v["pp"] * v["vpp"]) != 0  # embedding and head count as a layer each
        if ends and (v["layers"] + 2) % (v["pp"] * v["vpp"]) != 0:
            raise Inexpressible("stages of unequal layers")
        recompute = whole_recompute(row)
        system = json.loads(json.dumps(self.systems[name]))
        system["num_per_node"] = v["node"]
        if row["nic_gbps_per_node"]:
            system["networks"]["inter_node"]["bandwidth"]["gbps"] = \
                float(row["nic_gbps_per_node"]) / 8
        strategy = {
            "seq_len": v["seq"], "micro_batch_size": v["microbatch"],
            "micro_batch_num": v["accumulation"], "dtype": "bf16", "world_size": v["gpus"],
            "tp_size": v["tp"], "pp_size": v["pp"], "ep_size": v["ep"], "etp_size": v["etp"],
            "interleaving_size": v["vpp"], "pp_comm_async": v["vpp"] == 1, "zero_state": v["zero"],
            "account_for_embedding_in_pipeline_split": ends,
            "account_for_loss_in_pipeline_split": ends,
            "enable_sequence_parallel": row["sequence_parallel"] == "1" and v["tp"] > 1,
            "use_flash_sdp": True,
            "use_math_sdp": False,
            "enable_recompute": recompute != "none",
            "recompute_granularity": {"none": None, "full": "full_block",
                                      "selective": "sdp_only"}[recompute],
            "recompute_layer_num": 0 if recompute == "none" else v["layers"]}
        model = {"hidden_size": v["hidden"], "head_num": v["heads"], "kv_head_num": v["kv_heads"],
                 "head_size": v["head_dim"], "intermediate_size": v["ffn_hidden"],
                 "layer_num": v["layers"], "vocab_size": v["vocab"], "use_swiglu": v["gated"]}
        if row["experts"]:
            model |= {"model_type": "moe", "expert_num": number(row, "experts"),
                      "topk": number(row, "experts_per_token"),
                      "moe_ffn_hidden_size": number(row, "expert_ffn_hidden"),
                      "dense_layers": number(row, "first_dense_layers", 0)}
            if row["shared_expert_ffn_hidden"]:
                model["moe_shared_expert_intermediate_size"] = number(
                    row, "shared_expert_ffn_hidden")
        tool = self.perf.PerfLLM()
        with contextlib.redirect_stdout(io.StringIO()):
            tool.configure(strategy_config=self.config.StrategyConfig.init_from_dict(strategy),
                           model_config=self.config.ModelConfig.init_from_dict(
                               {"moe_ffn_hidden_size": v["ffn_hidden"], **model}),
                           system_config=self.config.SystemConfig.init_from_dict(system))
            tool.run_estimate()
            cost, memory = tool.analysis_cost().data, tool.analysis_mem().data
        value, unit = cost["duration_time_per_iter"].split()
        key = "peak_mem" if row["memory_kind"] == "allocated" else "peak_mem_with_reserved"
        stages = [memory] if key in memory else list(memory.values())
        peaks = [stage[key].split() for stage in stages]
        return (float(value) * self.SECONDS[unit],
                max(float(size) * 1024 ** self.UNITS[of] for size, of in peaks))


TOOLS = {"calculon": Calculon, "llm-analysis": LlmAnalysis, "simumax": SimuMax}


def compare():
    """Mean and median of |predicted / measured - 1| of step times, of rows that are not flagged."""
    plan = os.environ.get("PLAN", str(ROOT / "plan"))
    report = json.loads(subprocess.run(
        [plan, "validate", RUNS, "--leave-out", "publisher", "--json", "--quiet"], check=True,
        capture_output=True, text=True).stdout)
    ours = {one["row_id"]: one for one in report["rows"] if one.get("time_error") is not None}
    errors = {}
    for one in csv.DictReader(OUT.open()):
        row = ours.get(one["row_id"])
        if row is None or row["flags"]:
            continue
        theirs = float(one["step_seconds"]) / row["measured_step_seconds"] - 1
        of_row = [abs(theirs), abs(row["time_error"]), abs(row["prior_time_error"])]
        for source in ("all", row["source"]):
            errors.setdefault((one["tool"], source), []).append(of_row)
    print("| tool | rows | its error, mean / median | ours, publisher left out | ours, priors "
          "alone |\n|---|---|---|---|---|")
    for (tool, source), rows in sorted(errors.items()):
        columns = [f"{100 * statistics.mean(each):.1f} / {100 * statistics.median(each):.1f} %"
                   for each in zip(*rows)]
        print(f"| {tool} | {len(rows)} {source} | " + " | ".join(columns) + " |")


def main():
    if sys.argv[1:] == ["compare"]:
        return compare()
    if len(sys.argv) != 3 or sys.argv[1] not in TOOLS:
        sys.exit(f"usage: predict_by_others.py {'|'.join(TOOLS)} SOURCE, or compare")
    name, source = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    commit = subprocess.run(["git", "-C", source, "rev-parse", "--short=8", "HEAD"], check=True,
                            capture_output=True, text=True).stdout.strip()
    tool = TOOLS[name](source)
    kept = list(csv.DictReader(OUT.open())) if OUT.exists() else []
    kept = [one for one in kept if one["tool"] != name]
    predicted, reasons = [], {}
    for row in csv.DictReader(RUNS.open()):
        if row["status"] != "ok" or not (row["step_seconds"] or row["peak_memory_bytes"]):
            continue
        try:
            seconds, memory = tool.predict(row)
        except Inexpressible as reason:
            reasons[str(reason)] = reasons.get(str(reason), 0) + 1
            continue
        except Exception as error:  # The tool's own refusal.
            reason = f"refused by {name}: {type(error).__name__} {error}"[:110]
            reasons[reason] = reasons.get(reason, 0) + 1
            continue
        predicted.append({"tool": name, "commit": commit, "row_id": row["row_id"],
                          "step_seconds": f"{seconds:.6g}", "peak_memory_bytes": f"{memory:.0f}"})
    with OUT.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(kept + predicted, key=lambda one: (one["tool"], one["row_id"])))
    print(f"{name} {commit}: {len(predicted)} rows predicted")
    for reason, rows in sorted(reasons.items(), key=lambda one: -one[1]):
        print(f"  {rows:5} left out: {reason}")


if __name__ == "__main__":
    main()
