"""Starts `plan … --json` and reads its document."""

import json
import os
import shutil
import subprocess

from echelon.answers import Candidate, LogImport, Search

EXIT_DONE = 0
EXIT_NO = 1  # a legitimate "no": nothing fits, a log is refused; the document says why


class PlanError(Exception):
    """The program refused its input (exit code 2), or the machine lacks something (3)."""

    def __init__(self, message, exit_code):
        super().__init__(message)
        self.exit_code = exit_code


def _program(program):
    found = program or os.environ.get("ECHELON_PLAN") or shutil.which("plan")
    if not found:
        raise PlanError(
            "plan is not on the PATH; name it: program=… or the variable ECHELON_PLAN", 3
        )
    return os.fspath(found)


def _flags(arguments):
    """Keyword arguments as flags: sequence_parallel=False is --no-sequence-parallel."""
    flags = []
    for key, value in arguments.items():
        name = key.replace("_", "-")
        if value is None:
            continue
        if value is True:
            flags.append("--" + name)
        elif value is False:
            flags.append("--no-" + name)
        elif isinstance(value, (list, tuple)):
            flags += ["--" + name, ",".join(str(one) for one in value)]
        else:
            flags += ["--" + name, os.fspath(value) if hasattr(value, "__fspath__") else str(value)]
    return flags


def _document(words, arguments, program):
    """The parsed document. Raises PlanError with the program's own message."""
    command = [_program(program), *words, *_flags(arguments), "--json"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    except OSError as error:
        raise PlanError(f"{command[0]}: {error.strerror}", 3) from error
    if run.returncode not in (EXIT_DONE, EXIT_NO) or not run.stdout:
        raise PlanError(run.stderr.strip() or "plan printed nothing", run.returncode)
    return json.loads(run.stdout)


def plan(*, program=None, **flags):
    """`plan search`: the fastest plan that fits. Takes the flags of a search: model, gpus …"""
    return Search.from_json(_document(["search"], flags, program))


def predict(plan_file=None, *, program=None, **flags):
    """`plan predict`: the price of one configuration, given by flags or by a plan file."""
    words = ["predict"] + ([os.fspath(plan_file)] if plan_file else [])
    return Candidate.from_json(_document(words, flags, program))


def import_log(path, *, program=None, **flags):
    """`plan import`: what a training log of another framework says. Flags give the rest."""
    return LogImport.from_json(_document(["import", os.fspath(path)], flags, program))


def explain(plan_file=None, *, program=None, **flags):
    """`plan explain`: the document as dictionaries."""
    words = ["explain"] + ([os.fspath(plan_file)] if plan_file else [])
    return _document(words, flags, program)


def compare(first, second, *, program=None, **flags):
    """`plan compare`: the document as dictionaries."""
    return _document(["compare", os.fspath(first), os.fspath(second)], flags, program)


def models(*, program=None):
    """Names of the model catalog."""
    return [model["name"] for model in _document(["models"], {}, program)["models"]]
