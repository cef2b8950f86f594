"""Client for `plan`, the planner for distributed training of large language models.

    import echelon
    answer = echelon.plan(model="7b", gpus=64)
    answer.winner.plan.tp, answer.winner.time.step_seconds

Every function starts the program `plan` with --json and returns its document as dataclasses; no
number is computed here. Keyword arguments are the flags of the command, with _ for -:
`global_batch=1024` is --global-batch 1024, `sequence_parallel=False` is --no-sequence-parallel, a
list is joined with commas. Only the standard library is needed.

The program is found as the environment variable ECHELON_PLAN, the argument `program`, or `plan` on
the PATH, in the order: argument, variable, PATH.
"""

from echelon.answers import (
    Candidate,
    Economics,
    LogImport,
    Measured,
    Memory,
    Plan,
    Search,
    Throughput,
    Time,
)
from echelon.client import PlanError, compare, explain, import_log, models, plan, predict

__all__ = [
    "Candidate",
    "Economics",
    "LogImport",
    "Measured",
    "Memory",
    "Plan",
    "PlanError",
    "Search",
    "Throughput",
    "Time",
    "compare",
    "explain",
    "import_log",
    "models",
    "plan",
    "predict",
]
