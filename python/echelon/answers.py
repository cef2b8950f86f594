"""Documents of `plan … --json` as dataclasses. `raw` is the whole object, with all its keys."""

import html
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional

GIB = 2**30


def _read(cls, document, **more):
    """An instance of `cls` from the keys of `document` that are its fields. A field without a
    default must be there: a missing one is a KeyError that names it."""
    values = dict(more)
    for one in fields(cls):
        if one.name in values:
            continue
        if one.name == "raw":
            values["raw"] = document
        elif one.name in document:
            values[one.name] = document[one.name]
        elif one.default is one.default_factory:  # both are MISSING
            raise KeyError(f"{cls.__name__}.{one.name} is not in the document of plan")
    return cls(**values)


def _table(rows, header=None):
    """Rows of cells as an HTML table."""
    out = ["<table>"]
    if header:
        cells = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in header)
        out.append(f"<thead><tr>{cells}</tr></thead>")
    out.append("<tbody>")
    for row in rows:
        out.append("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>")
    out.append("</tbody></table>")
    return "".join(out)


@dataclass(frozen=True)
class Plan:
    """A layout: degrees, batch, ZeRO, recomputation, schedule."""

    tp: int
    cp: int
    ep: int
    etp: int
    dp: int
    pp: int
    vpp: int
    microbatch: int
    microbatches: int
    layers_per_stage: List[int]
    zero: int
    sequence_parallel: bool
    recompute: str
    schedule: str
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self):
        return (
            f"tp {self.tp} · cp {self.cp} · pp {self.pp} · dp {self.dp} · "
            f"microbatch {self.microbatch} · ZeRO {self.zero} · recompute {self.recompute}"
        )


@dataclass(frozen=True)
class Time:
    """Seconds of a step; the 80 % band is [low, high]."""

    step_seconds: float
    low_seconds: float
    high_seconds: float
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Memory:
    """Bytes of the fullest GPU."""

    capacity_bytes: int
    peak_bytes: int
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Throughput:
    """Rates of a step; mfu is a ratio."""

    tokens_per_second: float
    tokens_per_second_per_gpu: float
    model_tflops_per_gpu: float
    mfu: float
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Economics:
    """Money and energy, where the cluster has a price."""

    usd_per_step: Optional[float] = None
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Candidate:
    """A plan with its price. `kind`: measured, calibrated or extrapolated rates."""

    kind: str
    framework: str
    model: str
    cluster: str
    gpus: int
    seq: int
    global_batch: int
    precision: str
    fits: bool
    plan: Plan
    time: Time
    memory: Memory
    throughput: Throughput
    economics: Economics
    fits_probability: Optional[float] = None
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, document):
        """A candidate of `search`, or the document of `predict`."""
        return _read(
            cls,
            document,
            plan=_read(Plan, document["plan"]),
            time=_read(Time, document["time"]),
            memory=_read(Memory, document["memory"]),
            throughput=_read(Throughput, document["throughput"]),
            economics=_read(Economics, document.get("economics") or {}),
        )

    def row(self):
        """Cells of a table of candidates."""
        return [
            str(self.plan),
            f"{self.time.step_seconds:.4g}",
            f"{self.memory.peak_bytes / GIB:.1f}",
            f"{self.throughput.mfu * 100:.1f} %",
            "yes" if self.fits else "no",
        ]

    HEADER = ("plan", "step s", "memory GiB", "MFU", "fits")

    def _repr_html_(self):
        return _table([self.row()], self.HEADER)


@dataclass(frozen=True)
class Search:
    """The answer of a search. `winner` is None if nothing fits; `nearest` then lists misses."""

    winner: Optional[Candidate]
    candidates: List[Candidate]
    pareto: List[Candidate]
    proved_optimal: bool
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, document):
        """The document of `search`."""
        winner = document["winner"]
        return cls(
            winner=Candidate.from_json(winner) if winner else None,
            candidates=[Candidate.from_json(one) for one in document["candidates"]],
            pareto=[Candidate.from_json(one) for one in document["pareto"]],
            proved_optimal=document["certificate"]["proved_optimal"],
            raw=document,
        )

    def _repr_html_(self):
        if self.winner is None:
            return "<p>No plan fits.</p>"
        return _table([one.row() for one in self.candidates], Candidate.HEADER)


@dataclass(frozen=True)
class Measured:
    """The step of a log: median of `steps_used` windows; spread is interquartile range / median."""

    step_seconds: float
    steps_used: int
    spread: float
    peak_memory_bytes: Optional[float] = None
    memory_kind: Optional[str] = None
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class LogImport:
    """What a training log says. `found` and `derived` are by column; `refused` is None or why."""

    framework: str
    version: Optional[str]
    measured: Optional[Measured]
    found: Dict[str, Any]
    derived: Dict[str, Any]
    assumed: List[str]
    ask: List[str]
    refused: Optional[str]
    plan: Optional[Plan]
    raw: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, document):
        """The document of `import` of one log."""
        facts = {
            kind: {fact["field"]: fact["value"] for fact in document[kind]}
            for kind in ("found", "derived")
        }
        measured = document["measured"]
        layout = document["plan"]
        return _read(
            cls,
            document,
            measured=_read(Measured, measured) if measured else None,
            plan=_read(Plan, layout) if layout else None,
            **facts,
        )

    def _repr_html_(self):
        rows = [
            (fact["field"], fact["value"], kind, fact["from"])
            for kind in ("given", "found", "derived")
            for fact in self.raw[kind]
        ]
        title = f"<p>Refused: {html.escape(self.refused)}</p>" if self.refused else ""
        return title + _table(rows, ("field", "value", "", "from"))
