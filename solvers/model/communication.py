"""Parts: when transfers, gradient synchronisations and optimiser steps may go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ortools.sat.python import cp_model

from explorer.core.op import Kind, Op
from solvers.model.variables import Model, Synchronisation, Transfer

User = Transfer | Synchronisation
"""What holds links."""


def sent_when_ready(model: Model) -> None:
    """``sent[a] >= ready[a]``."""
    for transfer, _ in model.queued():
        model.cp.add(transfer.sent >= transfer.ready)


def first_come_first_served(model: Model) -> None:
    """``first[a,b]``: b is ready after a, and ``sent[b] >= sent[a] + hold[a]``; otherwise the reverse.

    One device's sends are ready in the order of its occupancies: ``start[b] >= free[a]``. Sends of different devices
    compare by ``ready``, and among equals the lower device goes first: ``ready[b] >= ready[a]``, else
    ``ready[a] >= ready[b] + 1``. Over a link that serves several at a time only the order is stated here.
    """
    for turn in model.turns:
        a, b, literal = turn.first, turn.second, turn.literal
        if literal is None:
            if turn.alone:
                model.cp.add(b.sent >= a.released)
            continue
        if turn.alone:
            model.cp.add(b.sent >= a.released).only_enforce_if(literal)
            model.cp.add(a.sent >= b.released).only_enforce_if(~literal)
        if turn.one_sender:
            model.cp.add(b.task.start >= a.task.free).only_enforce_if(literal)
            model.cp.add(a.task.start >= b.task.free).only_enforce_if(~literal)
        else:
            model.cp.add(b.ready >= a.ready).only_enforce_if(literal)
            model.cp.add(a.ready >= b.ready + 1).only_enforce_if(~literal)


def few_at_once(model: Model) -> None:
    """``sent[b] >= sent[a] + hold[a]`` for all a before b of all but n - 1 other pairs, over a link that serves n.

    ``open[link,pair,b]``: of the pair's transfers that go before b, some may not be done when b starts. An all-reduce
    that holds the link is one more pair, ``all-reduce`` of its chunk.
    """
    several = [name for name in model.links if model.servers[name] > 1]
    first = {(turn.first.send.op, turn.second.send.op): turn.literal for turn in model.turns} if several else {}
    for name in several:
        by_pair: defaultdict[str, list[User]] = defaultdict(list)
        for transfer in model.links[name]:
            by_pair[f"{transfer.send.source}->{transfer.send.target}"].append(transfer)
        for sync in model.reduced.get(name, ()):
            by_pair[f"all-reduce {sync.chunk}"].append(sync)
        for own, users in by_pair.items():
            for b in users:
                opened = []
                for pair, others in by_pair.items():
                    if pair == own:
                        continue
                    still = model.cp.new_bool_var(f"open[{name},{pair},{_named(b)}]")
                    opened.append(still)
                    for a in others:
                        goes = _goes_first(model, first, a, b)
                        if goes is not None:
                            model.cp.add(_begin(b) >= _end(a)).only_enforce_if([~still, *goes])
                model.cp.add(sum(opened) <= model.servers[name] - 1)


def _named(user: User) -> str:
    return f"all-reduce {user.chunk}" if isinstance(user, Synchronisation) else str(user.send.op)


def _begin(user: User) -> cp_model.LinearExpr:
    return user.start if isinstance(user, Synchronisation) else user.sent


def _end(user: User) -> cp_model.LinearExpr:
    return user.end if isinstance(user, Synchronisation) else user.released


def _goes_first(
    model: Model, first: Mapping[tuple[Op, Op], cp_model.IntVar | None], a: User, b: User
) -> list[cp_model.LiteralT] | None:
    """The literals that say that a goes before b; None if it never does."""
    if isinstance(a, Synchronisation) and isinstance(b, Synchronisation):
        i, j = model.syncs.index(a), model.syncs.index(b)
        return [model.sync_first[i, j]] if i < j else [~model.sync_first[j, i]]
    if isinstance(a, Synchronisation):
        assert isinstance(b, Transfer)
        return [~model.before_sync[b.send.op, a.chunk]]
    if isinstance(b, Synchronisation):
        return [model.before_sync[a.send.op, b.chunk]]
    before, behind = (a.send.op, b.send.op), (b.send.op, a.send.op)
    if before in first:
        goes = first[before]
        return [] if goes is None else [goes]
    goes = first[behind]
    return None if goes is None else [~goes]


def transfers_and_syncs_in_turn(model: Model) -> None:
    """``before_sync[a,c]``: chunk c is ready no earlier than a, and ``sync[c] >= sent[a] + hold[a]``.

    Otherwise a is ready after it, and ``sent[a] >= sync[c] + ticks[c]``. Over a link that serves several at a time only
    the order is stated here.
    """
    sync_of = {sync.chunk: sync for sync in model.syncs}
    for (op, chunk), literal in model.before_sync.items():
        a, c = model.transfers[op], sync_of[chunk]
        model.cp.add(c.ready >= a.ready).only_enforce_if(literal)
        model.cp.add(a.ready >= c.ready + 1).only_enforce_if(~literal)
        if model.alone(a, c):
            model.cp.add(c.start >= a.released).only_enforce_if(literal)
            model.cp.add(a.sent >= c.end).only_enforce_if(~literal)


def gradients_before_sync(model: Model) -> None:
    """``sync[c] >= gradients[c] = max(0, end[a] of the W and B of chunk c on all its hosts)``."""
    for sync in model.syncs:
        ends = [
            task.end
            for op, task in model.task_of.items()
            if op.kind in (Kind.W, Kind.B) and model.costs.chunk(op) == sync.chunk
        ]
        model.cp.add_max_equality(sync.ready, [0, *ends])
        model.cp.add(sync.start >= sync.ready)


def syncs_in_turn(model: Model) -> None:
    """``sync_first[c,d]``: d is ready after c, and ``sync[d] >= sync[c] + ticks[c]``; otherwise the reverse.

    For chunks with a host or a link in common; among equally ready ones the lower chunk goes first. Over a link that
    serves several at a time only the order is stated here.
    """
    for (i, j), literal in model.sync_first.items():
        c, d = model.syncs[i], model.syncs[j]
        model.cp.add(d.ready >= c.ready).only_enforce_if(literal)
        model.cp.add(c.ready >= d.ready + 1).only_enforce_if(~literal)
        if model.alone(c, d):
            model.cp.add(d.start >= c.end).only_enforce_if(literal)
            model.cp.add(c.start >= d.end).only_enforce_if(~literal)


def gradients_before_step(model: Model) -> None:
    """``step[d] >= free[a]`` for every op of device d, and ``step[d] >= sync[c] + ticks[c]`` for every chunk there."""
    for step in model.steps:
        for task in model.tasks[step.device]:
            model.cp.add(step.start >= task.free)
        for sync in model.syncs:
            if step.device in sync.hosts:
                model.cp.add(step.start >= sync.end)
