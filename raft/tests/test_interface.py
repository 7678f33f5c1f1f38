"""The interface of the engine has a number that changes with it; a server names an engine that it cannot use."""

from __future__ import annotations

import ast
from hashlib import sha256
from pathlib import Path

import pyjs_raft
from pyjs.consensus import engine

STUB = Path(__file__).resolve().parents[1] / "python" / "pyjs_raft" / "_engine.pyi"
# The number, and a digest of the stub without its comments. After a change of the stub, use the next number here, in
# raft/src/python.rs and in src/pyjs/consensus/engine.py.
KNOWN = (1, "b75251b5f72d2f6d")


def digest() -> str:
    tree = ast.parse(STUB.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    return sha256(ast.unparse(tree).encode()).hexdigest()[:16]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_the_number_is_that_of_the_stub() -> None:
    assert (pyjs_raft.INTERFACE, digest()) == KNOWN


def test_the_server_uses_this_interface() -> None:
    assert pyjs_raft.INTERFACE == engine.INTERFACE
