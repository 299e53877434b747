"""Messages in the order of their posting: computed by hand, and again from the written table."""

from fractions import Fraction

import numpy as np
import pytest

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable
from explorer.core.op import B, F, Kind, Op, Overlapped
from explorer.core.placement import along
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.evaluation import messages
from explorer.evaluation.longest_path import evaluate as independent
from explorer.evaluation.messages import Messages, evaluate
from explorer.io import pytorch
from explorer.io.cells import Message, Upkeep

IN_ORDER = [Messages.FIFO_PAIR, Messages.FIFO_DEVICE]
NAMES = ["gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "hanayo", "looped-bfs", "dualpipe-v"]


def _problem(schedule: Schedule, transfer: Fraction = Fraction(1, 4), **costs: Fraction) -> Problem:
    return AbstractCosts(comm_time=transfer, communication=Communication.LINK, **costs).problem(schedule.placement)


def test_an_early_receive_delays_a_later_send() -> None:
    """By hand: F = 1, B = 2 a stage, transfers of 4, two devices; 1F0 runs from 5 to 6, 1B0 from 6 to 8.

    PyTorch posts device 1's receive of 0F1 between the two: the activation, ready at 2, starts at 6 and takes until 10,
    and the gradient of 1B0, ready at 8, comes behind it. On links of its own it would leave at once.
    """
    schedule = Schedule.from_orders(
        along([0, 1], 2), [[F(0, 0), F(0, 1), B(0, 0), B(0, 1)], [F(1, 0), B(1, 0), F(1, 1), B(1, 1)]]
    )
    problem = AbstractCosts(
        comm_time=Fraction(4), communication=Communication.LINK, per_stage=True, backward=Fraction(2)
    ).problem(schedule.placement)
    alone = independent(schedule, problem)
    queued = evaluate(schedule, problem, Messages.FIFO_PAIR)
    rows = {str(schedule.op(row)): row for row in range(len(schedule))}
    assert (alone.sent[rows["0F0"]], alone.arrival[rows["0F0"]]) == (1, 5)
    assert (alone.sent[rows["1B0"]], alone.arrival[rows["1B0"]]) == (8, 12)
    assert (queued.timeline.sent[rows["0F1"]], queued.timeline.arrival[rows["0F1"]]) == (6, 10)
    assert (queued.timeline.sent[rows["1B0"]], queued.timeline.arrival[rows["1B0"]]) == (10, 14)
    assert (rows["0F1"], 2, 6, -1) in queued.blocked
    assert (rows["1B0"], 8, 10, rows["0F1"]) in queued.blocked
    assert any(
        sentence == "the message of 1B0 on device 1 waits from 8 to 10 behind that of 0F1"
        for sentence in messages.told(queued, problem)
    )


@pytest.mark.parametrize("discipline", IN_ORDER)
@pytest.mark.parametrize("name", [*NAMES, "chimera", "dualpipe"])
def test_nothing_is_earlier_than_on_links_of_its_own(name: str, discipline: Messages) -> None:
    schedule = schedules.find(name)(4, 8)
    problem = _problem(schedule)
    alone, queued = independent(schedule, problem), evaluate(schedule, problem, discipline)
    assert (queued.timeline.start >= alone.start).all()
    assert (queued.timeline.arrival >= alone.arrival).all()
    late = {blocked.row for blocked in queued.blocked}
    waits = (queued.timeline.sent >= 0) & (queued.timeline.sent > queued.timeline.end)
    assert late == set(np.flatnonzero(waits).tolist())


@pytest.mark.parametrize("discipline", IN_ORDER)
def test_without_transfer_times_only_receives_can_delay(discipline: Messages) -> None:
    schedule = schedules.find("1f1b")(4, 8)
    problem = _problem(schedule, Fraction(0))
    queued = evaluate(schedule, problem, discipline)
    assert queued.timeline.makespan == independent(schedule, problem).makespan


@pytest.mark.parametrize("discipline", IN_ORDER)
@pytest.mark.parametrize("name", NAMES)
def test_the_written_table_says_the_same(name: str, discipline: Messages) -> None:
    """The least times that obey every rule, found by going over the table with its messages until nothing changes."""
    schedule = pytorch.prepare(schedules.find(name)(4, 8)).schedule
    problem = _problem(schedule, Fraction(3, 4))
    lines = pytorch.lowered(schedule)
    length = int(problem.network.occupancy[0, 0, 0])
    ends, arrivals = _least(schedule, problem, lines, length, discipline)
    timeline = evaluate(schedule, problem, discipline).timeline
    for row in range(len(schedule)):
        assert ends[schedule.op(row)] == timeline.end[row]
        send = pytorch.message(schedule.op(row), [hop.device for hop in schedule.placement.routes[0]])
        assert (timeline.arrival[row] if send else -1) == (arrivals[send] if send else -1)


def _least(
    schedule: Schedule, problem: Problem, lines: list, length: int, discipline: Messages
) -> tuple[dict[Op, int], dict[Message, int]]:
    home = [hop.device for hop in schedule.placement.routes[0]]
    durations = problem.durations[0]
    ends: dict[Op, int] = {}
    arrivals: dict[Message, int] = {}
    changes = True
    while changes:
        changes = False
        for line in lines:
            clock, channel = 0, {}
            for action in line:
                if isinstance(action, Upkeep):
                    continue
                if isinstance(action, Message):
                    send = action if action.verb.sends else action.other_end()
                    peer = home[action.peer] if discipline is Messages.FIFO_PAIR else 0
                    begin = max(clock, channel.get(peer, 0))
                    if max(arrivals.get(send, 0), begin + length) != arrivals.get(send, 0):
                        arrivals[send], changes = begin + length, True
                    channel[peer] = arrivals[send]
                    continue
                ops = (action,) if isinstance(action, Op) else tuple(action)
                start = max([clock, *(_input(op, home, ends, arrivals) for op in ops)])
                total = sum(int(durations[op.stage, op.kind]) for op in ops)
                for op in ops:
                    if ends.get(op, -1) != start + total:
                        ends[op], changes = start + total, True
                clock = start + total
    return ends, arrivals


def _input(op: Op, home: list[int], ends: dict[Op, int], arrivals: dict[Message, int]) -> int:
    """When an op's input is there, by the definition of the ops."""
    if op.kind == Kind.W:
        return ends.get(Op(op.stage, Kind.I, op.microbatch), 0)
    if op.kind == Kind.F:
        sources = [Op(op.stage - 1, Kind.F, op.microbatch)] if op.stage else []
    elif op.stage == len(home) - 1:
        sources = [Op(op.stage, Kind.F, op.microbatch)]
    else:
        sources = [Op(op.stage + 1, kind, op.microbatch) for kind in (Kind.B, Kind.I)]
    found = [0]
    for source in sources:
        send = pytorch.message(source, home)
        crosses = send is not None and source.stage != op.stage
        found.append(arrivals.get(send, 0) if crosses else ends.get(source, 0))
    return max(found)


def test_modes_in_which_messages_have_no_order_are_refused() -> None:
    schedule = schedules.find("1f1b")(2, 2)
    problem = AbstractCosts(comm_time=Fraction(1)).problem(schedule.placement)
    with pytest.raises(Inapplicable, match="in mode link, not in mode latency"):
        evaluate(schedule, problem, Messages.FIFO_PAIR)


def test_posting_costs_and_pairs_count() -> None:
    order = [[F(0, 0), F(0, 1), B(0, 0), B(0, 1)], [F(1, 0), Overlapped(F(1, 1), B(1, 0)), B(1, 1)]]
    schedule = Schedule.from_orders(along([0, 1], 2), order)
    problem = _problem(schedule, Fraction(1), per_stage=True, posting=Fraction(1), launch=Fraction(1))
    alone, queued = independent(schedule, problem), evaluate(schedule, problem, Messages.FIFO_PAIR).timeline
    assert queued.free[0] - queued.end[0] == 1
    assert queued.end[0] - queued.start[0] == 2
    assert (queued.start >= alone.start).all()
