"""PyTorch's CSV: what is written is right and read back, and what is broken is found at its line and column."""

import re

import pytest

import schedules
from explorer.core.errors import Deadlock, ExplorerError, Inapplicable, Incomplete, Malformed
from explorer.core.op import B, F, I, Overlapped, W
from explorer.core.placement import along, vee, wave
from explorer.core.schedule import Schedule
from explorer.io import pytorch, table
from explorer.io.check import check

SIZES = ((4, 8), (3, 6), (2, 2), (1, 3))


def _named() -> list[tuple[str, Schedule]]:
    """Every named schedule that exists at some sizes and has one rank a stage, and each with its backward split."""
    found = []
    for named in schedules.every():
        for devices, microbatches in SIZES:
            try:
                schedule = named(devices, microbatches)
                pytorch.prepare(schedule)
            except ExplorerError:
                continue
            found.append((f"{named.name}-{devices}-{microbatches}", schedule))
            found.append((f"{named.name}-{devices}-{microbatches}-split", schedule.with_split_backward()))
    return found


NAMED = dict(_named())


def test_many_schedules_are_covered() -> None:
    names = {"gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "hanayo", "dualpipe-v", "looped-bfs"}
    assert names <= {key.rsplit("-4-8")[0] for key in NAMED}


@pytest.mark.parametrize("schedule", NAMED.values(), ids=NAMED.keys())
def test_every_export_reads_back_as_itself_and_passes_the_check(schedule: Schedule) -> None:
    prepared = pytorch.prepare(schedule).schedule
    for write in (pytorch.compute_only, pytorch.with_communication):
        text = "".join(write(prepared))
        assert table.parse(text) == prepared
        assert check(text) == []


def test_communication_is_written_between_devices_only() -> None:
    order = [[F(0, 0), B(0, 0)], [F(1, 0), F(2, 0), B(2, 0), B(1, 0)]]
    schedule = Schedule.from_orders(along([0, 1, 1], 1), order)
    assert list(pytorch.with_communication(schedule)) == [
        "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\n",
        "1RECV_F0,1F0,2F0,2B0,2REDUCE_GRAD,1B0,1SEND_B0,1REDUCE_GRAD\n",
    ]


def test_split_backward_sends_after_the_input_gradient_and_reduces_after_the_weight_gradient() -> None:
    schedule = Schedule.from_orders(along([0, 1], 1), [[F(0, 0), I(0, 0), W(0, 0)], [F(1, 0), I(1, 0), W(1, 0)]])
    assert list(pytorch.with_communication(schedule)) == [
        "0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD\n",
        "1RECV_F0,1F0,1I0,1SEND_B0,1W0,1REDUCE_GRAD\n",
    ]


def test_overlapped_pairs_send_behind_both() -> None:
    schedule = NAMED["dualpipe-v-4-8"]
    text = "".join(pytorch.with_communication(schedule))
    assert schedule.overlaps
    assert re.search(r"\(0F\d+;7B\d+\)OVERLAP_F_B,0SEND_F\d+,7SEND_B\d+", text)


def test_microbatches_are_renumbered_as_the_last_stage_runs_them() -> None:
    late_first = [[F(0, 1), F(0, 0), B(0, 1), B(0, 0)], [F(1, 1), F(1, 0), B(1, 1), B(1, 0)]]
    prepared = pytorch.prepare(Schedule.from_orders(along([0, 1], 2), late_first))
    assert prepared.schedule.ops(1) == [F(1, 0), F(1, 1), B(1, 0), B(1, 1)]
    assert any("renumbered in that order: 1, 0 became 0 to 1" in note for note in prepared.notes)


@pytest.mark.parametrize(
    ("homes", "said"),
    [
        ([0, 1, 2, 3], "pipeline_parallel_schedule 1F1B"),
        ([0, 1, 0, 1], "pipeline_parallel_schedule Interleaved1F1B"),
        ([0, 1, 1, 0], "pipeline_parallel_schedule ZBVZeroBubble"),
        ([0, 0, 1], "torchtitan cannot place these stages"),
        ([hop.device for hop in wave(2, 1, 2).routes[0]], "torchtitan cannot place these stages"),
    ],
)
def test_the_placement_option_of_torchtitan_is_told(homes: list[int], said: str) -> None:
    gpipe = [[F(s, 0) for s, d in enumerate(homes) if d == device] for device in range(max(homes) + 1)]
    for order in gpipe:
        order += [B(op.stage, 0) for op in reversed(order)]
    assert said in pytorch.prepare(Schedule.from_orders(along(homes, 1), gpipe)).notes[0]


@pytest.mark.parametrize("name", ["chimera", "dualpipe"])
def test_replicas_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(Inapplicable, match=r"PyTorch gives each stage to one rank, and stage 0 .* devices 0, 3"):
        pytorch.prepare(schedules.find(name)(4, 8))


def test_schedules_that_cannot_run_are_refused() -> None:
    placement = along([0, 1], 1)
    with pytest.raises(Incomplete, match="0B0"):
        pytorch.prepare(Schedule.from_orders(placement, [[F(0, 0)], [F(1, 0), B(1, 0)]]))
    stuck = [[F(0, 0), F(2, 0), B(2, 0), B(0, 0)], [F(3, 0), F(1, 0), B(3, 0), B(1, 0)]]
    with pytest.raises(Deadlock):
        pytorch.prepare(Schedule.from_orders(along([0, 1, 0, 1], 1), stuck))
    with pytest.raises(Inapplicable, match="device 1 has none"):
        pytorch.prepare(Schedule.from_orders(along([0, 2], 1), [[F(0, 0), B(0, 0)], [], [F(1, 0), B(1, 0)]]))


PLAIN = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
SPLIT = "0F0,0I0,0W0\n1F0,1I0,1W0\n"
TALKING = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
    "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n"
)
LOCAL = (
    "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,3REDUCE_GRAD,0RECV_B0,0B0,0REDUCE_GRAD\n"
    "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,2REDUCE_GRAD,1B0,1SEND_B0,1REDUCE_GRAD\n"
)


@pytest.mark.parametrize("text", [PLAIN, SPLIT, TALKING, LOCAL])
def test_sound_tables_pass(text: str) -> None:
    assert check(text) == []


def _without(text: str, cell: str) -> str:
    assert text.count(cell) == 1, "the corpus itself is wrong"
    return text.replace(f"{cell},", "").replace(f",{cell}", "")


def _swapped(text: str, one: str, other: str) -> str:
    assert text.count(one) == text.count(other) == 1, "the corpus itself is wrong"
    return text.replace(one, "@").replace(other, one).replace("@", other)


BROKEN = {
    # ops
    "op-missing-forward": (
        _without(PLAIN, "0F1"), "missing-op", "1:9", "0F1 is missing; 0B1 needs it"),
    "op-missing-backward": (
        _without(PLAIN, "1B1"), "missing-op", "2:9", "the backward of 1F1 is missing: B, or I and W"),
    "op-missing-both": (
        _without(_without(PLAIN, "0F1"), "0B1"), "missing-op", "1:8", "0F1 and its backward are missing"),
    "op-repeated": (
        PLAIN.replace("1B1", "1B1,1F0"), "repeated-op", "2:17", "1F0 stands at 2:1 already"),
    "backward-repeated": (
        PLAIN.replace("0B1", "0B1,0B1"), "repeated-op", "1:17", "0B1 stands at 1:13 already"),
    "input-gradient-without-weight-gradient": (
        _without(SPLIT, "1W0"), "half-backward", "2:5", "1I0 without 1W0: the weights' gradient would be lost"),
    "weight-gradient-without-input-gradient": (
        _without(SPLIT, "1I0"), "half-backward", "2:5", "1W0 without 1I0, which it completes"),
    "fused-and-split-backward": (
        SPLIT.replace("0W0", "0W0,0B0"), "half-backward", "1:13", "one B, or one I and one W; 0B0 stands"),
    "backward-before-forward": (
        _swapped(PLAIN, "1F1", "1B1"), "premature-op", "2:9", "1B1 stands before 1F1 at 2:13"),
    "input-gradient-before-forward": (
        _swapped(SPLIT, "0F0", "0I0"), "premature-op", "1:1", "0I0 stands before 0F0 at 1:5"),
    "weight-gradient-before-input-gradient": (
        _swapped(SPLIT, "0I0", "0W0"), "premature-op", "1:5", "0W0 stands before 0I0 at 1:9"),
    "pair-that-waits-for-itself": (
        PLAIN.replace("1F1,1B1", "(1F1;1B1)OVERLAP_F_B"), "premature-op", "2:9", "so the two cannot overlap"),
    "stage-on-two-devices": (
        _swapped(PLAIN, "0B0", "1B0"), "wrong-device", "1:9", "stage 1 lives on device 1 (line 2)"),
    "stage-missing": (
        PLAIN.replace("1F", "2F").replace("1B0,", "2B0,").replace("2F1,1B1", "2F1,2B1"),
        "missing-stage", "2:1", "stage 2 stands here, but stage 1 nowhere"),
    "microbatch-missing": (
        PLAIN.replace("F1", "F2").replace("B1", "B2"),
        "missing-microbatch", "1:5", "microbatch 2 stands here, but microbatch 1 nowhere"),
    "losses-out-of-order": (
        "0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n",
        "loss-order", "2:9", "1F0 runs behind microbatch 1 on the last stage"),
    "deadlock-between-devices": (
        "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "deadlock", "1:5",
        "0B0 at 1:5 waits for 1B0 at 2:9; 1B0 at 2:9 stands behind 1F1 at 2:5; 1F1 at 2:5 waits for 0F1 at 1:9; "
        "0F1 at 1:9 stands behind 0B0 at 1:5"),
    "deadlock-on-one-device": (
        "1F0,0F0,1B0,0B0\n", "deadlock", "1:1", "1F0 at 1:1 waits for 0F0 at 1:5; 0F0 at 1:5 stands behind 1F0 at 1:1"),
    "empty-line": (
        PLAIN.replace("\n1", "\n\n1"), "empty-line", "2:1", "a rank without ops"),
    "device-without-op": (
        PLAIN + ",,\n", "idle-device", "3:1", "this device has no op"),
    # messages
    "send-missing": (
        _without(TALKING, "0SEND_F1"), "missing-message", "1:14", "0SEND_F1 is missing: stage 1 waits"),
    "receive-missing": (
        _without(TALKING, "1RECV_F1"), "missing-message", "2:27", "1RECV_F1 is missing: PyTorch stops"),
    "gradient-send-missing": (
        _without(TALKING, "1SEND_B0"), "missing-message", "2:23", "1SEND_B0 is missing: stage 0 waits"),
    "gradient-receive-missing": (
        _without(TALKING, "0RECV_B0"), "missing-message", "1:27", "0RECV_B0 is missing"),
    "send-repeated": (
        TALKING.replace("0SEND_F1", "0SEND_F1,0SEND_F1"), "repeated-op", "1:27", "0SEND_F1 stands at 1:18 already"),
    "receive-repeated": (
        TALKING.replace("1RECV_F1", "1RECV_F1,1RECV_F1"), "repeated-op", "2:23", "1RECV_F1 stands at 2:14 already"),
    "send-before-its-op": (
        _swapped(TALKING, "0F1", "0SEND_F1"), "misplaced-message", "1:14", "0SEND_F1 stands before 0F1 at 1:23"),
    "receive-behind-its-op": (
        _swapped(TALKING, "1RECV_F0", "1F0"), "misplaced-message", "2:5", "1RECV_F0 stands behind 1F0 at 2:1"),
    "receives-misordered": (
        _swapped(TALKING, "1RECV_F0", "1RECV_F1").replace("1F0,1RECV_F0", "1RECV_F0,1F0"),
        "misordered-message", "2:1", "1RECV_F1 is receive 1 from device 0, but its send 1 is 0SEND_F0 at 1:5"),
    "activation-and-gradient-misordered": (
        "0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,3REDUCE_GRAD,0RECV_B0,0B0,0REDUCE_GRAD\n"
        "2RECV_B0,1RECV_F0,1F0,2F0,2SEND_F0,2B0,2REDUCE_GRAD,1B0,1SEND_B0,1REDUCE_GRAD\n",
        "misordered-message", "2:1", "2RECV_B0 is receive 1 from device 0, but its send 1 is 0SEND_F0"),
    "messages-block-one-another": (
        TALKING.replace("1RECV_F1,1B0,1SEND_B0", "1B0,1SEND_B0,1RECV_F1"), "message-deadlock", "1:18",
        "the transfer of 0SEND_F1 waits for the transfer of 1SEND_B0"),
    "message-to-the-own-device": (
        LOCAL.replace("2F0,2SEND_F0", "1SEND_F0,2F0,2SEND_F0"), "stray-message", "2:14", "live on one device"),
    "send-behind-the-last-stage": (
        TALKING.replace("1F1,", "1F1,1SEND_F1,"), "stray-message", "2:40", "there is no stage after the last"),
    "receive-before-the-first-stage": (
        TALKING.replace("0F0,", "0RECV_F0,0F0,"), "stray-message", "1:1", "there is no stage before the first"),
    "message-of-no-microbatch": (
        TALKING.replace("0SEND_F1", "0SEND_F1,0SEND_F7"), "stray-message", "1:27", "0SEND_F7 belongs to no op"),
    "message-of-no-stage": (
        TALKING.replace("0SEND_F1", "0SEND_F1,5SEND_F0"), "unknown-stage", "1:27", "stage 5 has no op anywhere"),
    "message-on-another-device": (
        _without(TALKING, "1RECV_F1").replace("0SEND_F1", "0SEND_F1,1RECV_F1"),
        "wrong-device", "1:27", "stage 1 lives on device 1 (line 2) and stands here too"),
    "only-one-reduction": (
        "0F0,1F0,1B0,0B0,0REDUCE_GRAD\n", "missing-reduction", "1:9", "PyTorch would silently not scale"),
    "gradients-not-reduced": (
        _without(TALKING, "1REDUCE_GRAD"), "missing-reduction", "2:40", "PyTorch would silently not scale"),
    "gradients-reduced-early": (
        _swapped(TALKING, "0B1", "0REDUCE_GRAD"), "early-reduction", "1:49", "0REDUCE_GRAD stands before 0B1 at 1:62"),
    "gradients-reduced-twice": (
        TALKING.replace("0REDUCE_GRAD", "0REDUCE_GRAD,0REDUCE_GRAD"), "repeated-op", "1:66", "stands at 1:53 already"),
    "weights-gathered-on-another-device": (
        TALKING.replace("0F0,", "1UNSHARD,0F0,"), "wrong-device", "1:1", "stage 1 lives on device 1"),
    "empty-cell-among-messages": (
        TALKING.replace("1F0,", "1F0,,"), "empty-cell", "2:14", "PyTorch refuses empty cells"),
}  # fmt: skip


def test_the_corpus_is_wide() -> None:
    assert len(BROKEN) >= 25
    assert len({kind for _, kind, _, _ in BROKEN.values()}) >= 15


@pytest.mark.parametrize(("text", "kind", "place", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_broken_is_found_at_its_place(text: str, kind: str, place: str, message: str) -> None:
    found = check(text, "x.csv")
    assert [(v.kind, v.where) for v in found if message in v.message] == [(kind, f"x.csv:{place}")], found


@pytest.mark.parametrize(
    ("cell", "place"),
    [("0F0x", "1:1"), ("0BW0", "1:1"), ("F0", "1:1"), ("0F", "1:1"), ("0SEND0", "1:1"), ("0REDUCE_GRAD1", "1:1"),
     ("0F-1", "1:1"), ('"0F0"', "1:1"), ("(0F0;0B0)", "1:1"), ("(0F0;0B0;0F1)OVERLAP_F_B", "1:1"),
     ("(0F0;0X0)OVERLAP_F_B", "1:1"), ("0f0", "1:1"), ("0F٣", "1:1")],
)  # fmt: skip
def test_cells_that_are_none_cannot_be_read(cell: str, place: str) -> None:
    with pytest.raises(Malformed, match=rf"^x.csv:{place}: .* is not an op"):
        check(PLAIN.replace("0F0", cell), "x.csv")


def test_findings_are_bounded() -> None:
    chaos = "\n".join(",".join(f"{stage}F{microbatch}" for microbatch in range(60)) for stage in range(60))
    assert 0 < len(check(chaos)) <= 1000


def test_wave_and_v_placements_are_read_back() -> None:
    for placement in (vee(2, 2), wave(2, 2, 2)):
        homes = [hop.device for hop in placement.routes[0]]
        orders = [[F(s, m) for s, d in enumerate(homes) if d == device for m in range(2)] for device in range(2)]
        for order in orders:
            order += [B(op.stage, op.microbatch) for op in reversed(order)]
        schedule = Schedule.from_orders(placement, orders)
        assert table.parse("".join(pytorch.compute_only(schedule))).placement == placement


def test_an_overlapped_pair_is_read_back() -> None:
    order = [F(0, 0), F(1, 0), Overlapped(F(0, 1), B(1, 0)), B(0, 0), F(1, 1), B(1, 1), B(0, 1)]
    schedule = Schedule.from_orders(along([0, 0], 2), [order])
    assert table.parse("".join(pytorch.compute_only(schedule))) == schedule
