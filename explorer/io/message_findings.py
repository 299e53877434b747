"""What is wrong with the sends, receives and gradient reductions of a schedule table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from explorer.core.op import Kind, Op
from explorer.io.cells import Message, Upkeep
from explorer.io.inspection import Finding, Spot, Table


def message_findings(table: Table) -> Iterator[Finding]:
    """Everything that is wrong with messages and upkeep, but for deadlocks."""
    yield from _reductions(table)
    if table.talks:
        yield from _strays(table)
        yield from _missing(table)
        yield from _misplaced(table)
        yield from _misordered(table)


def _strays(table: Table) -> Iterator[Finding]:
    """Messages that nobody at the other end could match."""
    for message, spot in table.messages.items():
        if message.stage not in table.home:
            continue  # the stage itself is found to be unknown
        if not 0 <= message.peer < table.stages:
            side = "before the first" if message.peer < 0 else "after the last"
            yield spot.finding("stray-message", f"{message} has no peer: there is no stage {side}")
        elif table.home.get(message.peer) == table.home[message.stage]:
            yield spot.finding(
                "stray-message",
                f"stages {message.stage} and {message.peer} live on one device: PyTorch hands tensors over there "
                f"without messages, remove {message}",
            )
        elif (table.made(message) if message.verb.sends else table.used(message)) is None:
            yield spot.finding("stray-message", f"{message} belongs to no op")


def _missing(table: Table) -> Iterator[Finding]:
    for op, spot, send in table.sends():
        if send not in table.messages:
            yield spot.finding("missing-message", f"{send} is missing: stage {send.peer} waits for what {op} makes")
        receive = send.other_end()
        user = table.used(receive)
        if receive not in table.messages and user is not None:
            yield user.finding("missing-message", f"{receive} is missing: PyTorch stops at an op without its input")


def _misplaced(table: Table) -> Iterator[Finding]:
    """Sends before what they send is made, receives behind where it is needed."""
    for message, spot in table.messages.items():
        other = table.made(message) if message.verb.sends else table.used(message)
        if other is None or other.device != spot.device:
            continue
        if message.verb.sends and other.position > spot.position:
            yield spot.finding(
                "misplaced-message", f"{message} stands before {other.cell.action} at {other.place}, which makes it"
            )
        elif not message.verb.sends and other.position < spot.position:
            yield spot.finding(
                "misplaced-message", f"{message} stands behind {other.cell.action} at {other.place}, which needs it"
            )


def _misordered(table: Table) -> Iterator[Finding]:
    """Between two devices, messages match in order, whatever they carry."""
    sent: dict[tuple[int, int], list[tuple[Message, Spot]]] = defaultdict(list)
    received: dict[tuple[int, int], list[tuple[Message, Spot]]] = defaultdict(list)
    for message, spot in table.messages.items():
        peer = table.home.get(message.peer)
        if peer is None or peer == spot.device:
            continue
        if message.verb.sends:
            sent[spot.device, peer].append((message, spot))
        else:
            received[peer, spot.device].append((message, spot))
    for pair, receives in received.items():
        for number, ((receive, spot), (send, origin)) in enumerate(zip(receives, sent[pair], strict=False), 1):
            if send.other_end() != receive:
                yield spot.finding(
                    "misordered-message",
                    f"{receive} is receive {number} from device {pair[0]}, but its send {number} is {send} at "
                    f"{origin.place}; messages between two devices match in order, so tensors of equal shape would "
                    "silently be taken for one another",
                )
                break


def _reductions(table: Table) -> Iterator[Finding]:
    """REDUCE_GRAD scales a stage's gradients once its last weight gradient is there."""
    last: dict[int, tuple[Spot, Op]] = {}
    for op, spot in table.ops.items():
        if op.kind in (Kind.W, Kind.B) and (op.stage not in last or spot.position > last[op.stage][0].position):
            last[op.stage] = (spot, op)
    for stage, (spot, op) in last.items():
        reduction = table.upkeep.get(Upkeep(stage, "REDUCE_GRAD"))
        if reduction is None:
            if table.reduces:
                yield spot.finding(
                    "missing-reduction",
                    f"{Upkeep(stage, 'REDUCE_GRAD')} is missing behind {op}: PyTorch would silently not scale the "
                    "stage's gradients",
                )
        elif reduction.device == spot.device and reduction.position < spot.position:
            yield reduction.finding(
                "early-reduction", f"{reduction.cell.action} stands before {op} at {spot.place}, the stage's last"
            )
