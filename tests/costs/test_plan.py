"""Plans: what is legal, what is best, and why the rest is not."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from rich.console import Console

from explorer.config import catalogue
from explorer.core.errors import ExplorerError, UsageError
from explorer.costs.architecture import Architecture, Experts
from explorer.costs.layout import parse_layout
from explorer.costs.problem import architecture_of
from explorer.costs.select import choose
from explorer.plan.candidates import Candidate, Wish, candidates, illegal, sparse, titan_flags
from explorer.plan.own import own_setting
from explorer.plan.planner import FEW, Plan, enough_devices, evaluate, floor, plan
from explorer.plan.report import contract, mine, misses, table

SYSTEM = catalogue.load_system("h100-sxm")
MODEL, _ = architecture_of(catalogue.load_model("llama3-8b"), "llama3-8b")
WISH = Wish(MODEL, SYSTEM, 8, 32, 4096, ("1f1b", "zb-v"))


def wish(**given: object) -> Wish:
    return replace(WISH, **given)  # type: ignore[arg-type]


def told(found: Plan) -> str:
    """What a person reads, on one line."""
    console = Console(width=1000)
    with console.capture() as shown:
        console.print(table(found, ()))
    return " ".join(shown.get().split())


@pytest.mark.parametrize(
    ("candidate", "given", "said"),
    [
        # NVIDIA/Megatron-LM#468: 80 layers, 16 devices, 2 stages each run 64 layers.
        (Candidate(1, 16, 1, "interleaved-1f1b", 2), {"devices": 16, "architecture": replace(MODEL, layers=80)},
         r"only 64 would be placed evenly; legal are 1, 5 stages a device"),
        (Candidate(3, 1, 1), {"devices": 3}, "of 3 does not divide 32 attention heads; nearest is 2"),
        (Candidate(16, 1, 1), {"devices": 16}, "of 16 does not divide 8 .*; nearest is 8"),
        (Candidate(2, 3, 1), {}, "pipeline parallelism of 6 does not divide 8 devices; nearest is a pipeline of 2"),
        (Candidate(1, 2, 3), {}, "32 is no whole number of microbatches of 3 in 4 copies; nearest is a batch of 36"),
        (Candidate(1, 8, 1, "zb-v", 2), {"architecture": replace(MODEL, layers=15)}, "15 layers do not fill 16 stages"),
        (Candidate(1, 8, 1, "interleaved-1f1b", 2), {"global_batch": 12}, "need a multiple of 8 microbatches, got 12"),
        (Candidate(1, 2, 1, expert=2), {}, "needs a model with experts"),
    ],
)  # fmt: skip
def test_what_is_not_legal_says_what_is(candidate: Candidate, given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        reason = illegal(candidate, wish(**given))
        if reason:
            raise UsageError(reason)


def test_few_microbatches_are_tried_where_nothing_else_fits() -> None:
    """pytorch/torchtitan#775: 1F1B runs with fewer microbatches than devices, which then wait for most of the time."""
    few, enough = (Candidate(1, 8, microbatch, recompute="full") for microbatch in (8, 4))
    assert illegal(few, WISH) is None
    said = sparse(few, WISH)
    assert said is not None
    assert "4 microbatches are fewer than 8 pipeline devices" in said, "32 sequences are 4 x 8"
    assert "a batch of at least 64" in said, "8 x 8"
    assert sparse(enough, WISH) is None, "8 microbatches of 4"
    roomy = plan(WISH, [few, enough])
    assert [found.candidate for found in roomy.best] == [enough]
    assert roomy.fallen[FEW] == 1
    only = plan(WISH, [few])
    assert [found.candidate for found in only.best] == [few]
    assert "in the first, 4 microbatches are fewer than 8 pipeline devices" in told(only)


def test_a_large_model_on_a_small_batch_fits_where_devices_outnumber_microbatches() -> None:
    """405 10^9 parameters of 18 bytes are 7.3 TB: 128 devices of 80 GiB hold them, with 8 sequences at once at most."""
    chosen = choose("llama3-405b", {}, None)
    large = Wish(chosen.architecture, SYSTEM, 8, 8, chosen.training.sequence)
    closest = plan(large, list(candidates(large)), top=1)
    assert closest.best == ()
    assert "128 devices would do" in told(closest)
    more = replace(large, devices=128)
    own = Candidate(8, 16, 1, recompute="full")
    found = plan(more, [own])
    assert [one.candidate for one in found.best] == [own]
    assert plan(more, list(candidates(more)), top=1).best[0].seconds <= found.best[0].seconds


@pytest.mark.parametrize("schedule", ["zb-v", "interleaved-zb", "looped-bfs"])
def test_more_devices_are_looked_for_with_every_schedule(schedule: str) -> None:
    """Those that split backwards do not recompute whole layers; those that interleave have several stages a device."""
    large = wish(
        architecture=replace(MODEL, hidden=8192, heads=64, head_width=128), schedules=(schedule,), memory=2**34
    )
    found = plan(large, list(candidates(large)), top=1)
    assert found.best == ()
    assert found.enough is not None
    assert found.enough.fits
    assert found.enough.candidate.schedule == schedule


@pytest.mark.parametrize("schedule", ["pipedream", "pipedream-2bw", "local-accumulation"])
def test_schedules_without_a_flush_say_why_they_are_not_planned(schedule: str) -> None:
    asynchronous = wish(schedules=(schedule,))
    found = plan(asynchronous, list(candidates(asynchronous)))
    assert len(found.illegal) == 1
    assert f"most often because {schedule} updates its weights within the run" in told(found)


def test_why_a_schedule_does_not_exist_is_told() -> None:
    odd = wish(devices=3, global_batch=24, schedules=("chimera",))
    assert "most often because chimera needs an even number of devices, got 3" in told(
        plan(odd, [Candidate(1, 3, 1, "chimera")])
    )


def test_more_copies_than_costs_know_leave_a_setting_out() -> None:
    """2^20 copies are over the limit of 10^6; a pipeline of 32 has 2^15."""
    vast = wish(devices=2**20, global_batch=2**20)
    found = plan(vast, [Candidate(1, 1, 1), Candidate(1, 32, 1)])
    assert [one.candidate for one in found.best] == [Candidate(1, 32, 1)]
    assert list(found.illegal) == ["data-parallel copies must be between 1 and 1000000, got 1048576"]


def test_experts_spread_over_copies_that_there_are() -> None:
    moe = replace(MODEL, experts=Experts(8, 2, 4096), expert_layers=frozenset(range(32)))
    assert illegal(Candidate(1, 2, 1, expert=4), wish(architecture=moe)) is None
    said = illegal(Candidate(1, 4, 1, expert=8), wish(architecture=moe))
    assert said is not None
    assert "of 8 does not divide 2 data- and context-parallel ranks; nearest is 2" in said


def test_the_best_are_those_of_trying_all() -> None:
    """What is skipped by its least time, or by its weights, is not among the best."""
    grid = list(candidates(WISH))
    found = plan(WISH, grid, top=5)
    every = []
    for candidate in grid:
        if illegal(candidate, WISH) is None:
            try:
                every.append(evaluate(candidate, WISH))
            except ExplorerError:
                continue
    fit = sorted(outcome.seconds for outcome in every if outcome.fits)
    assert [outcome.seconds for outcome in found.best] == fit[:5]
    assert found.evaluated < len(every), "the least time saves evaluations"
    evaluated_in_vain = found.fallen["over the memory of a device"]
    assert found.tried == len(grid) == found.evaluated + found.fallen.total() - evaluated_in_vain


def test_least_time_and_memory_are_bounds() -> None:
    wish = replace(WISH, schedules=("1f1b", "zb-h1", "zb-v", "interleaved-1f1b"))
    for candidate in candidates(wish):
        if illegal(candidate, wish) is None:
            try:
                outcome = evaluate(candidate, wish)
            except ExplorerError:
                continue
            assert floor(candidate, wish).seconds <= outcome.seconds + outcome.evaluation.problem.rounding * 10**6
            assert floor(candidate, wish).memory <= outcome.memory, candidate


def test_figures_hang_together() -> None:
    outcome = evaluate(Candidate(2, 2, 1), WISH)
    assert outcome.tokens * outcome.seconds * 8 == 32 * 4096
    assert 0 < outcome.utilisation < 1
    assert any(outcome.evaluation.problem.optimizer), "an iteration ends with the optimiser's step"


def test_ones_own_setting_is_held_against_the_best() -> None:
    grid = list(candidates(WISH))
    found = plan(WISH, grid, top=3)
    assert "none that was tried is faster" in mine(found.best[0], found)
    slow = evaluate(Candidate(8, 1, 1), WISH)
    assert slow.seconds > found.best[-1].seconds
    assert "more than the best: behind the first 3" in mine(slow, found)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tensor": 4}, "tp 4"),
        ({"pipeline": 4}, "pp 4"),
        ({"context": 2}, "cp 2"),
        ({"expert": 2}, "ep 2"),
        ({"microbatch": 2}, "microbatch 2"),
        ({"schedule": "zb-h1"}, "zb-h1"),
        ({"schedule": "interleaved-1f1b", "virtual": 4}, "interleaved-1f1b x 4"),
        ({"balanced": True}, "balanced layers"),
        ({"recompute": "selective"}, "recompute selective"),
        ({"sequence_parallel": False}, "no sequence parallelism"),
        ({"distributed_optimizer": False}, "no distributed optimizer"),
    ],
)
def test_settings_that_differ_are_told_apart(changed: dict[str, object], words: str) -> None:
    outcome = evaluate(Candidate(2, 2, 1), WISH)
    found = plan(WISH, [outcome.candidate])
    plain = mine(outcome, found)
    other = mine(replace(outcome, candidate=replace(outcome.candidate, **changed)), found)  # type: ignore[arg-type]
    assert words in other
    assert words not in plain
    assert {field.name for field in fields(Candidate)} == {
        "tensor", "pipeline", "context", "expert", "microbatch", "schedule", "virtual", "balanced", "recompute",
        "sequence_parallel", "distributed_optimizer",
    }, "a new one needs its words, and its case here"  # fmt: skip


def test_what_fits_nowhere_says_by_how_much() -> None:
    large = wish(
        architecture=replace(MODEL, layers=400, hidden=16384, heads=128, key_value_heads=128), schedules=("1f1b",)
    )
    found = plan(large, list(candidates(large)), top=3)
    assert found.best == ()
    assert found.closest is not None
    assert "nothing fits: the closest" in misses(found.closest, found.enough)
    assert "more than there is" in misses(found.closest, found.enough)
    assert contract(found)["closest"]["fits_memory"] is False


def test_flags_of_uneven_stages_give_a_layout() -> None:
    odd = wish(architecture=replace(MODEL, layers=30))
    flags = Candidate(1, 4, 1).flags(odd)
    layout = flags.split("'")[1]
    pieces, virtual = parse_layout(layout, odd.architecture, 4)
    assert virtual == 1
    assert sum(len(piece.layers) for piece in pieces) == 30
    assert "layout" not in Candidate(1, 2, 1).flags(WISH)


def test_layers_by_time_win_where_the_head_is_heavy() -> None:
    heavy = wish(architecture=replace(MODEL, vocabulary=1_000_000), schedules=("1f1b",))
    even, timed = (evaluate(Candidate(2, 4, 1, balanced=by_time), heavy) for by_time in (False, True))
    assert timed.seconds < even.seconds
    flags = timed.candidate.flags(heavy)
    pieces, _ = parse_layout(flags.split("'")[1], heavy.architecture, 4)
    assert pieces == timed.candidate.pieces(heavy)
    assert illegal(Candidate(2, 1, 1, balanced=True), heavy) is not None


def test_ones_own_setting_may_be_the_winner_as_it_is_written() -> None:
    """Flags of a setting read back as that setting; a layout stands without another argument for its stages."""
    for own in (
        Candidate(2, 4, 1, balanced=True),
        Candidate(2, 2, 1, "interleaved-1f1b", 4),
        Candidate(2, 2, 1, "interleaved-1f1b", 4, balanced=True),
        Candidate(1, 2, 2, recompute="full", distributed_optimizer=False),
    ):
        flags = own.flags(WISH)
        assert flags is not None
        assert ("--num-virtual" in flags) + ("layout" in flags) <= 1
        assert own_setting(flags, WISH) == replace(own, sequence_parallel=own.tensor > 1)
    assert Candidate(2, 2, 1, "zb-v", 2).flags(WISH) is None


def test_a_limit_leaves_room() -> None:
    grid = list(candidates(WISH))
    most = plan(WISH, grid, top=1).best[0].memory
    limited = wish(memory=most - 1)
    found = plan(limited, grid, top=1)
    assert all(outcome.memory < most for outcome in found.best)
    with pytest.raises(UsageError, match="cannot be used"):
        wish(memory=10**15)


def test_torchtitan_takes_what_it_has() -> None:
    flags = titan_flags(Candidate(2, 2, 1, "zb-v", 2), WISH)
    assert flags is not None
    given = dict(pair.split(" ") for pair in flags.removeprefix("--").split(" --"))
    assert given["parallelism.pipeline_parallel_schedule"] == "ZBVZeroBubble"
    assert given["training.local_batch_size"] == "16", "32 sequences in 2 copies"
    assert titan_flags(Candidate(2, 2, 1, "zb-h1"), WISH) is None
    assert titan_flags(Candidate(2, 2, 1, balanced=True), WISH) is None


def test_experts_are_checked_before_layers_are_spread() -> None:
    moe = replace(MODEL, experts=Experts(256, 8, 2048), expert_layers=frozenset(range(32)))
    said = illegal(Candidate(1, 1, 1, expert=256, balanced=True), wish(architecture=moe, devices=128, global_batch=512))
    assert said is not None and "expert parallelism of 256 does not divide 128" in said


def test_more_devices_than_the_system_has() -> None:
    with pytest.raises(UsageError, match="64 devices are asked for, and the system has 8"):
        wish(system=replace(SYSTEM, nodes=1), devices=64)
    with pytest.raises(UsageError, match="global batch must be at least 1"):
        wish(global_batch=0)


def test_an_architecture_without_grouped_queries() -> None:
    plain = Architecture("gpt", 8, 512, 8, 8, 64, 2048, 1000)
    assert illegal(Candidate(8, 1, 1), wish(architecture=plain)) is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--tp 2", "did you mean --tensor-model-parallel-size"),
        ("--recompute-method block", "only some layers, which is not modelled"),
        ("--global-batch-size 64", "--global-batch-size 64 contradicts the 32"),
        ("--num-layers 80", "--num-layers 80 contradicts the 32"),
        ("--ffn-hidden-size 3", "--ffn-hidden-size 3 contradicts the 14336"),
        ("--vocab-size 3", "--vocab-size 3 contradicts the 128000"),
        ("--group-query-attention --num-query-groups 4", "--num-query-groups 4 contradicts the 8"),
        ("--kv-channels 64", "--kv-channels 64 contradicts the 128"),
        ("--num-experts 8", "--num-experts 8 contradicts the 0"),
        ("--mtp-num-layers 1", "--mtp-num-layers 1 contradicts the 0"),
        ("--pipeline-model-parallel-size 2 --data-parallel-size 2", "--data-parallel-size 2 contradicts the 4"),
        ("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*3|t*29L", "this layout is neither"),
        ("--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 9", "is not weighed"),
    ],
)
def test_ones_own_arguments_are_not_passed_over(flags: str, said: str) -> None:
    with pytest.raises(ExplorerError, match=said):
        own_setting(flags, WISH)


def test_ones_own_vocabulary_may_be_padded_or_not() -> None:
    """Llama 3 has 128256 words; 3 is no padding of them."""
    model = wish(architecture=replace(MODEL, vocabulary=128_256))
    assert own_setting("--vocab-size 128000", model) == own_setting("--tensor-model-parallel-size 1", model)
    with pytest.raises(UsageError, match="--vocab-size 3 contradicts the 128256"):
        own_setting("--vocab-size 3", model)


def test_ones_own_optimizer_is_spread_only_if_asked() -> None:
    whole = own_setting("--tensor-model-parallel-size 2 --global-batch-size 32 --data-parallel-size 4", WISH)
    spread = own_setting("--tensor-model-parallel-size 2 --use-distributed-optimizer --sequence-parallel", WISH)
    assert spread == Candidate(2, 1, 1)
    assert not whole.distributed_optimizer
    assert evaluate(whole, WISH).memory > evaluate(spread, WISH).memory
    assert "--use-distributed-optimizer" not in whole.flags(WISH)


def test_the_closest_of_what_does_not_fit_needs_least() -> None:
    large = wish(architecture=replace(MODEL, layers=160, hidden=8192, heads=64, head_width=128), schedules=("1f1b",))
    grid = list(candidates(large))
    found = plan(large, grid, top=1)
    every = [evaluate(one, large).memory for one in grid if illegal(one, large) is None]
    assert found.best == ()
    assert found.closest is not None
    assert found.closest.memory == min(every)
    larger = enough_devices(large)
    assert larger is not None
    assert larger.fits
    assert f"{larger.wish.devices} devices would do" in misses(found.closest, found.enough)
