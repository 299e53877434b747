"""Every schedule against tables small enough to read.

A golden file is text. Lines ``key: value`` say what is built: ``schedule``, ``devices``, ``microbatches``, any options
of the schedule, and optionally ``source``, the public tool that the table comes from. One line a device follows, ``0:``
first, with its ops in order, in the grammar of `explorer.core.op`: ``2F0`` is stage 2, forward, microbatch 0. ``#``
begins a remark.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

import schedules
from explorer.core.op import Entry
from explorer.core.schedule import Schedule
from explorer.io.cells import parse_entry

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@dataclass(frozen=True)
class Golden:
    name: str
    devices: int
    microbatches: int
    options: dict[str, object]
    orders: list[list[Entry]]

    @classmethod
    def read(cls, path: Path) -> "Golden":
        header: dict[str, str] = {}
        orders: list[list[Entry]] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            key, colon, value = (part.strip() for part in line.partition("#")[0].partition(":"))
            if key.isdecimal():
                assert int(key) == len(orders), f"{path.name}: device {len(orders)} must come before {key}"
                orders.append([parse_entry(cell, path.name) for cell in value.split()])
            elif key:
                assert colon, f"{path.name}: {line!r} is neither 'key: value' nor an order"
                header[key] = value
        header.pop("source", None)
        name, devices, microbatches = (header.pop(key) for key in ("schedule", "devices", "microbatches"))
        options = {option.replace("-", "_"): _value(text) for option, text in header.items()}
        return cls(name, int(devices), int(microbatches), options, orders)

    def build(self) -> Schedule:
        return schedules.find(self.name)(self.devices, self.microbatches, **self.options)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_order_is_that_of_the_table(path: Path) -> None:
    golden = Golden.read(path)
    assert list(golden.build().orders()) == golden.orders


@pytest.mark.parametrize("name", [schedule.name for schedule in schedules.every()])
def test_every_schedule_has_a_table(name: str) -> None:
    assert name in {Golden.read(path).name for path in FILES}
