"""An event-driven simulator of a fixed schedule, written from the model's definition alone.

A heap of events in time, devices and links with explicit state, queues at the links; plain dicts and lists, and
fractions for time. `simulate` knows none of the program's types; `read` copies the raw data of a schedule and its
problem for it.

An op is ``(kind, stage, microbatch)`` with kind one of the letters F, I, W, B. A case is a dict:

==============  ======================================================================================================
``routes``      {microbatch: [(chunk, device) by stage]}
``hosts``       {chunk: set of the devices that hold it, whether or not a microbatch visits it there}
``orders``      one list a device, of occupancies: tuples of one op, or of two that overlap
``work``        {op: time}
``message``     {(device, device, microbatch, chunk): (latency, occupancy)} of the boundary behind this chunk
``mode``        none, latency, link or blocking
``shared``      {name: set of (device, device) pairs that share it}
``servers``     {name: how many pairs it serves at a time}, 1 where it is left out
``launch``      time an occupancy, ``posting`` time a send, ``overlap`` factor on the work of overlapped ops
``sync``        {chunk: time}
``sync_path``   {chunk: names of what its all-reduce holds of ``shared``}
``optimizer``   time of the step by device, 0 for none
``copies``      data-parallel copies of everything
``stash``       {(microbatch, chunk): (held, part that I frees)}
==============  ======================================================================================================
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from itertools import count
from typing import Any

from explorer.core.problem import Problem, Stash
from explorer.core.schedule import Schedule

Op = tuple[str, int, int]
Case = dict[str, Any]

ACTION, SERVICE, SYNCHRONISATION = range(3)
"""Within one instant, in this order: all that devices do; then requests join their links' queues, one by one."""


class Stuck(Exception):
    """Nothing can happen any more, but ops are left; carries the head of every stuck device's order."""


class Queues:
    """Resources; a user waits in the queues of all that it needs and runs when it is in front in all of them.

    That is at the head, or where a resource has several servers: behind fewer other kinds of users than servers.
    """

    def __init__(self, servers: dict[Any, int] | None = None, kind: Callable[[Any], Any] = lambda user: user) -> None:
        self.servers, self.kind = servers or {}, kind
        self.lines: dict[Any, deque[Any]] = {}
        self.running: set[Any] = set()

    def join(self, user: Any, resources: list[Any]) -> bool:
        for name in resources:
            self.lines.setdefault(name, deque()).append(user)
        return self.admit(user, resources)

    def admit(self, user: Any, resources: list[Any]) -> bool:
        if user in self.running or not all(self.in_front(user, name) for name in resources):
            return False
        self.running.add(user)
        return True

    def in_front(self, user: Any, name: Any) -> bool:
        line = self.lines[name]
        ahead = {self.kind(other) for other in list(line)[: line.index(user)]}
        servers = self.servers.get(name, 1)
        return not ahead if servers == 1 else len(ahead - {self.kind(user)}) < servers

    def leave(self, user: Any, resources: list[Any]) -> list[Any]:
        """Give the resources back; returns who waits for them."""
        self.running.discard(user)
        for name in resources:
            assert self.in_front(user, name)
            self.lines[name].remove(user)
        return list(dict.fromkeys(other for name in resources for other in self.lines[name]))


class Simulation:
    def __init__(self, case: Case) -> None:
        self.case = case
        devices = range(len(case["orders"]))
        self.events: list[tuple[Fraction, int, tuple[int, ...], int, Callable[[Fraction], None]]] = []
        self.serial = count()
        self.at = [0 for _ in devices]  # place in the order
        self.busy = [False for _ in devices]
        self.inbox: list[set[Op]] = [set() for _ in devices]  # whose products are on the device
        self.links = Queues(case.get("servers"), lambda op: self.requests[op][0][0])
        self.times: dict[Op, dict[str, Fraction]] = {}
        self.requests: dict[Any, tuple[list[Any], Callable[[Fraction], None]]] = {}
        self.level = [Fraction(0) for _ in devices]
        self.peaks = [Fraction(0) for _ in devices]
        self.hosts: dict[int, set[int]] = case["hosts"]
        self.left = dict.fromkeys(self.hosts, 0)  # backwards still to come, by chunk
        for route in case["routes"].values():
            for chunk, _ in route:
                self.left[chunk] += 1
        self.syncs: dict[int, tuple[Fraction, Fraction]] = {}
        self.awaits = [0 for _ in devices]  # synchronisations still to come
        for chunk in self.hosts:
            for device in self.hosts[chunk] if self.synchronises(chunk) else ():
                self.awaits[device] += 1
        self.updates: dict[int, tuple[Fraction, Fraction]] = {}

    def at_time(
        self, time: Fraction, action: Callable[[Fraction], None], phase: int = ACTION, rank: tuple[int, ...] = ()
    ) -> None:
        heapq.heappush(self.events, (time, phase, rank, next(self.serial), action))

    def run(self) -> None:
        for device in range(len(self.at)):
            self.at_time(Fraction(0), lambda now, device=device: self.wake(device, now))  # type: ignore[misc]
            self.update_if_done(device, Fraction(0))
        for chunk in self.hosts:
            self.synchronise_if_done(chunk, Fraction(0))
        while self.events:
            time, _, _, _, action = heapq.heappop(self.events)
            action(time)
        heads = [order[at] for order, at in zip(self.case["orders"], self.at, strict=True) if at < len(order)]
        if heads:
            raise Stuck(heads)

    # Devices

    def cause(self, op: Op) -> list[Op]:
        """The ops of which one must have brought its product to the device before this op may start."""
        kind, stage, m = op
        if kind == "W":
            return [("I", stage, m)]
        if kind == "F":
            return [("F", stage - 1, m)] if stage > 0 else []
        if stage == len(self.case["routes"][m]) - 1:
            return [("F", stage, m)]
        return [("I", stage + 1, m), ("B", stage + 1, m)]

    def wake(self, device: int, now: Fraction) -> None:
        """Begin the next occupancy, if the device is idle and all inputs are there."""
        order = self.case["orders"][device]
        if self.busy[device] or self.at[device] == len(order):
            return
        ops = order[self.at[device]]
        for causes in map(self.cause, ops):
            if causes and not self.inbox[device].intersection(causes):
                return
        self.busy[device] = True
        for op in ops:
            self.hold(device, op, True)
        work = sum(self.case["work"][op] for op in ops)
        if len(ops) > 1:
            work *= self.case["overlap"]
        for op in ops:
            self.times[op] = {"start": now}
        self.at_time(now + self.case["launch"] + work, lambda then: self.finish(device, ops, then))

    def finish(self, device: int, ops: tuple[Op, ...], now: Fraction) -> None:
        for op in ops:
            kind, stage, m = op
            self.times[op]["end"] = now
            self.hold(device, op, False)
            self.inbox[device].add(op)
            chunk = self.case["routes"][m][stage][0]
            if kind in "BW":
                self.left[chunk] -= 1
                self.synchronise_if_done(chunk, now)
        outgoing = [(op, target) for op in ops if (target := self.target(op)) not in (None, device)]
        self.send(device, ops, outgoing, now)

    def target(self, op: Op) -> int | None:
        kind, stage, m = op
        route = self.case["routes"][m]
        neighbour = {"F": stage + 1, "I": stage - 1, "B": stage - 1, "W": -1}[kind]
        return route[neighbour][1] if 0 <= neighbour < len(route) else None

    def send(self, device: int, ops: tuple[Op, ...], outgoing: list[tuple[Op, int]], now: Fraction) -> None:
        """Post what is left to send, one by one, then go on."""
        if not outgoing:
            for op in ops:
                self.times[op]["free"] = now
            self.busy[device] = False
            self.at[device] += 1
            self.wake(device, now)
            self.update_if_done(device, now)
            return
        (op, target), rest = outgoing[0], outgoing[1:]
        self.at_time(now + self.case["posting"], lambda then: self.posted(device, ops, op, target, rest, then))

    def posted(
        self, device: int, ops: tuple[Op, ...], op: Op, target: int, rest: list[tuple[Op, int]], now: Fraction
    ) -> None:
        kind, stage, m = op
        boundary = stage if kind == "F" else stage - 1
        latency, occupancy = self.case["message"][device, target, m, self.case["routes"][m][boundary][0]]
        go_on = now
        match self.case["mode"]:
            case "none":
                self.depart(op, target, Fraction(0), Fraction(0), now)
            case "latency":
                self.depart(op, target, Fraction(0), latency + occupancy, now)
            case "blocking":
                self.depart(op, target, Fraction(0), latency + occupancy, now)
                go_on = now + latency + occupancy
            case "link":
                path = [
                    (device, target),
                    *(name for name, pairs in self.case["shared"].items() if (device, target) in pairs),
                ]
                self.requests[op] = (path, lambda then: self.depart(op, target, occupancy, occupancy + latency, then))
                position = (self.at[device], ops.index(op))
                self.at_time(now, lambda then: self.ask_link(op, then), SERVICE, (device, *position))
        self.at_time(go_on, lambda then: self.send(device, ops, rest, then))

    # Links

    def ask_link(self, op: Op, now: Fraction) -> None:
        path, depart = self.requests[op]
        if self.links.join(op, path):
            depart(now)

    def depart(self, op: Op, target: int, hold: Fraction, delay: Fraction, now: Fraction) -> None:
        self.times[op] |= {"sent": now, "released": now + hold, "arrival": now + delay}
        self.at_time(now + delay, lambda then: self.arrive(op, target, then))
        if self.case["mode"] == "link":
            self.at_time(now + hold, lambda then: self.release(op, then))

    def release(self, op: Any, now: Fraction) -> None:
        for other in self.links.leave(op, self.requests[op][0]):
            path, depart = self.requests[other]
            if self.links.admit(other, path):
                depart(now)

    def arrive(self, op: Op, target: int, now: Fraction) -> None:
        self.inbox[target].add(op)
        self.wake(target, now)

    # Gradient synchronisation

    def synchronises(self, chunk: int) -> bool:
        return len(self.hosts[chunk]) * self.case["copies"] > 1 and self.case["sync"][chunk] > 0

    def synchronise_if_done(self, chunk: int, now: Fraction) -> None:
        if self.left[chunk] == 0 and self.synchronises(chunk):
            self.at_time(now, lambda then: self.ask_sync(chunk, then), SYNCHRONISATION, (chunk,))

    def ask_sync(self, chunk: int, now: Fraction) -> None:
        own = ("all-reduce", chunk)
        path = [own, *(("all-reduces on", device) for device in self.hosts[chunk]), *self.case["sync_path"][chunk]]
        self.requests[own] = (path, lambda then: self.start_sync(chunk, then))
        if self.links.join(own, path):
            self.start_sync(chunk, now)

    def start_sync(self, chunk: int, now: Fraction) -> None:
        self.syncs[chunk] = (now, now + self.case["sync"][chunk])
        self.at_time(self.syncs[chunk][1], lambda then: self.end_sync(chunk, then))

    def end_sync(self, chunk: int, now: Fraction) -> None:
        self.release(("all-reduce", chunk), now)
        for device in self.hosts[chunk]:
            self.awaits[device] -= 1
            self.update_if_done(device, now)

    # Optimiser

    def update_if_done(self, device: int, now: Fraction) -> None:
        whole = self.at[device] == len(self.case["orders"][device]) and not self.awaits[device]
        if whole and self.case["optimizer"][device] > 0:
            assert device not in self.updates
            self.updates[device] = (now, now + self.case["optimizer"][device])

    # Memory

    def hold(self, device: int, op: Op, starts: bool) -> None:
        kind, stage, m = op
        whole, at_input = self.case["stash"][m, self.case["routes"][m][stage][0]]
        if starts and kind == "F":
            self.level[device] += whole
            self.peaks[device] = max(self.peaks[device], self.level[device])
        if not starts:
            self.level[device] -= {"F": 0, "B": whole, "I": at_input, "W": whole - at_input}[kind]


def simulate(case: Case) -> dict[str, Any]:
    """Run a case.

    Returns
    -------
    dict
        ``times``: {op: {start, end, free, and sent, released, arrival if it sends}}; ``syncs``: {chunk: (start, end)};
        ``updates``: {device: (start, end)} of optimiser steps; ``peaks``: the most that each device's stash held;
        ``makespan``.

    Raises
    ------
    Stuck
        If the order deadlocks.
    """
    run = Simulation(case)
    run.run()
    ends = [times["free"] for times in run.times.values()] + [end for _, end in run.syncs.values()]
    ends += [end for _, end in run.updates.values()]
    return {
        "times": run.times, "syncs": run.syncs, "updates": run.updates, "peaks": run.peaks,
        "makespan": max(ends, default=Fraction(0)),
    }  # fmt: skip


def read(schedule: Schedule, problem: Problem, stash: Stash | None = None) -> Case:
    """The raw data of a schedule and its problem as a case; ``stash`` replaces the problem's activations if given."""
    stash = stash or problem.stash
    placement, network = schedule.placement, problem.network
    routes = {
        m: [(int(chunk), int(device)) for chunk, device in placement.routes[number]]
        for m, number in enumerate(placement.route_of)
    }
    hosts: dict[int, set[int]] = {}
    for route in placement.routes:
        for chunk, device in route:
            hosts.setdefault(int(chunk), set()).add(int(device))
    profile = {m: int(problem.profile_of[m]) for m in routes}
    orders = []
    for device in range(len(schedule.offsets) - 1):
        slots: list[tuple[Op, ...]] = []
        for row in range(int(schedule.offsets[device]), int(schedule.offsets[device + 1])):
            op = ("FIWB"[int(schedule.kind[row])], int(schedule.stage[row]), int(schedule.microbatch[row]))
            slots.append((*slots.pop(), op) if schedule.joined[row] else (op,))
        orders.append(slots)
    devices = range(len(orders))
    return {
        "routes": routes,
        "hosts": hosts,
        "orders": orders,
        "work": {
            (letter, stage, m): Fraction(int(problem.durations[profile[m], chunk, number]))
            for m, route in routes.items()
            for stage, (chunk, _) in enumerate(route)
            for number, letter in enumerate("FIWB")
        },
        "message": {
            (i, j, m, chunk): (
                Fraction(int(network.latency[network.link[i, j]])),
                Fraction(int(network.occupancy[profile[m], chunk, network.link[i, j]])),
            )
            for i in devices
            for j in devices
            for m in routes
            for chunk, _ in routes[m]
        },
        "mode": str(problem.communication),
        "shared": {f"shared {n} {name}": set(pairs) for n, (name, pairs) in enumerate(network.shared)},
        "servers": {f"shared {n} {network.shared[n][0]}": servers for n, servers in enumerate(network.servers)},
        "launch": Fraction(problem.launch),
        "posting": Fraction(problem.posting),
        "overlap": problem.overlap,
        "sync": {chunk: Fraction(int(cost)) for chunk, cost in enumerate(problem.sync)},
        "optimizer": [Fraction(ticks) for ticks in problem.optimizer or [0] * len(orders)],
        "sync_path": {
            chunk: [f"shared {n} {network.shared[n][0]}" for n in (problem.sync_path or [()] * len(hosts))[chunk]]
            if problem.communication == "link"
            else []
            for chunk in hosts
        },
        "copies": problem.copies,
        "stash": {
            (m, chunk): (
                Fraction(int(stash.held[profile[m], chunk])),
                Fraction(int(stash.freed_at_input[profile[m], chunk])),
            )
            for m in routes
            for chunk, _ in routes[m]
        },
    }


def columns(schedule: Schedule, result: dict[str, Any]) -> dict[str, list[Fraction]]:
    """A result as the columns of a timeline: start, end, free, sent, released, arrival, -1 where nothing is sent."""
    ops = [
        ("FIWB"[kind], stage, m)
        for kind, stage, m in zip(
            schedule.kind.tolist(), schedule.stage.tolist(), schedule.microbatch.tolist(), strict=True
        )
    ]
    names = ("start", "end", "free", "sent", "released", "arrival")
    return {name: [result["times"][op].get(name, Fraction(-1)) for op in ops] for name in names}
