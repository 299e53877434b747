"""PyTorch's own schedules: their tables import, pass the check, evaluate to what they should, and theirs is ours."""

import re
from fractions import Fraction
from types import SimpleNamespace

import pytest

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import ExplorerError
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate
from explorer.io import pytorch, table
from explorer.io.check import check

pipelining = pytest.importorskip("torch.distributed.pipelining.schedules", reason="needs PyTorch, the extra [torch]")

D, M = 4, 8

BUILTIN = {
    # PyTorch's class: (chunks a device, our schedule, closed form of the makespan at F = 1, I = W = 1 a device)
    "GPipe": (1, "gpipe", 3 * (M + D - 1)),
    "1F1B": (1, "1f1b", 3 * (M + D - 1)),
    "Interleaved1F1B": (2, "interleaved-1f1b", 3 * M + Fraction(3 * (D - 1), 2)),
    "LoopedBFS": (2, "looped-bfs", 3 * M + Fraction(3 * (D - 1), 2)),
    "InterleavedZeroBubble": (2, "interleaved-zb", None),
    "ZBVZeroBubble": (2, "zb-v", None),
    "DualPipeV": (2, "dualpipe-v", None),
}


def _stages(count: int) -> list[SimpleNamespace]:
    """As much of a stage as PyTorch's schedules look at when they are made."""
    return [
        SimpleNamespace(num_stages=count * D, group_size=D, group_rank=0, stage_index=number * D, submod=None)
        for number in range(count)
    ]


def _table(name: str) -> str:
    """The table of a built-in schedule, as its `_dump_csv` writes it."""
    chunks = BUILTIN[name][0]
    stages = _stages(chunks)
    made = pipelining.get_schedule_class(name)(stages if chunks > 1 else stages[0], M, loss_fn=lambda y, t: y)
    lines = [made.pipeline_order[rank] for rank in range(D)]
    return "".join(",".join("" if cell is None else str(cell) for cell in line) + "\n" for line in lines)


MISNUMBERED = f"{D - 1}F{M}"
"""PyTorch 2.13 numbers the last rank's forwards in its 1F1B table (which it only shows) 1 to m, not 0 to m-1."""


def _with_last_forwards_from_0(text: str) -> str:
    return re.sub(rf"\b{D - 1}F(\d+)", lambda found: f"{D - 1}F{int(found[1]) - 1}", text)


def _makespan(schedule: Schedule) -> Fraction:
    problem = AbstractCosts().problem(schedule.placement)
    return problem.time.value(evaluate(schedule, problem).makespan)


@pytest.mark.parametrize("name", BUILTIN)
def test_the_table_of_every_builtin_schedule_imports_and_evaluates_as_it_should(name: str) -> None:
    _, ours, closed_form = BUILTIN[name]
    text = _table(name)
    if MISNUMBERED in text:
        assert {"missing-op", "missing-microbatch"} & {violation.kind for violation in check(text)}
        text = _with_last_forwards_from_0(text)
    assert check(text, name) == []
    imported = table.parse(text)
    named = schedules.find(ours)(D, M)
    assert imported.placement == named.placement
    assert _makespan(imported) == _makespan(named)
    if closed_form is not None:
        assert _makespan(imported) == closed_form
    assert table.parse("".join(pytorch.compute_only(imported))) == imported


def _runtime(schedule: Schedule) -> object:
    stages = _stages(1)
    stages[0].num_stages = schedule.placement.stages
    return pipelining._PipelineScheduleRuntime(stages, schedule.microbatches, loss_fn=lambda y, t: y)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zb-v", "hanayo"])
def test_pytorch_loads_what_we_write_and_we_check_what_it_writes(name: str, tmp_path) -> None:
    schedule = pytorch.prepare(schedules.find(name)(D, M)).schedule
    ours, plain, theirs = tmp_path / "ours.csv", tmp_path / "plain.csv", tmp_path / "theirs.csv"
    ours.write_text("".join(pytorch.with_communication(schedule)))
    plain.write_text("".join(pytorch.compute_only(schedule)))
    runtime = _runtime(schedule)
    runtime._load_csv(str(ours), format="compute_comms")
    runtime._load_csv(str(plain))
    runtime._dump_csv(str(theirs), format="compute_comms")
    assert check(theirs.read_text()) == []
    assert table.parse(theirs.read_text()) == schedule


def test_pytorch_takes_what_we_refuse() -> None:
    """The faults that make a strict parser and a check of receives necessary are PyTorch's own."""
    assert str(pipelining._Action.from_str("0F0x")) == "0F0"
    assert str(pipelining._Action.from_str("0BW0")) == "0B"
    swapped = {
        0: ["0F0", "0SEND_F0", "0F1", "0SEND_F1"],
        1: ["1RECV_F1", "1RECV_F0", "1F0", "1F1"],
    }
    actions = {rank: [pipelining._Action.from_str(cell) for cell in line] for rank, line in swapped.items()}
    pipelining._simulate_comms_compute(actions, lambda stage: stage, 2)  # raises nothing
    text = (
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
        "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD\n"
    )
    assert [violation.kind for violation in check(text)] == ["misordered-message"]


def _every_schedule() -> dict[str, Schedule]:
    found = {}
    options = {"hanayo": {"waves": 2}, "interleaved-1f1b": {"chunks": 5}, "looped-bfs": {"chunks": 4}}
    for named in schedules.every():
        for own in ({}, options.get(named.name, {})):
            try:
                found[f"{named.name} {own or ''}"] = pytorch.prepare(named(D, M, **own)).schedule
            except ExplorerError:
                continue
    return found


@pytest.mark.parametrize("schedule", _every_schedule().values(), ids=_every_schedule().keys())
def test_messages_stand_where_pytorch_itself_puts_them(schedule: Schedule, tmp_path) -> None:
    """But for UNSHARD and RESHARD, which take turns in PyTorch's lowering and are not written."""
    plain = tmp_path / "plain.csv"
    plain.write_text("".join(pytorch.compute_only(schedule)))
    runtime = _runtime(schedule)
    runtime._load_csv(str(plain))
    for rank, actions in enumerate(pytorch.lowered(schedule)):
        theirs = [str(action) for action in runtime.pipeline_order_with_comms[rank]]
        assert [str(action) for action in actions] == [cell for cell in theirs if not cell.endswith("SHARD")]
