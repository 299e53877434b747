"""Costs on placements: the same work per microbatch whatever the schedule, and contradictions refused."""

from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import schedules
from explorer.config import catalogue
from explorer.config.model import Model
from explorer.config.modelled import ModelledCosts, deal
from explorer.config.recipe import AbstractCosts, along_model
from explorer.config.roofline import activation_bytes, block_costs, parameters
from explorer.config.system import Compute
from explorer.core.errors import ExplorerError, Inapplicable, Inexact, UsageError
from explorer.core.op import Kind
from explorer.core.placement import Hop, Placement, linear, loop, mirrored, wave
from explorer.core.problem import Communication
from explorer.evaluation.case import case_of


def seconds(costs: AbstractCosts, placement: Placement) -> list[Fraction]:
    """Time of the first chunk's F, I, W and B."""
    problem = costs.problem(placement)
    return [problem.time.value(int(ticks)) for ticks in problem.durations[0, 0]]


def test_costs_are_those_of_one_devices_share() -> None:
    costs = AbstractCosts(forward=Fraction(1))
    assert seconds(costs, linear(4, 4)) == [1, 1, 1, 2]
    assert seconds(costs, loop(4, 4, chunks=3)) == [Fraction(1, 3)] * 3 + [Fraction(2, 3)]
    assert seconds(costs, wave(4, 4, waves=2)) == [Fraction(1, 4)] * 3 + [Fraction(1, 2)]
    assert seconds(costs, mirrored(4, 4)) == [1, 1, 1, 2]  # routes of as many stages as devices
    assert seconds(AbstractCosts(forward=Fraction(1), per_stage=True), loop(4, 4, chunks=3)) == [1, 1, 1, 2]


def test_unequal_shares_cost_unequally() -> None:
    route = (Hop(0, 0), Hop(1, 1))
    problem = AbstractCosts(forward=Fraction(3)).problem(Placement((route,), (0,), (Fraction(1, 3), Fraction(2, 3))))
    assert [problem.time.value(int(t)) for t in problem.durations[0, :, Kind.F]] == [2, 4]
    assert [problem.stash.unit * int(held) for held in problem.stash.held[0]] == [Fraction(2, 3), Fraction(4, 3)]


def test_every_placement_does_the_same_work() -> None:
    costs = AbstractCosts(forward=Fraction(3), backward=Fraction(7), input_grad=Fraction(4))
    for placement in (linear(4, 8), loop(4, 8, chunks=2), wave(4, 8, waves=1), mirrored(4, 8)):
        case = case_of(costs.problem(placement), placement, {})
        assert (case.forward, case.input_grad, case.weight_grad, case.backward) == (3, 4, 3, 7)
        assert case.uniform


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1, 1, 1, 2)),
        ({"backward": 3}, (1, Fraction(3, 2), Fraction(3, 2), 3)),
        ({"input_grad": 2, "weight_grad": 3}, (1, 2, 3, 5)),
        ({"backward": 5, "input_grad": 2}, (1, 2, 3, 5)),
        ({"backward": 5, "weight_grad": 1}, (1, 4, 1, 5)),
        ({"backward": 5, "input_grad": 2, "weight_grad": 3}, (1, 2, 3, 5)),
    ],
)
def test_what_is_given_of_a_backward_decides_the_rest(given: dict, expected: tuple) -> None:
    kinds = AbstractCosts(**{name: Fraction(value) for name, value in given.items()}).kinds()
    assert tuple(kinds[kind] for kind in Kind) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backward": 5, "input_grad": 2, "weight_grad": 2}, "is not the sum"),
        ({"backward": 1, "input_grad": 2}, "longer than the whole backward"),
        ({"forward": -1}, "forward cannot be negative"),
        ({"comm_time": -1}, "comm time cannot be negative"),
        ({"freed_at_input": 2}, "between 0 and 1"),
        ({"overlap": -1}, "overlap factor must be between 0 and 10"),
        ({"overlap": "0.12345"}, "three decimals at most"),
        ({"freed_at_input": "1/3333"}, "three decimals at most"),
    ],
)
def test_contradictions_are_refused(given: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AbstractCosts(**{name: Fraction(value) for name, value in given.items()})


def test_factors_scale_stages_and_microbatches() -> None:
    costs = AbstractCosts(
        forward=Fraction(1),
        comm_time=Fraction(1),
        stage_factors=(Fraction(2), Fraction(1)),
        memory_factors=(Fraction(1), Fraction(3)),
        microbatch_factors=(Fraction(1), Fraction(1, 2), Fraction(1)),
    )
    problem = costs.problem(linear(2, 3))
    time = [[problem.time.value(int(t)) for t in profile[:, Kind.F]] for profile in problem.durations]
    assert [time[p] for p in problem.profile_of] == [[2, 1], [1, Fraction(1, 2)], [2, 1]]
    held = [[problem.stash.unit * int(t) for t in profile] for profile in problem.stash.held]
    assert [held[p] for p in problem.profile_of] == [[1, 3], [Fraction(1, 2), Fraction(3, 2)], [1, 3]]
    delay = problem.transfer_times().delay
    assert [problem.time.value(int(delay[p, 0, 0])) for p in problem.profile_of] == [1, Fraction(1, 2), 1]
    assert not case_of(problem, linear(2, 3), {}).uniform


def test_stage_factors_are_those_of_the_model_whatever_the_stages() -> None:
    # Four pieces of the model cost 1, 1, 1, 3: on 4 stages one each, on 2 stages their means, on 8 stages half each.
    costs = AbstractCosts(stage_factors=tuple(map(Fraction, (1, 1, 1, 3))))
    expected = {2: [1, 2], 4: [1, 1, 1, 3], 8: [1, 1, 1, 1, 1, 1, 3, 3]}
    for stages, means in expected.items():
        assert along_model(costs.stage_factors, linear(stages, 1)) == means
    assert along_model(costs.stage_factors, linear(3, 1)) == [1, 1, Fraction(5, 2)]
    assert along_model(costs.stage_factors, mirrored(4, 4)) == [1, 1, 1, 3]
    work = [costs.problem(placement) for placement in (linear(4, 4), wave(4, 4, waves=1), mirrored(4, 4))]
    shares = [problem.time.value(int(problem.durations[0, :, Kind.F].sum())) for problem in work]
    assert shares == [6, 6, 6]  # of 4 devices


def test_microbatch_factors_must_be_one_for_each() -> None:
    with pytest.raises(UsageError, match="2 microbatch factors for 4 microbatches"):
        AbstractCosts(microbatch_factors=(Fraction(1), Fraction(2))).problem(linear(4, 4))
    with pytest.raises(UsageError, match="must be positive"):
        AbstractCosts(microbatch_factors=(Fraction(0),))


def test_an_abstract_transfer_is_latency_or_occupancy_by_mode() -> None:
    for mode, delay, hold, busy in (
        (Communication.NONE, 0, 0, 0),
        (Communication.LATENCY, 1, 0, 0),
        (Communication.LINK, 1, 1, 0),
        (Communication.BLOCKING, 1, 0, 1),
    ):
        times = AbstractCosts(comm_time=Fraction(1), communication=mode).problem(linear(2, 2)).transfer_times()
        assert (times.delay.max(), times.hold.max(), times.busy.max()) == (delay, hold, busy)


@pytest.mark.parametrize(
    ("text", "limits"), [("4", [4] * 3), ("2.5", [2] * 3), ("3,2,1", [3, 2, 1]), (" 3, 2,1", [3, 2, 1])]
)
def test_memory_limits_count_activations(text: str, limits: list[int]) -> None:
    limit = AbstractCosts(memory_limit=text).problem(linear(3, 3)).memory_limit
    assert limit is not None
    assert list(limit.per_device) == limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("40GiB", "in bytes, which need modelled costs"),
        ("4,40GiB", "mixes activations and bytes"),
        ("4,4", "2 memory limits for 3 devices"),
        ("0", "must be positive"),
        ("-1", "must be positive"),
        ("much", "must be a number"),
        ("40gib", r"bytes need a unit such as GiB.* must be a plain number"),
        ("", "must be a number"),
    ],
)
def test_memory_limits_that_are_none(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AbstractCosts(memory_limit=text).problem(linear(3, 3))


def test_roofline_by_hand() -> None:
    # paper-128x4096: P = 4 h^2 + 8 h^2 = 12 x 4096^2 parameters a block; one sequence of 4096 tokens, 1 PFLOP/s.
    # F: 2 x 4096 P + 4 x 4096^2 x 4096 = 1.924 TFLOP = 1.924 ms (+ no latency); its memory traffic is far below.
    model, system = catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100")
    h = s = 4096
    assert parameters(model) == 12 * h * h
    costs = block_costs(model, system, 1)
    assert costs.seconds[Kind.F] == Fraction(2 * s * 12 * h * h + 4 * s * s * h, 10**15)
    assert costs.seconds[Kind.I] == Fraction(2 * s * 12 * h * h + 8 * s * s * h, 10**15)
    assert costs.seconds[Kind.W] == Fraction(2 * s * 12 * h * h, 10**15)
    assert costs.seconds[Kind.B] == costs.seconds[Kind.I] + costs.seconds[Kind.W]
    assert costs.message == 2 * s * h
    assert costs.activation == 34 * s * h  # Korthikanti et al.: 34 s b h without the scores
    assert costs.static == 18 * 12 * h * h


def test_activations_are_those_of_korthikanti() -> None:
    # arXiv:2205.05198: s b h (34 + 5 a s / h) for GPT-3 without flash attention.
    model = replace(catalogue.load_model("gpt3-175b"), flash_attention=False)
    s, h, a, b = 2048, 12288, 96, 2
    assert activation_bytes(model, b) == s * b * h * 34 + 5 * a * s * s * b


def test_modelled_costs_in_seconds_and_bytes() -> None:
    model, system = catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100")
    problem = ModelledCosts(model, system).problem(linear(8, 32))
    block = block_costs(model, system, 256 // 32)
    assert problem.time.unit == "s"
    assert abs(problem.time.value(int(problem.durations[0, 0, Kind.F])) - 16 * block.seconds[Kind.F]) <= Fraction(
        1, 2 * 10**9
    )
    assert 0 < problem.rounding <= Fraction(1, 2 * 10**9)
    assert problem.bytes is not None
    assert problem.bytes.held[0, 0] == 16 * block.activation
    assert problem.bytes.static[0] == 16 * block.static
    # 2 x 8 x 4096 x 4096 bytes over 50 GB/s, then 500 ns.
    occupancy = round(Fraction(2 * 8 * 4096 * 4096, 50))
    assert problem.network.occupancy[0, 0, 0] == occupancy
    assert problem.transfer_times().delay[0, 0, 0] == occupancy + 500
    assert problem.notes == ()


def test_replicas_all_reduce_in_a_ring() -> None:
    model, system = catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100")
    problem = ModelledCosts(model, system).problem(mirrored(8, 8))
    size = 16 * 12 * 4096 * 4096 * 4  # gradients of 4 bytes
    expected = 2 * (2 - 1) * (Fraction(size, 2) / (50 * 10**9) + Fraction(500, 10**9))
    assert problem.sync[0] == round(expected * 10**9)
    without = ModelledCosts(model, system, gradient_sync=False).problem(mirrored(8, 8))
    assert not without.sync.any()


def test_blocks_are_dealt_by_share() -> None:
    assert deal(10, linear(4, 1)) == [3, 3, 2, 2]
    route = (Hop(0, 0), Hop(1, 1))
    assert deal(9, Placement((route,), (0,), (Fraction(1, 3), Fraction(2, 3)))) == [3, 6]
    assert deal(128, mirrored(8, 8)) == [16] * 8
    with pytest.raises(Inapplicable, match="3 blocks do not fill 4 stages; use at most 3 stages"):
        deal(3, linear(4, 1))


def test_batches_that_do_not_divide_are_said() -> None:
    model, system = catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100")
    (note,) = ModelledCosts(model, system).problem(linear(8, 12)).notes
    assert "12 microbatches of 22 make a batch of 264 sequences" in note
    assert ModelledCosts(model, system).problem(linear(8, 1024)).notes[0].startswith("1024 microbatches of 1 make")


def test_an_overlapped_pair_takes_whole_ticks_with_modelled_costs() -> None:
    model, system = catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100")
    problem = ModelledCosts(model, system, overlap=Fraction(7, 10)).problem(schedules.find("dualpipe")(4, 8).placement)
    assert not (problem.durations * 7 % 10).any()
    assert np.all(problem.durations > 0)


_COST = st.fractions(min_value=0, max_value=9, max_denominator=12)


@given(_COST, _COST, _COST, st.fractions(0, 2, max_denominator=6), st.fractions(0, 1, max_denominator=6))
def test_abstract_work_is_exact_on_every_placement(
    forward: Fraction, first: Fraction, second: Fraction, overlap: Fraction, freed: Fraction
) -> None:
    costs = AbstractCosts(forward, None, first, second, overlap=overlap, freed_at_input=freed)
    for placement in (linear(3, 2), loop(3, 2, chunks=2), wave(3, 2, waves=2), mirrored(4, 2)):
        problem = costs.problem(placement)
        for route in placement.routes:
            chunks = [hop.chunk for hop in route]
            done = [problem.time.value(int(problem.durations[0, chunks, kind].sum())) for kind in Kind]
            assert done == [placement.devices * cost for cost in (forward, first, second, first + second)]
            stash = problem.stash
            assert stash.unit * int(stash.held[0, chunks].sum()) == placement.devices
            assert stash.unit * int(stash.freed_at_input[0, chunks].sum()) == placement.devices * freed
        sums = problem.durations[..., [Kind.F, Kind.F]] + problem.durations[..., [Kind.B, Kind.I]]
        assert not (sums * overlap.numerator % overlap.denominator).any()  # any pair takes whole ticks


def test_the_default_problem_divides_for_8_to_256_microbatches() -> None:
    costs = ModelledCosts(catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100"))
    for microbatches in (8, 16, 32, 64, 128, 256):
        problem = costs.problem(linear(8, microbatches))
        assert problem.notes == ()
        assert problem.time.tick == Fraction(1, 10**9)


def test_the_tick_grows_with_the_training_step() -> None:
    # 96 blocks of 12 h^2 parameters, 1536 x 2048 tokens, 6 FLOP each: 3.3e21 FLOP at 0.45 x 312 TFLOP/s are 23,000 s,
    # more than 2^42 ns = 4398 s.
    costs = ModelledCosts(catalogue.load_model("gpt3-175b"), catalogue.load_system("a100-pcie"))
    problem = costs.problem(linear(8, 8))
    assert problem.time.tick == Fraction(1, 10**8)
    assert 0 < problem.rounding <= problem.time.tick / 2


def test_deals_that_lose_blocks_are_refused() -> None:
    # 6 blocks: quarters get 2, 2, 1, 1, and the second route's half, 3, does not go with the first two quarters.
    quarters, half = tuple(Hop(chunk, chunk) for chunk in range(4)), (Hop(0, 0), Hop(1, 1), Hop(4, 2))
    shares = (*[Fraction(1, 4)] * 4, Fraction(1, 2))
    with pytest.raises(Inapplicable, match="cannot be dealt"):
        deal(6, Placement((quarters, half), (0, 1), shares))
    assert deal(8, Placement((quarters, half), (0, 1), shares)) == [2, 2, 2, 2, 4]


def test_unequal_shares_that_divide_are_not_called_uneven() -> None:
    costs = ModelledCosts(catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100"))
    route = (Hop(0, 0), Hop(1, 1))
    assert costs.problem(Placement((route,), (0,) * 8, (Fraction(1, 4), Fraction(3, 4)))).notes == ()
    (note,) = costs.problem(linear(3, 8)).notes
    assert note == "128 blocks do not divide evenly: stages hold 42 to 43"


@pytest.mark.parametrize(
    ("given", "message"), [({"overlap": -1}, "overlap factor"), ({"freed_at_input": 2}, "between 0 and 1")]
)
def test_modelled_costs_refuse_what_abstract_ones_do(given: dict, message: str) -> None:
    model, system = catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100")
    with pytest.raises(UsageError, match=message):
        ModelledCosts(model, system, **{name: Fraction(value) for name, value in given.items()})


def test_memory_limits_in_bytes_and_beyond_any_memory() -> None:
    model, system = catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100")
    limit = ModelledCosts(model, system, memory_limit="40GiB").problem(linear(2, 8)).memory_limit
    assert limit is not None
    assert (limit.per_device, limit.in_bytes) == ((40 * 2**30,) * 2, True)
    endless = AbstractCosts(memory_limit="1e30").problem(linear(2, 8)).memory_limit
    assert endless is not None
    assert np.array(endless.per_device).dtype == np.int64


_SIZE = st.one_of(st.integers(1, 100), st.integers(1, 2**63 - 1))


@given(st.data())
def test_models_of_any_size_cost_something_or_are_refused(data: st.DataObject) -> None:
    sizes = {f.name: data.draw(_SIZE, f.name) for f in fields(Model) if f.type == "int" and f.name != "key_value_width"}
    costs = ModelledCosts(Model("any", **sizes), catalogue.load_system("h100-sxm"))
    try:
        problem = costs.problem(mirrored(2, 2))
    except ExplorerError as error:
        assert str(error)
    else:
        assert problem.bytes is not None
        assert (problem.bytes.held > 0).all()


def test_models_beyond_64_bits_are_refused() -> None:
    fast = replace(catalogue.load_system("paper-h100"), compute=Compute(Fraction(10**30)))
    fast = replace(fast, memory=replace(fast.memory, bandwidth=Fraction(10**30)))
    wide = replace(catalogue.load_model("paper-128x4096"), hidden=2**30, feed_forward=2**30)
    with pytest.raises(Inexact, match=r"2\^62 bytes"):
        ModelledCosts(wide, fast).problem(linear(2, 8))


def test_embedding_and_head_burden_the_first_and_the_last_stage() -> None:
    model, system = catalogue.load_model("llama3-8b"), catalogue.load_system("paper-h100")
    plain = ModelledCosts(model, system).problem(linear(4, 512))
    full = ModelledCosts(model, system, embeddings=True).problem(linear(4, 512))
    # One sequence of 8192 tokens, width 4096, 128000 words: the head's product is 2 x 8192 x 4096 x 128000 = 8.590
    # TFLOP, 8.590 ms at 1 PFLOP/s, in each of F, I and W; the embedding moves 2 x 8192 x 4096 x 2 bytes at 3.4 TB/s,
    # which take 39.48 us with 50 ns of latency.
    s, h, v = 8192, 4096, 128000
    head, rows = round(Fraction(2 * s * h * v, 10**6)), 39525
    more = full.durations - plain.durations
    assert abs(more[0, 3] - np.array([head, head, head, 2 * head])).max() <= 1
    assert abs(more[0, 0] - np.array([rows, 0, rows, rows])).max() <= 1
    assert not more[0, 1:3].any()
    assert plain.bytes is not None
    assert full.bytes is not None
    assert list(full.bytes.static - plain.bytes.static) == [18 * h * v, 0, 0, 18 * h * v]
    assert list((full.bytes.held - plain.bytes.held)[0]) == [s * h, 0, 0, 4 * s * h + 4 * s * v]
    assert (full.stash.held == plain.stash.held).all()
    assert (full.network.occupancy == plain.network.occupancy).all()


def test_replicas_all_reduce_embedding_and_head_too() -> None:
    model, system = catalogue.load_model("llama3-8b"), catalogue.load_system("paper-h100")
    plain, full = (ModelledCosts(model, system, embeddings=e).problem(mirrored(4, 8)) for e in (False, True))
    more = round(Fraction(4 * 4096 * 128000, 50))  # 4-byte gradients, all of them once over 50 GB/s with two replicas
    assert abs(full.sync - plain.sync - np.array([more, 0, 0, more])).max() <= 1


def test_a_model_without_vocabulary_has_no_head() -> None:
    with pytest.raises(UsageError, match="key 'vocabulary'"):
        ModelledCosts(catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100"), embeddings=True)
