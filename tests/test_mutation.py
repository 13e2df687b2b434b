"""The mutants of ``python -m tests.mutation``."""

from __future__ import annotations

import ast

from tests.mutation import PACKAGES, ROOT, mutants_of

EXAMPLE = b'''\
from typing import Literal

def f(a: Literal[1, 2] = 1) -> "int | None":
    """Add 3."""
    return a + 4
'''


def test_every_mutant_is_a_program_that_differs_in_one_place_inside_its_lines() -> None:
    file = PACKAGES["derive"]
    source = (ROOT / file).read_bytes()
    mutants = [*mutants_of("derive", file, source)]
    assert {mutant.kind.partition(" ")[0] for mutant in mutants} >= {"comparison", "operator", "constant", "statement"}
    for mutant in mutants:
        assert source[mutant.start : mutant.end].decode() == mutant.before != mutant.after
        changed = source[: mutant.start] + mutant.after.encode() + source[mutant.end :]
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), mutant
        first, last = mutant.lines
        assert first <= source[: mutant.start].count(b"\n") + 1 <= last, mutant


def test_no_mutant_changes_an_annotation_or_a_text() -> None:
    assert [str(mutant) for mutant in mutants_of("example", "example.py", EXAMPLE)] == [
        "example.py:3  constant: 1  ->  2",
        "example.py:5  operator: a + 4  ->  (a - 4)",
        "example.py:5  constant: 4  ->  5",
    ]
