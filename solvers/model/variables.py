"""The variable records that all parts of the model read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, pairwise

from ortools.sat.python import cp_model

from explorer.core.dataflow import Product
from explorer.core.errors import Inapplicable
from explorer.core.op import Op
from explorer.core.problem import Problem
from solvers.scope import Scope, alike
from solvers.work import Costs, Occupancy, Send, output_of, owed_syncs


@dataclass(frozen=True, eq=False)
class Task:
    """An occupancy and when it starts, ``start[2F0]``; ``interval`` is all the time that it keeps its device."""

    occupancy: Occupancy
    start: cp_model.IntVar
    interval: cp_model.IntervalVar

    @property
    def end(self) -> cp_model.LinearExpr:
        """When its ops end."""
        return self.start + self.occupancy.duration

    @property
    def free(self) -> cp_model.LinearExpr:
        """When its device may go on."""
        return self.start + self.occupancy.busy


@dataclass(frozen=True, eq=False)
class Transfer:
    """A send and when it leaves: ``sent[2F0]`` if it can wait for a link, else (``own`` is None) when it is ready."""

    send: Send
    task: Task
    own: cp_model.IntVar | None

    @property
    def ready(self) -> cp_model.LinearExpr:
        """When it could leave."""
        return self.task.start + self.send.offset

    @property
    def sent(self) -> cp_model.LinearExpr:
        """When it leaves."""
        return self.ready if self.own is None else self.own

    @property
    def released(self) -> cp_model.LinearExpr:
        """When its links may serve the next."""
        return self.sent + self.send.hold

    @property
    def arrival(self) -> cp_model.LinearExpr:
        """When its data is there."""
        return self.sent + self.send.delay


@dataclass(frozen=True, eq=False)
class Turn:
    """Which of two transfers that share a link is served first: ``first`` if ``literal``, always so if that is None.

    ``alone`` says whether the other must wait for its end: some link that both use serves one at a time.
    """

    first: Transfer
    second: Transfer
    literal: cp_model.IntVar | None
    alone: bool = True

    @property
    def one_sender(self) -> bool:
        """Whether the same device sends both."""
        return self.first.send.source == self.second.send.source


@dataclass(frozen=True, eq=False)
class Synchronisation:
    """A chunk's gradient all-reduce, ``sync[c]``, and when its replicas' gradients are there, ``gradients[c]``."""

    chunk: int
    hosts: tuple[int, ...]
    ticks: int
    ready: cp_model.IntVar
    start: cp_model.IntVar

    @property
    def end(self) -> cp_model.LinearExpr:
        """When it is done."""
        return self.start + self.ticks


@dataclass(frozen=True, eq=False)
class Step:
    """A device's optimiser step, ``step[d]``."""

    device: int
    ticks: int
    start: cp_model.IntVar

    @property
    def end(self) -> cp_model.LinearExpr:
        """When it is done."""
        return self.start + self.ticks


@dataclass(frozen=True, eq=False)
class Model:
    """A CP-SAT model in the making.

    Parameters
    ----------
    cp
        Where parts add their rows.
    problem, scope, costs
        What is modelled.
    tasks
        For each device, what runs there.
    task_of
        The task of each op.
    maker
        For each (product, stage, microbatch), the op that makes it.
    transfers
        By sending op.
    links
        The transfers that use a link, for each link that more than one uses and that is held for some time; a link is a
        directed pair of devices or a shared resource.
    servers
        How many transfers each of those serves at a time.
    turns
        Who goes first on the links, for each pair of transfers that is decided in the model; pairs of one sender whose
        order is neither free nor known are left to pins.
    syncs
        One for each chunk with replicas.
    sync_first
        For each pair of positions in ``syncs`` that have a host or a link in common, whether the former goes first.
    reduced
        Those that hold a link while they run, for each link that a transfer or another one uses too.
    before_sync
        For each transfer and chunk whose all-reduce holds a link of its path, whether the transfer goes first.
    steps
        One for each device whose optimiser takes time.
    value
        The objective.
    """

    cp: cp_model.CpModel
    problem: Problem
    scope: Scope
    costs: Costs
    tasks: tuple[tuple[Task, ...], ...]
    task_of: Mapping[Op, Task]
    maker: Mapping[tuple[Product, int, int], Op]
    transfers: Mapping[Op, Transfer]
    links: Mapping[str, tuple[Transfer, ...]]
    servers: Mapping[str, int]
    turns: tuple[Turn, ...]
    syncs: tuple[Synchronisation, ...]
    sync_first: Mapping[tuple[int, int], cp_model.IntVar]
    reduced: Mapping[str, tuple[Synchronisation, ...]]
    before_sync: Mapping[tuple[Op, int], cp_model.IntVar]
    steps: tuple[Step, ...]
    value: cp_model.IntVar

    def all_tasks(self) -> Iterator[Task]:
        """Every task, device by device."""
        return (task for device in self.tasks for task in device)

    def alone(self, one: Transfer | Synchronisation, other: Synchronisation) -> bool:
        """Whether two may never run at once: some link that both hold serves one at a time, or they share a host."""
        if isinstance(one, Synchronisation) and set(one.hosts) & set(other.hosts):
            return True
        users: Mapping[str, tuple[Transfer | Synchronisation, ...]]
        users = self.reduced if isinstance(one, Synchronisation) else self.links
        return any(
            self.servers[name] == 1 and other in syncs and one in users[name] for name, syncs in self.reduced.items()
        )

    def queued(self) -> Iterator[tuple[Transfer, cp_model.IntVar]]:
        """Every transfer that can wait for a link, and its variable."""
        return ((transfer, transfer.own) for transfer in self.transfers.values() if transfer.own is not None)


def declare(problem: Problem, scope: Scope) -> Model:
    """Make the variables: every time lies in 0..horizon, the objective in floor..horizon."""
    cp = cp_model.CpModel()
    costs = Costs(problem, scope.placement)
    tasks = tuple(
        tuple(_task(cp, costs.occupancy(entry), scope.horizon) for entry in entries) for entries in scope.entries
    )
    task_of = {op: task for device in tasks for task in device for op in task.occupancy.ops}
    syncs = tuple(_sync(cp, problem, scope, chunk) for chunk in owed_syncs(problem, scope.placement))
    reduced = _reduced(problem, syncs)
    loads = _loads(problem, (task for device in tasks for task in device), reduced)
    transfers = _transfers(cp, task_of, loads, scope.horizon)
    links = {name: tuple(transfers[send.op] for send in sends) for name, sends in loads.items()}
    several = {one.name: one.servers for one in problem.network.resources}
    servers = {name: several.get(name, 1) for name in links}
    reduced = {name: holding for name, holding in reduced.items() if name in links}
    return Model(
        cp=cp,
        problem=problem,
        scope=scope,
        costs=costs,
        tasks=tasks,
        task_of=task_of,
        maker={made: op for op in task_of if (made := output_of(op)) is not None},
        transfers=transfers,
        links=links,
        servers=servers,
        turns=tuple(_turns(cp, problem, scope, links, servers)),
        syncs=syncs,
        sync_first={
            (i, j): cp.new_bool_var(f"sync_first[{syncs[i].chunk},{syncs[j].chunk}]")
            for i, j in combinations(range(len(syncs)), 2)
            if set(syncs[i].hosts) & set(syncs[j].hosts)
            or any(syncs[i] in holding and syncs[j] in holding for holding in reduced.values())
        },
        reduced=reduced,
        before_sync={
            (op, chunk): cp.new_bool_var(f"before_sync[{op},{chunk}]")
            for op, chunk in sorted(
                {
                    (transfer.send.op, sync.chunk)
                    for name, holding in reduced.items()
                    for sync in holding
                    for transfer in links[name]
                }
            )
        },
        steps=tuple(
            Step(device, ticks, cp.new_int_var(0, scope.horizon, f"step[{device}]"))
            for device, ticks in enumerate(problem.steps)
            if ticks
        ),
        value=cp.new_int_var(scope.floor, scope.horizon, scope.objective.value),
    )


def _task(cp: cp_model.CpModel, occupancy: Occupancy, horizon: int) -> Task:
    start = cp.new_int_var(0, horizon, f"start[{occupancy}]")
    return Task(
        occupancy, start, cp.new_fixed_size_interval_var(start, occupancy.busy, f"on {occupancy.device}[{occupancy}]")
    )


def _reduced(problem: Problem, syncs: Iterable[Synchronisation]) -> dict[str, tuple[Synchronisation, ...]]:
    """The all-reduces that hold each shared resource."""
    found: defaultdict[str, list[Synchronisation]] = defaultdict(list)
    for sync in syncs if problem.syncs_compete else ():
        for position in sorted(set(problem.sync_path[sync.chunk])):
            found[problem.network.shared[position][0]].append(sync)
    return {name: tuple(holding) for name, holding in found.items()}


def _loads(
    problem: Problem, tasks: Iterable[Task], reduced: Mapping[str, tuple[Synchronisation, ...]]
) -> dict[str, list[Send]]:
    """What passes through each link on which transfers can wait for one another."""
    loads: defaultdict[str, list[Send]] = defaultdict(list, {name: [] for name in reduced})
    for task in tasks:
        for send in task.occupancy.sends:
            loads[f"{send.source}->{send.target}"].append(send)
            for name, pairs in problem.network.shared:
                if (send.source, send.target) in pairs:
                    loads[name].append(send)
    return {
        name: sends
        for name, sends in loads.items()
        if len(sends) + len(reduced.get(name, ())) > 1 and (name in reduced or any(send.hold for send in sends))
    }


def _transfers(
    cp: cp_model.CpModel, task_of: Mapping[Op, Task], loads: Mapping[str, list[Send]], horizon: int
) -> dict[Op, Transfer]:
    contended = {send.op for sends in loads.values() for send in sends}
    transfers = {}
    for task in dict.fromkeys(task_of.values()):
        for send in task.occupancy.sends:
            own = cp.new_int_var(0, horizon, f"sent[{send.op}]") if send.op in contended else None
            transfers[send.op] = Transfer(send, task, own)
    return transfers


def _turns(
    cp: cp_model.CpModel,
    problem: Problem,
    scope: Scope,
    links: Mapping[str, tuple[Transfer, ...]],
    servers: Mapping[str, int],
) -> Iterator[Turn]:
    """The turns of all links, those that serve one at a time first.

    Raises
    ------
    Inapplicable
        If a sender whose order is to be chosen takes no time: when it starts would not tell its place in the order.
    """
    done: set[tuple[Op, Op]] = set()
    for name, transfers in sorted(links.items(), key=lambda link: servers[link[0]] > 1):
        ordered = sorted(transfers, key=lambda transfer: transfer.send.source)
        alone = servers[name] == 1
        for first, second, known in _pairs(problem, scope, ordered, every=not alone):
            pair = first.send.op, second.send.op
            if pair in done:
                continue
            done.add(pair)
            turn = Turn(first, second, None if known else cp.new_bool_var(f"first[{pair[0]},{pair[1]}]"), alone)
            if (
                scope.free_order
                and turn.one_sender
                and not known
                and 0 in (first.task.occupancy.busy, second.task.occupancy.busy)
            ):
                raise Inapplicable(
                    f"a search with contended links needs ops that take time: {pair[0]} or {pair[1]} takes none"
                )
            yield turn


def _pairs(
    problem: Problem, scope: Scope, transfers: list[Transfer], *, every: bool
) -> Iterator[tuple[Transfer, Transfer, bool]]:
    """Pairs that need a turn, and whether the first one is known to go first.

    ``every`` asks for those of one sender too whose order pins will state, but not for those of one pair of devices.
    """
    class_of = {t.send.op: alike(problem, scope.placement, t.send.op) for t in transfers}
    classes: defaultdict[object, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        classes[class_of[transfer.send.op]].append(transfer)
    if scope.identical_in_order:
        for members in classes.values():
            for first, second in pairwise(sorted(members, key=lambda transfer: transfer.send.op.microbatch)):
                yield first, second, True
    for first, second in combinations(transfers, 2):
        ops = first.send.op, second.send.op
        if first.task is second.task:
            in_order = first.task.occupancy.ops.index(ops[0]) == 0
            yield (first, second, True) if in_order else (second, first, True)
            continue
        one_sender = first.send.source == second.send.source
        if every and one_sender and first.send.target == second.send.target:
            continue
        known = scope.identical_in_order and class_of[ops[0]] == class_of[ops[1]]
        if every or not one_sender or (scope.free_order and not known):
            yield first, second, False


def _sync(cp: cp_model.CpModel, problem: Problem, scope: Scope, chunk: int) -> Synchronisation:
    return Synchronisation(
        chunk,
        scope.placement.hosts[chunk],
        int(problem.sync[chunk]),
        cp.new_int_var(0, scope.horizon, f"gradients[{chunk}]"),
        cp.new_int_var(0, scope.horizon, f"sync[{chunk}]"),
    )
