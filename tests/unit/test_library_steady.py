"""Asynchronous schedules: rules of weight versions and staleness counted out in the orders, and measured periods."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

import schedules
from explorer.config.catalogue import load_model, load_system
from explorer.config.modelled import ModelledCosts
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable, NoAnswer
from explorer.core.op import Kind
from explorer.core.problem import Communication
from explorer.core.schedule import Schedule
from explorer.evaluation import steady
from explorer.evaluation.case import case_of
from explorer.evaluation.memory import static
from explorer.evaluation.steady import steady_state
from schedules.steady import Asynchrony

SIZES = (1, 2, 3, 4, 8)


def rule(name: str, devices: int, **options: object) -> Asynchrony:
    schedule = schedules.find(name)(devices, 2 * devices, **options)
    case = case_of(AbstractCosts().problem(schedule.placement), schedule.placement, options)
    found = schedules.find(name).asynchrony(case)
    assert found is not None
    return found


def backwards_before(schedule: Schedule, device: int) -> dict[tuple[Kind, int], int]:
    """For each op of a device, how many of its backwards come before it."""
    before, done = {}, 0
    for op in schedule.ops(device):
        before[op.kind, op.microbatch] = done
        done += op.kind is Kind.B
    return before


def steady_part(schedule: Schedule) -> range:
    """Microbatches in the middle, away from filling and draining."""
    return range(schedule.devices, schedule.microbatches - schedule.devices)


@pytest.mark.parametrize("devices", SIZES)
def test_pipedream_keeps_the_weights_of_every_microbatch_under_way(devices: int) -> None:
    schedule = schedules.find("pipedream")(devices, 6 * devices)
    expected = rule("pipedream", devices)
    assert expected.update_every == 1
    for device in range(devices):
        before = backwards_before(schedule, device)
        version_of = {m: before[Kind.F, m] for m in range(schedule.microbatches)}  # updates before the forward
        stale = {before[Kind.B, m] - version_of[m] for m in steady_part(schedule)}
        assert (min(stale), max(stale)) == expected.staleness[device]
        under_way: set[int] = set()
        most = 0
        for op in schedule.ops(device):
            under_way ^= {op.microbatch}
            most = max(most, len({version_of[m] for m in under_way}))
        assert most == expected.weight_versions[device]


@pytest.mark.parametrize("devices", SIZES)
@pytest.mark.parametrize("more", [0, 1, 3])
def test_two_versions_of_the_weights_do_from_d_microbatches_an_update_on(devices: int, more: int) -> None:
    every = devices + more
    schedule = schedules.find("pipedream-2bw")(devices, 6 * every, accumulate=every)
    expected = rule("pipedream-2bw", devices, accumulate=every)
    assert (expected.update_every, set(expected.staleness)) == (every, {(1, 1)})
    for device in range(devices):
        before = backwards_before(schedule, device)
        for batch in range(2, 5):
            needed = batch - 1  # one update behind: gradients of batch t are of the weights of update t - 1
            first = before[Kind.F, batch * every] // every
            last = before[Kind.B, (batch + 1) * every - 1] // every
            assert needed <= first, "the weights exist when the batch's first forward needs them"
            assert last - needed + 1 <= expected.weight_versions[device], "none older is needed until its last backward"


@pytest.mark.parametrize("devices", SIZES)
@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_without_kept_weights_updates_come_between_forward_and_backward(devices: int, every: int) -> None:
    schedule = schedules.find("local-accumulation")(devices, 12 * devices, accumulate=every)
    expected = rule("local-accumulation", devices, accumulate=every)
    assert expected.weight_versions == (1,) * devices
    for device in range(devices):
        before = backwards_before(schedule, device)
        between = {before[Kind.B, m] // every - before[Kind.F, m] // every for m in steady_part(schedule)}
        assert (min(between), max(between)) == expected.staleness[device]


def test_only_asynchronous_schedules_have_such_a_rule() -> None:
    asynchronous = {"pipedream", "pipedream-2bw", "local-accumulation"}
    for named in schedules.every():
        if named.name in asynchronous:
            schedule = named(4, 8)
            case = case_of(AbstractCosts().problem(schedule.placement), schedule.placement, {})
            assert named.asynchrony(case) is not None
            assert named.formula(case).makespan is None
        else:
            schedule = named(4, 8)
            case = case_of(AbstractCosts().problem(schedule.placement), schedule.placement, {})
            assert named.asynchrony(case) is None


def period(name: str, devices: int, costs: AbstractCosts) -> steady.SteadyState:
    named = schedules.find(name)
    return steady_state(lambda n: named(devices, n), costs.problem(named(devices, 2).placement))


@pytest.mark.parametrize("devices", SIZES)
@pytest.mark.parametrize("comm", [0, 1, 2, 5])
def test_the_period_of_1f1b_grows_by_what_each_round_trip_waits(devices: int, comm: int) -> None:
    """F + B + 2(D-1)c/D, the slope of the makespan's closed form in N."""
    for mode in (Communication.LATENCY, Communication.LINK):
        costs = AbstractCosts(comm_time=Fraction(comm), communication=mode)
        found = period("pipedream", devices, costs)
        assert found.period == 3 + Fraction(2 * (devices - 1) * comm, devices)
        assert found.utilisation == (3 / found.period,) * devices


def test_the_slowest_device_sets_the_period() -> None:
    costs = AbstractCosts(stage_factors=(Fraction(1), Fraction(3, 2), Fraction(1), Fraction(1)))
    found = period("pipedream", 4, costs)
    assert found.period == Fraction(9, 2)
    assert found.utilisation == (Fraction(2, 3), 1, Fraction(2, 3), Fraction(2, 3))


def test_the_period_is_the_growth_of_the_makespan() -> None:
    costs = AbstractCosts(
        forward=Fraction(3),
        backward=Fraction(7),
        comm_time=Fraction(4),
        stage_factors=(Fraction(2), Fraction(1), Fraction(3), Fraction(1), Fraction(2)),
        launch=Fraction(1),
    )
    found = period("pipedream", 5, costs)
    named = schedules.find("pipedream")
    spans = []
    for n in (40, 40 + 12 * found.repeats_after):
        problem = costs.problem(named(5, n).placement)
        spans.append(problem.time.value(steady.evaluate(named(5, n), problem).makespan))
    assert spans[1] - spans[0] == 12 * found.repeats_after * found.period


def test_no_steady_state_is_claimed_where_none_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    unlike = AbstractCosts(microbatch_factors=(Fraction(1), Fraction(2)))
    with pytest.raises(Inapplicable, match="microbatches of equal cost"):
        period("pipedream", 2, unlike)
    with pytest.raises(Inapplicable, match="one route"):
        named = schedules.find("dualpipe")
        steady_state(lambda n: named(2, n), AbstractCosts().problem(named(2, 4).placement))
    monkeypatch.setattr(steady, "MOST", 16)
    with pytest.raises(NoAnswer, match="does not repeat within 16"):
        named = schedules.find("gpipe")
        steady_state(lambda n: named(4, n), AbstractCosts().problem(named(4, 2).placement))


def test_further_versions_of_the_weights_take_memory() -> None:
    schedule = schedules.find("pipedream")(4, 8)
    problem = ModelledCosts(load_model("llama3-8b"), load_system("h100-sxm")).problem(schedule.placement)
    assert problem.bytes is not None
    assert problem.bytes.weights is not None
    versions = rule("pipedream", 4).weight_versions
    more = static(schedule, problem.bytes, versions) - static(schedule, problem.bytes)
    assert more.tolist() == (np.array([3, 2, 1, 0]) * problem.bytes.weights).tolist()
    assert Counter(more > 0) == {True: 3, False: 1}
