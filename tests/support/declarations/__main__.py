"""Writes every generated file."""

from __future__ import annotations

from .files import answers, sources

for made in (sources, answers):
    for path, text in made().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
