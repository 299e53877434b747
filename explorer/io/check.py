"""Checking a schedule table, ours or someone's, for all that makes it run wrong in ``torch.distributed.pipelining``.

PyTorch validates little of this: its parser takes ``0F0x`` for 0F0, and its dry run does not see messages received in
another order than they are sent.
"""

from __future__ import annotations

import codecs
from itertools import chain, islice
from pathlib import Path

from explorer.core.files import read_text
from explorer.evaluation.order_checker import Violation
from explorer.io.cells import parse_lines
from explorer.io.deadlock_findings import deadlock_findings
from explorer.io.inspection import Table, op_findings
from explorer.io.message_findings import message_findings

MOST = 1000
"""Findings after which no more are looked for."""


def check_file(path: Path) -> list[Violation]:
    """`check` for a file."""
    found = check(read_text(path), str(path))
    if path.read_bytes().startswith(codecs.BOM_UTF8):
        message = "a byte-order mark, which PyTorch takes for a part of the first cell; save the file without it"
        found.insert(0, Violation("byte-order-mark", f"{path}:1:1", message))
    return found


def check(text: str, name: str = "table") -> list[Violation]:
    """Everything that is wrong with a table, each at its line and column, counted from 1.

    Deadlocks are looked for only where every op is there, in its place: where nothing else is wrong but the order of
    losses.

    Raises
    ------
    Malformed
        If a cell is none that PyTorch knows.
    """
    table = Table(parse_lines(text, name))
    found = list(islice(chain(op_findings(table), message_findings(table)), MOST))
    if all(kind == "loss-order" for _, _, kind, _ in found):
        found += deadlock_findings(table)
    return [Violation(kind, f"{name}:{line}:{column}", message) for line, column, kind, message in sorted(found)]
