"""The range of each stream that the options of a batch read choose, before anything is read."""

from __future__ import annotations

from dataclasses import replace

from pyjs_spark.options.reading import Options, check_batch
from pyjs_spark.read import lookup
from pyjs_spark.read.lookup import api_of
from pyjs_spark.read.plan import Span
from pyjs_spark.read.planner import Planner
from pyjs_spark.read.pushdown import Bounds


def spans_of(options: Options) -> list[Span]:
    """Return one range for each stream, possibly empty. Raises as a batch read does."""
    check_batch(options)
    api = api_of(options)
    found: dict[str, Span] = {}
    for span in Planner(replace(options, min_partitions=1), api).batch(Bounds()):
        first = found.setdefault(span.stream, span)
        found[span.stream] = replace(first, high=span.high)
    names = lookup.stream_names(api, options.streams)
    return [found.get(name, Span(name, 1, 1, "")) for name in names]
