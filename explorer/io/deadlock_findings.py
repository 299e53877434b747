"""Where a schedule table waits for itself.

Sends and receives are posted and do not wait; an op waits for its input. Where that alone closes no circle, messages
can still: libraries such as NCCL serve all messages between two devices, in both directions, in the order in which each
side posts them, so a message waits for those posted before it on either side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from explorer.core.op import Kind, Op
from explorer.io.cells import Message, Verb
from explorer.io.inspection import Finding, Spot, Table


def deadlock_findings(table: Table) -> Iterator[Finding]:
    """The first circle of waits, for a table in which nothing else is wrong; none if there is none."""
    graph = _Graph(table)
    if ring := graph.ring():
        yield graph.finding(ring, "deadlock", "the table deadlocks")
        return
    graph.serve_in_order()
    if ring := graph.ring():
        yield graph.finding(
            ring,
            "message-deadlock",
            "messages block one another where those between two devices are served in the order of their posting, both "
            "directions mixed (NCCL)",
        )


class _Graph:
    """Nodes are cells, line by line, then the messages in transfer; ``waits[i]`` are those that node i waits for."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.spots: list[Spot] = []
        self.names: list[str] = []
        self.waits: list[list[int]] = []
        self.first: list[int] = []
        for device, line in enumerate(table.lines):
            self.first.append(len(self.spots))
            for position, cell in enumerate(line.cells):
                spot = Spot(device, position, cell)
                self.waits.append([len(self.spots) - 1] if position else [])
                self.names.append(f"{cell.action} at {spot.place}")
                self.spots.append(spot)
        self.cells = len(self.spots)
        self.arrivals: list[tuple[Message, int]] = []  # each message, and the node that needs it
        for op, spot in table.ops.items():
            for user in self._users(op):
                send = self._send(op, user)
                self.waits[self.node(user)].append(self.node(table.messages[send] if send else spot))
                if send:
                    self.arrivals.append((send, self.node(user)))

    def node(self, spot: Spot) -> int:
        return self.first[spot.device] + spot.position

    def _users(self, op: Op) -> Iterator[Spot]:
        """Where what an op makes is needed."""
        last = op.stage == self.table.stages - 1
        found: list[Spot | None] = []
        if op.kind == Kind.F and last:
            found.append(self.table.backward(op.stage, op.microbatch))
        elif op.kind == Kind.F:
            found.append(self.table.ops.get(Op(op.stage + 1, Kind.F, op.microbatch)))
        elif op.kind in (Kind.I, Kind.B) and op.stage:
            found.append(self.table.backward(op.stage - 1, op.microbatch))
        if op.kind == Kind.I:
            found.append(self.table.ops.get(Op(op.stage, Kind.W, op.microbatch)))
        return (spot for spot in found if spot is not None)

    def _send(self, op: Op, user: Spot) -> Message | None:
        """The message that carries what an op makes to its user, if the table holds it."""
        if user.device == self.table.home[op.stage]:
            return None
        send = Message(op.stage, Verb.SEND_F if op.kind == Kind.F else Verb.SEND_B, op.microbatch)
        return send if send in self.table.messages else None

    def serve_in_order(self) -> None:
        """Add a node for every message in transfer, behind those that either of its ends has posted before it."""
        posted: dict[tuple[int, int], list[Message]] = defaultdict(list)
        node_of: dict[Message, int] = {}
        for send, user in self.arrivals:
            ends = (self.table.messages[send], self.table.messages[send.other_end()])
            node_of[send] = len(self.waits)
            self.waits[user].append(len(self.waits))
            self.waits.append([self.node(end) for end in ends])
            self.names.append(f"the transfer of {send}")
            self.spots.append(ends[0])
        for spot in self.spots[: self.cells]:
            if isinstance(message := spot.cell.action, Message):
                send = message if message.verb.sends else message.other_end()
                posted[spot.device, self.table.home[message.peer]].append(send)
        for sends in posted.values():
            for before, after in pairwise(sends):
                self.waits[node_of[after]].append(node_of[before])

    def ring(self) -> list[int]:
        """A circle of nodes, each waiting for the next; empty if there is none."""
        followers: list[list[int]] = [[] for _ in self.waits]
        for node, causes in enumerate(self.waits):
            for cause in causes:
                followers[cause].append(node)
        open_waits = [len(causes) for causes in self.waits]
        free = [node for node, count in enumerate(open_waits) if not count]
        while free:
            for node in followers[free.pop()]:
                open_waits[node] -= 1
                if not open_waits[node]:
                    free.append(node)
        node = next((node for node, count in enumerate(open_waits) if count), -1)
        walk: dict[int, int] = {}
        while node >= 0 and node not in walk:
            walk[node] = len(walk)
            node = next(cause for cause in self.waits[node] if open_waits[cause])
        return list(walk)[walk[node] :] if walk else []

    def finding(self, ring: list[int], kind: str, what: str) -> Finding:
        """Say the circle; several steps back along one line are one."""
        start = min(range(len(ring)), key=lambda index: self.spots[ring[index]].cell[1:])
        ring = [*ring[start:], *ring[:start]]
        steps: list[tuple[int, str, int]] = []
        for node, cause in zip(ring, [*ring[1:], ring[0]], strict=True):
            verb = "stands behind" if cause == node - 1 and self._in_line(cause, node) else "waits for"
            if steps and verb == steps[-1][1] == "stands behind":
                steps[-1] = (steps[-1][0], verb, cause)
            else:
                steps.append((node, verb, cause))
        said = "; ".join(f"{self.names[node]} {verb} {self.names[cause]}" for node, verb, cause in steps)
        return self.spots[ring[0]].finding(kind, f"{what}: {said}")

    def _in_line(self, before: int, after: int) -> bool:
        """Whether both are cells of one line."""
        return after < self.cells and self.spots[before].device == self.spots[after].device
