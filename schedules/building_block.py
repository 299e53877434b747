"""Pipelines with controllable memory: one building block repeated, then every op pulled forward within the memory.

A block says in which slot each device runs F and I of its two chunks for one microbatch; every microbatch repeats it
`PERIOD` slots later, which leaves two slots for its two W. How long the block keeps activations fixes the memory.
Slots are of equal length and serve to find the order only (arXiv:2405.15362). Not a schedule itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from explorer.core.op import F, I, Op, W
from explorer.core.placement import vee
from explorer.core.schedule import Schedule

PERIOD = 6
"""Slots from one microbatch to the next: F, I and W of two chunks."""

F0, F1, I1, I0 = range(4)
"""The steps of a microbatch on a device: forward on the way down and up, input gradients back along both ways."""

FREE = -1
"""A slot without a step: the oldest W that is owed runs here."""

Block = Callable[[int, int], tuple[int, int, int, int]]
"""(device, devices) -> the slots of F0, F1, I1 and I0 of microbatch 0."""


def repeated(devices: int, microbatches: int, block: Block) -> Schedule:
    """The schedule of a block: repeated, pulled forward, and free slots filled with W."""
    lines = [_Line(block(device, devices), microbatches) for device in range(devices)]
    _pull_forward(lines, microbatches)
    orders = (line.order(device, 2 * devices - 1 - device) for device, line in enumerate(lines))
    return Schedule.from_orders(vee(devices, microbatches), orders)


def _pull_forward(lines: list[_Line], microbatches: int) -> None:
    """Move every step, in order of time, to the first free slot that its inputs and the block's memory allow."""
    limit = max(held for line in lines for held, _ in line.states)
    steps = sorted((slot, d) for d, line in enumerate(lines) for slot, step in enumerate(line.steps) if step != FREE)
    done: list[list[list[int]]] = [[[] for _ in range(4)] for _ in lines]
    for slot, d in steps:
        step = lines[d].steps[slot]
        m = len(done[d][step])
        before = d - 1 if step in (F0, I1) else d + 1
        inputs = [done[before][step][m]] if 0 <= before < len(lines) else []
        inputs += [done[d][step - 1][m]] if step > F0 else []
        inputs += [done[d][step][m - 1]] if m > 0 else []
        done[d][step].append(lines[d].pull(slot, max(inputs, default=-1) + 1, limit))


class _Line:
    """A device's slots; ``states`` are the chunk activations held, and the W owed, after each slot."""

    def __init__(self, firsts: tuple[int, ...], microbatches: int) -> None:
        self.steps = [FREE] * (max(firsts) + PERIOD * microbatches)
        for step, first in enumerate(firsts):
            for m in range(microbatches):
                self.steps[first + PERIOD * m] = step
        self.states = list(_states(self.steps, 0, 0))

    def pull(self, slot: int, earliest: int, limit: int) -> int:
        """Move the step in a slot to the first free slot from ``earliest`` on that keeps to the limit; say where."""
        for target in range(earliest, slot):
            if self.steps[target] == FREE and (states := self._moved(slot, target, limit)):
                self.states[target : target + len(states)] = states
                self.steps[target], self.steps[slot] = self.steps[slot], FREE
                return target
        return slot

    def _moved(self, slot: int, target: int, limit: int) -> list[tuple[int, int]] | None:
        """The states from ``target`` until they are what they were; None if the limit is passed."""
        states = []
        trial = chain((self.steps[slot],), self.steps[target + 1 : slot], (FREE,), self._from(slot + 1))
        before = self.states[target - 1] if target > 0 else (0, 0)
        for place, state in enumerate(_states(trial, *before), target):
            if state[0] > limit:
                return None
            states.append(state)
            if state == self.states[place] and place >= slot:
                break
        return states

    def _from(self, slot: int) -> Iterator[int]:
        """The steps from a slot on, without a copy."""
        return map(self.steps.__getitem__, range(slot, len(self.steps)))

    def order(self, down: int, up: int) -> Iterator[Op]:
        """The line as ops of its two stages; of two W that are owed, the one on the way up goes first."""
        stages, counts = (down, up, up, down), [0] * 4
        owed: dict[int, deque[int]] = {I1: deque(), I0: deque()}
        for step in [*self.steps, *[FREE] * len(self.steps)]:
            if step == FREE:
                ready = next((one for one in (I1, I0) if owed[one]), None)
                if ready is not None:
                    yield W(stages[ready], owed[ready].popleft())
                continue
            m = counts[step]
            counts[step] += 1
            yield (F if step in (F0, F1) else I)(stages[step], m)
            if step in (I1, I0):
                owed[step].append(m)


def _states(steps: Iterable[int], held: int, owed: int) -> Iterator[tuple[int, int]]:
    """What is held and owed after each step."""
    for step in steps:
        if step == FREE:
            if owed:
                held, owed = held - 1, owed - 1
        elif step in (F0, F1):
            held += 1
        else:
            owed += 1
        yield held, owed
