"""Every kind of job there is, and how the command line reaches each: a module with a KIND, and its name here."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial

from pyjs_spark.cli.kinds import Kind
from pyjs_spark.cli.say import fail, print_json
from pyjs_spark.errors import OptionError
from pyjs_spark.lake import compact, config, dead_letters, quality
from pyjs_spark.lake.jobs import Job, JobKind, Outcome

KINDS: Mapping[str, JobKind] = {kind.name: kind for kind in (compact.KIND, quality.KIND, dead_letters.KIND)}


def as_kind(job_kind: JobKind) -> Kind:
    """Return a kind of job in the form that the command line uses."""
    return Kind(
        text=job_kind.text,
        add_arguments=job_kind.add_arguments,
        from_arguments=partial(_from_arguments, job_kind),
        from_tables=partial(_from_tables, job_kind),
        run=_run,
        validate=_validate,
        explain=_explain,
        status=_status,
    )


def _from_arguments(job_kind: JobKind, said: argparse.Namespace, options: dict[str, str]) -> Job:
    texts = {key.name: getattr(said, key.name) for key in job_kind.keys}
    return job_kind.job({name: text for name, text in texts.items() if text is not None}, options)


def _from_tables(job_kind: JobKind, said: Mapping[str, object], more: Mapping[str, str]) -> Job:
    config.refuse_unknown(said, config.SECTIONS, "section")
    head, options, spark = (config.table(said, name) for name in config.SECTIONS)
    config.refuse_unknown(head, ("kind", *(key.name for key in job_kind.keys)), "key")
    if spark:
        raise OptionError(f"section spark: {job_kind.name} needs no Spark; leave the section out")
    texts = {key: config.as_text(key, value) for key, value in head.items()}
    return job_kind.job(texts, config.options_of(options, more))


def _run(job: Job, said: argparse.Namespace) -> int:
    return _print(job.kind.run(job), said)


def _explain(job: Job, said: argparse.Namespace) -> int:
    return _print(job.kind.explain(job), said)


def _validate(job: Job, said: argparse.Namespace) -> int:
    streams = list(job.options.streams)
    told = f"valid: {job.kind.name} of {', '.join(streams)}; no server was asked"
    return _print(Outcome([told], {"kind": job.kind.name, "streams": streams, "is_valid": True}), said)


def _status(job: Job, said: argparse.Namespace) -> int:
    raise OptionError(f"status shows how far a pipeline is; {job.kind.name} leaves nothing to show")


def _print(outcome: Outcome, said: argparse.Namespace) -> int:
    if said.json:
        print_json(outcome.said)
    else:
        print("\n".join(outcome.lines))
    return fail(outcome.trouble, outcome.code) if outcome.code else 0
