"""Writes ``schedules.md`` beside it: ``python docs/schedules_page.py``. Pictures and figures are evaluated."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.op import Kind
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.case import case_of
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import peaks
from explorer.evaluation.metrics import bubble_ratio
from schedules.registry import NamedSchedule

PAGE = Path(__file__).with_name("schedules.md")
COSTS = AbstractCosts()
CELL = 3
"""Columns of a picture per forward of one op."""


class Prose(NamedTuple):
    """What a person should know of a schedule, beside what the program says itself."""

    size: tuple[int, int]
    rule: str
    memory: str
    use: str


GROUPS: dict[str, dict[str, Prose]] = {
    "With a flush, fused backward": {
        "gpipe": Prose(
            (3, 4),
            "Every device runs the forwards of all microbatches, then all their backwards. Nothing is interleaved, so "
            "each direction of transfers has its own phase. The order of the backwards does not change the time.",
            "All N activations on every device.",
            "Few microbatches, or transfers that are long and overlap with compute: it waits for only 2(D-1) of them.",
        ),
        "1f1b": Prose(
            (3, 4),
            "Device s warms up with D-s-1 forwards. Then it runs one forward and one backward in turn, so that no more "
            "microbatches come under way. The backwards that are left drain the pipeline.",
            "At most D-s activations on device s.",
            "The default where memory counts. It has GPipe's bubble, but with overlapped transfers of c it loses "
            "another 2(D-1)c for every D microbatches.",
        ),
        "eager-1f1b": Prose(
            (3, 6),
            "As 1F1B, with 2(D-s-1) forwards of warm-up. Each device is one more step ahead of the next, so a transfer "
            "has a step to arrive. The steady state and the drain are those of 1F1B.",
            "Up to 2D-1 activations.",
            "1F1B over slow links, while a transfer takes no longer than a forward.",
        ),
    },
    "Several chunks a device": {
        "interleaved-1f1b": Prose(
            (2, 4),
            "Each device holds several chunks, dealt round and round. Groups of D microbatches pass chunk after chunk, "
            "and along this order the device runs 1F1B. N must be whole groups, or end with one of at least D.",
            "D + (D-1)/v activations on device 0 with v chunks.",
            "A smaller bubble where transfers are cheap: there are v times as many of them.",
        ),
        "looped-bfs": Prose(
            (2, 3),
            "Chunks are dealt round and round, and every chunk runs all microbatches before the next one starts. "
            "Backwards go the other way, last microbatch first. Each chunk's weights are needed once a direction.",
            "All N activations on every device.",
            "With sharded weights or gradients, which are then gathered and reduced once a chunk.",
        ),
        "hanayo": Prose(
            (4, 4),
            "The pipeline goes down the devices and back up, once or more, and turns without a transfer. A device runs "
            "a backward first, then the lowest microbatch, then the deepest stage. Weights are held once.",
            "At most N activations, fewer on the first devices, for N = D.",
            "As many microbatches as devices; it says what it loses with more.",
        ),
    },
    "Two directions": {
        "chimera": Prose(
            (4, 4),
            "Two pipelines run over the same devices in opposite directions, each with half of the microbatches. Ops "
            "go by slots, in which the two never meet. More than D microbatches come in units, one behind the other.",
            "Up to D activations, most on the middle devices, and two copies of the weights (2f with f pairs).",
            "Few microbatches on fast networks; with B = 2F it loses to 1F1B after a few units.",
        ),
        "asymmetric-chimera": Prose(
            (4, 4),
            "Chimera with something uneven: stages of unequal size, unequal shares of the microbatches, or the second "
            "replica rotated by half of the devices. The published construction is not available; these are ours. "
            "The rotated one has the shortest time known for N = D.",
            "As Chimera; an uneven split moves activations off the first device, the largest peak stays.",
            "`rotated` in place of Chimera; the splits to study what they do.",
        ),
        "dualpipe": Prose(
            (4, 8),
            "Two pipelines in opposite directions; a forward of one and a backward of the other run as one overlapped "
            "pair. Eight steps lead from the first forwards over the pairs to a drain in which W fills the gaps. "
            "Devices and microbatches are even, and N is at least 2D.",
            "D+1 activations, and two copies of the weights.",
            "Mixture-of-experts models, whose all-to-all a pair hides: then a pair takes less than its two ops.",
        ),
        "dualpipe-v": Prose(
            (2, 4),
            "DualPipe on half of the devices: the second direction becomes the way back of a V. Pairs are those of two "
            "microbatches of the one pipeline. The eight steps are the same.",
            "D+1/2 activations, weights held once.",
            "As DualPipe, without its second copy of the weights.",
        ),
    },
    "Split backward": {
        "zb-h1": Prose(
            (3, 4),
            "Forwards and input gradients go as in 1F1B. Device s runs each W s microbatches late, which keeps the "
            "memory of device 0 everywhere. W then fills the drain, where 1F1B waits.",
            "D activations on every device, counted until W.",
            "Instead of 1F1B wherever the backward can be split: a third of its bubble for F = I = W.",
        ),
        "zb-h2": Prose(
            (3, 6),
            "The warm-up is twice that of 1F1B, so the first backward comes without a wait. Device s runs each W 2s "
            "microbatches late. For F = I = W no device waits between its first and its last op.",
            "2D-1 activations.",
            "Where memory is plenty and the optimiser step need not wait for all devices: the makespan still holds the "
            "first forward's way.",
        ),
        "zb-v": Prose(
            (2, 4),
            "Two chunks a device, down and back up. After a warm-up in which the two alternate, six ops repeat: F, I, "
            "W of either chunk. W fills the drain.",
            "D activations.",
            "The memory of 1F1B and no bubble inside a span for F = I = W, from 2D-1 microbatches on.",
        ),
        "interleaved-zb": Prose(
            (2, 4),
            "Chunks are dealt round and round, and rounds of microbatches pass chunk after chunk. The warm-up grows by "
            "one forward a device, not two. Device r runs each W r steps late.",
            "D activations for N a multiple of D.",
            "A smaller bubble than ZB-H1's for more transfers.",
        ),
    },
    "Split backward with controllable memory": {
        "v-min": Prose(
            (4, 4),
            "One building block says when each device runs F and I of its two chunks, at one slot a device both ways. "
            "It repeats every six slots, and W takes the slots between. Every op is then pulled forward as far as its "
            "inputs and the block's memory allow.",
            "(D+4)//3 activations, the least of all.",
            "Memory above all: at equal costs its bubble is about two thirds of 1F1B's.",
        ),
        "v-half": Prose(
            (3, 4),
            "As V-Min, with a block that goes down at one device every two slots and up at one a slot. Activations "
            "live half as long as in 1F1B. The bubble is between those of V-Min and V-ZB.",
            "D//2 + 1 activations.",
            "Half of 1F1B's memory for half of its bubble.",
        ),
        "v-zb": Prose(
            (2, 4),
            "As V-Min, with a block that goes down at one device every four slots and up at one every two. The slots "
            "are derived here from the lifespans that the paper gives. It drains as ZB-V does.",
            "D activations.",
            "As ZB-V, which for F = I = W has a slightly shorter span.",
        ),
        "zb-auto": Prose(
            (3, 4),
            "Devices choose by a rule: input gradient first, then forward, then W if there is time; the rule has a cap "
            "on forwards under way and a budget for waiting. Many such rules are simulated with the costs, transfers "
            "and memory limit of the run, beside ZB-H1 and ZB-H2. The best order is kept, by makespan or by span.",
            "Whatever limit is given: down to one activation.",
            "Uneven or measured costs, or a memory limit. On every row of the zero-bubble paper's table it is at least "
            "as good as the paper's automatic schedules. With F = I = W, D = 4, N = 8 and at most 3 activations, held "
            "until W, it takes 33 where 31 is proved to be possible.",
        ),
    },
    "Asynchronous": {
        "pipedream": Prose(
            (3, 5),
            "1F1B for ever, with an update after every microbatch. Each forward's weights are kept for its backward. "
            "There is no flush, so there is no bubble once the pipeline is full.",
            "D-s activations and D-s versions of the weights on device s.",
            "Where stale gradients (D-1-s updates on device s) do no harm.",
        ),
        "pipedream-2bw": Prose(
            (3, 6),
            "The order of PipeDream, with an update after at least D microbatches. Every batch uses the weights of the "
            "update before the last. So two versions are enough everywhere.",
            "D-s activations and two versions of the weights.",
            "PipeDream for large models; gradients are one update old on every device.",
        ),
        "local-accumulation": Prose(
            (3, 6),
            "The order of PipeDream without kept weights: every device updates its own after k backwards. A backward "
            "uses the weights of its time. Between a forward and its backward lie (D-1-s)/k updates, up or down.",
            "D-s activations and one version of the weights.",
            "Where memory has no room for a second version; the gradient is not exact.",
        ),
    },
}


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


def page() -> str:
    """The whole page, as Markdown."""
    parts = [
        "# Schedules",
        "This page is written by `docs/schedules_page.py`; pictures and figures are evaluated.",
        "D devices, N microbatches; F, B, I, W are the times of one microbatch's forward, fused backward, input "
        "gradient and weight gradient on one device. Pictures: F = 1, B = 2, I = W = 1 on a device, no transfer time; "
        "`F0` is the forward of microbatch 0 and `f0` that of a later chunk (or, in two directions, of the way up); "
        "dashes prolong an op, dots are idle time, `&` joins an overlapped pair. Activations are in device units: one "
        "microbatch on one device is 1. Where W is a step of its own, activations are counted until W.",
        "## At a glance",
        "D = 4, N = 8, the costs of the pictures. The span is the longest time between a device's first start and last "
        "end; copies are the weights held, in models. Of asynchronous schedules only the memory and the copies mean "
        "something here.",
        glance(),
    ]
    for group, members in GROUPS.items():
        parts.append(f"## {group}")
        for name, prose in members.items():
            parts += section(schedules.find(name), prose)
    return "\n\n".join(parts) + "\n"


def glance() -> str:
    """One row a schedule."""
    rows = ["| schedule | makespan | bubble ratio | span | peak activations | copies |", "|---|---|---|---|---|---|"]
    for members in GROUPS.values():
        for name in members:
            schedule = schedules.find(name)(4, 8)
            problem = COSTS.problem(schedule.placement)
            timeline = evaluate(schedule, problem)
            makespan, span = (problem.time.value(int(t)) for t in (timeline.makespan, timeline.spans.max()))
            held = max(int(peak) for peak in peaks(schedule, problem, problem.stash)) * problem.stash.unit
            asynchrony = schedules.find(name).asynchrony(case_of(problem, schedule.placement, {}))
            versions = asynchrony.weight_versions if asynchrony else (1,) * 4
            shares = schedule.placement.shares
            copies = sum(
                versions[device] * shares[chunk]
                for device, chunks in enumerate(schedule.placement.resident)
                for chunk in chunks
            )
            ratio = float(bubble_ratio(timeline, problem))
            times = ("-", "-", "-") if asynchrony else (plain(makespan), f"{ratio:.3f}", plain(span))
            rows.append(f"| {name} | {' | '.join(times)} | {plain(held)} | {plain(Fraction(copies))} |")
    return "\n".join(rows)


def plain(value: Fraction) -> str:
    """A number as people write it."""
    return f"{float(value):.4g}"


def section(named: NamedSchedule, prose: Prose) -> list[str]:
    """One schedule."""
    devices, microbatches = prose.size
    schedule = named(devices, microbatches)
    formula = named.closed_form_text or "none is known"
    return [
        f"### {named.name}",
        f"{named.summary[0].upper()}{named.summary[1:]}.",
        f"D = {devices}, N = {microbatches}:",
        "```text\n" + picture(evaluate(schedule, COSTS.problem(schedule.placement))) + "\n```",
        f"- Rule: {prose.rule}\n"
        f"- Closed form: {formula[0].lower()}{formula[1:].rstrip('.')}.\n"
        f"- Memory: {prose.memory}\n"
        f"- Use: {prose.use}\n"
        f"- Source: {named.source}.",
    ]


def picture(timeline: Timeline) -> str:
    """A timeline as text, one line a device; the shortest op takes `CELL` columns."""
    schedule = timeline.schedule
    unit = int(np.min(timeline.end - timeline.start))
    lines = []
    for device in range(schedule.devices):
        line = list(("." + " " * (CELL - 1)) * (timeline.makespan // unit))
        for row in schedule.rows(device):
            if schedule.joined[row]:
                continue
            start, end = (int(time) // unit * CELL for time in (timeline.start[row], timeline.end[row]))
            text = label(schedule, row)
            if row + 1 < schedule.offsets[device + 1] and schedule.joined[row + 1]:
                text += "&" + label(schedule, row + 1)
            line[start:end] = text.ljust(end - start - 1, "-") + " "
        lines.append(f"{device}: {''.join(line).rstrip()}")
    return "\n".join(lines)


def label(schedule: Schedule, row: int) -> str:
    """``F0``; in lower case on a later chunk of the device, or on a route up."""
    microbatch = int(schedule.microbatch[row])
    later = schedule.placement.route_of[microbatch] % 2 or int(schedule.stage[row]) >= schedule.devices
    letter = Kind(schedule.kind[row]).name
    return f"{letter.lower() if later else letter}{microbatch}"


if __name__ == "__main__":
    main()
