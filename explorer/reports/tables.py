"""Rich tables of evaluations and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.evaluation.checker import Violation
from explorer.evaluation.reasons import shares
from explorer.evaluation.results import LEVELS, Comparison, Evaluation, overflowing
from explorer.evaluation.steady import SteadyState
from explorer.reports import numbers
from schedules.steady import Asynchrony

MANY = 24
"""Devices up to which a table shows them all."""


def evaluation(result: Evaluation) -> RenderableType:
    """Everything that is known of one schedule: three levels, totals, devices, cautions."""
    return Group(heading(result), _levels(result), _totals(result), devices(result), *cautions(result.cautions))


def heading(result: Evaluation) -> Text:
    """What was evaluated, under which costs, and how."""
    shown = ", ".join(f"{key} {value}" for key, value in result.parameters.items() if value is not None)
    text = Text.assemble((result.name, "bold"), f"  {shown}\n", costs(result))
    text.append(f"\ncommunication: {result.problem.communication}; {_exactness(result)}", "dim")
    return text


def costs(result: Evaluation) -> str:
    """What is computed and sent, in one line."""
    case, unit = result.case, result.problem.time.unit
    kinds = {"F": case.forward, "I": case.input_grad, "W": case.weight_grad}
    if not result.schedule.splits_backward:
        kinds = {"F": case.forward, "B": case.backward}
    share = ", ".join(f"{kind} {numbers.time(time, unit)}" for kind, time in kinds.items())
    return f"{result.problem.title}: a microbatch takes {share} of each device{_transfers(result)}"


def _transfers(result: Evaluation) -> str:
    """How long a message travels, its waits for a link left out."""
    ran, time = result.timeline, result.problem.time
    sent = ran.sent >= 0
    if not sent.any():
        return ""
    took = ran.arrival[sent] - ran.sent[sent]
    ends = [numbers.time(time.value(int(ticks)), time.unit) for ticks in (took.min(), took.max())]
    return f", a transfer {ends[0]}" if ends[0] == ends[1] else f", a transfer {ends[0]} to {ends[1]}"


def _exactness(result: Evaluation) -> str:
    problem = result.problem
    engine = result.engine + (f", confirmed by {result.confirmed_by}" if result.confirmed_by else "")
    if not problem.time.rounds:
        return f"exact; engine: {engine}"
    error = numbers.time(problem.rounding, problem.time.unit)
    return f"durations rounded by at most {error}, exact from there; engine: {engine}"


def _levels(result: Evaluation) -> Table:
    table = Table(title="Three levels", title_justify="left")
    for column in ("level", "makespan", "bubble ratio", "peak activations"):
        table.add_column(column, justify="left" if column == "level" else "right")
    table.add_column("assumes", overflow="fold")
    unit = result.problem.time.unit
    for name in LEVELS:
        level = result.levels[name]
        peak = None if level.peak_activations is None else max(level.peak_activations)
        remark = level.remark or _execution_remark(result)
        table.add_row(
            name,
            numbers.time(level.makespan, unit),
            numbers.percent(level.bubble_ratio),
            numbers.plain(peak),
            remark,
        )
    return table


def _execution_remark(result: Evaluation) -> str:
    said = f"communication mode {result.problem.communication}"
    if result.steady is not None:
        said += ", these microbatches and their drain: what counts is the steady state"
    parts = ["gradient synchronisation"] * bool(result.timeline.syncs)
    parts += ["optimiser step"] * bool(result.timeline.updates)
    return said + (f", {' and '.join(parts)} included" if parts else "")


def _totals(result: Evaluation) -> Table:
    unit = result.problem.time.unit
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    if result.steady is not None and result.asynchrony is not None:
        _add_steady_state(table, result, result.steady, result.asynchrony)
    table.add_row("longest device span", numbers.time(result.longest_device_span, unit))
    if result.bound is not None:
        bound = numbers.time(result.problem.time.value(result.bound.ticks), unit)
        table.add_row("lower bound", f"{bound} ({result.bound.reason}); gap {numbers.percent(result.gap)}")
    table.add_row("mean of a device", _shares(result))
    parts = ", ".join(f"{part} {numbers.time(time, unit)}" for part, time in result.path_split.items() if time)
    table.add_row("critical path", parts or "nothing takes time")
    over, has = overflowing(result.devices, result.problem), result.problem.device_memory
    if over and has is not None:
        worst = max(over, key=lambda device: device.peak_memory or 0)
        said = f"{len(over)} of {len(result.devices)} devices need more than the {numbers.size(has)} that they have, "
        said += f"device {worst.device} the most: {numbers.size(worst.peak_memory)}"
        table.add_row("memory", Text(said, "bold red"))
        table.add_row(
            "",
            "smaller microbatches, more devices, more tensor parallelism, recomputation or another schedule need less",
        )
    limit = result.problem.memory_limit
    if limit is not None:
        verdict, style = ("does not fit", "bold red") if result.fits_memory is False else ("fits", "green")
        table.add_row("memory limit", Text(f"{limit.text}: {verdict}", style))
    return table


def _add_steady_state(table: Table, result: Evaluation, steady: SteadyState, rule: Asynchrony) -> None:
    unit = result.problem.time.unit
    table.add_row("steady state", f"one microbatch every {numbers.time(steady.period, unit)}, for ever; {rule.remark}")
    table.add_row(
        "update of the weights",
        "every microbatch" if rule.update_every == 1 else f"every {rule.update_every} microbatches",
    )
    table.add_row("weight versions", ", ".join(map(str, rule.weight_versions)))
    table.add_row("staleness in updates", ", ".join(map(_range, rule.staleness)))


def _shares(result: Evaluation) -> str:
    """The mean over devices of what their time goes to."""
    time = result.problem.time
    found = shares(result.timeline, result.problem)
    return ", ".join(f"{share} {numbers.time(ticks * time.tick, time.unit)}" for share, ticks in found.items() if ticks)


def _range(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"


def devices(result: Evaluation) -> Table:
    """One line a device."""
    unit = result.problem.time.unit
    in_bytes = result.problem.bytes is not None
    table = Table(title="Devices", title_justify="left")
    columns = ["device", "busy", "idle", "exposed communication", "peak activations", "share of the model"]
    for column in columns + (["static memory", "peak memory"] if in_bytes else []):
        table.add_column(column, justify="right", overflow="fold")
    shown = result.devices
    if len(shown) > MANY:
        table.caption = f"{len(shown)} devices, the first and last {MANY // 2} shown; --json has all"
        shown = (*shown[: MANY // 2], *shown[-MANY // 2 :])
    for place, device in enumerate(shown):
        cells = [
            str(device.device),
            numbers.time(device.busy, unit),
            numbers.time(device.idle, unit),
            numbers.time(device.exposed_communication, unit),
            numbers.plain(device.peak_activations),
            numbers.percent(device.resident_share),
        ]
        if in_bytes:
            cells += [numbers.size(device.static_memory), numbers.size(device.peak_memory)]
        table.add_row(*cells, end_section=len(result.devices) > MANY and place == MANY // 2 - 1)
    return table


def cautions(said: Iterable[str]) -> list[Text]:
    """One line each."""
    return [Text.assemble(("note: ", "yellow"), caution) for caution in said]


def comparison(result: Comparison, width: int = 160) -> RenderableType:
    """All schedules side by side, the fastest that fits first, with their places at each level.

    Parameters
    ----------
    width
        Of the terminal: where it is narrow, the columns of least use are left out.
    """
    parts: list[RenderableType] = []
    if result.rows:
        parts += [*_synchronous(result, width), *_changes(result)]
    if result.asynchronous:
        parts += _asynchronous(result, width)
    if result.inapplicable:
        parts.append(Text("Not for this problem:", "dim"))
        parts += [Text(f"  {name}: {why}", "dim") for name, why in result.inapplicable.items()]
    return Group(*parts, *cautions(shared_cautions(result)))


def _title(row: Evaluation) -> str:
    devices, microbatches = (_count(row.parameters[key], key) for key in ("devices", "microbatches"))
    return f"{devices}, {microbatches}, communication {row.problem.communication}\n{costs(row)}"


def _count(number: object, of: str) -> str:
    return f"{number} {of if number != 1 else of[:-1]}"


DROPPED_FIRST = (
    "share of the model", "table", "formula", "peak memory", "period", "peak activations", "staleness",
)  # fmt: skip
"""Columns of a comparison that go, in this order, where the terminal is too narrow."""


def _synchronous(result: Comparison, width: int) -> list[RenderableType]:
    limited = any(row.fits_memory is not None for row in result.rows)
    table, dropped = fitted(_title(result.rows[0]), _columns(result, limited), width, DROPPED_FIRST)
    legend = (
        "formula, table, execution: bubble ratio, and in brackets the place by makespan at that level; ▲ better and "
        f"▼ worse than at the level before.{dropped}"
    )
    return [table, Text(legend, "dim italic"), *(_fastest_that_fits(result) if limited else [])]


def fitted(
    title: str,
    columns: dict[str, list[str | Text]],
    width: int,
    dropped_first: Sequence[str],
    left: Sequence[str] = ("schedule",),
) -> tuple[Table, str]:
    """A table of as many columns as fit, and a sentence that names those that do not."""
    dropped = []
    for name in dropped_first:
        if _width(columns) > width and name in columns:
            dropped.append(name)
            del columns[name]
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=name != "schedule")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table, f" Too narrow here for {', '.join(dropped)}." if dropped else ""


def _width(columns: Mapping[str, Sequence[str | Text]]) -> int:
    cells = (max(cell_len(str(cell)) for cell in (name, *column)) for name, column in columns.items())
    return sum(cells) + 3 * len(columns) + 1


def _columns(result: Comparison, limited: bool) -> dict[str, list[str | Text]]:
    """What is known of each row, by heading."""
    unit, best = result.rows[0].problem.time.unit, result.rows[0].makespan
    ranks = {level: result.ranks(level) for level in LEVELS}
    moves = {"table": result.moves("formula", "table"), "execution": result.moves("table", "execution")}
    columns: dict[str, list[str | Text]] = {
        "schedule": [row.name for row in result.rows],
        "makespan": [numbers.time(row.makespan, unit) for row in result.rows],
        "over the first": [numbers.percent(row.makespan / best - 1 if best else None) for row in result.rows],
    }
    for level in LEVELS:
        columns[level] = [_bubble(row, level, ranks[level], moves.get(level, {})) for row in result.rows]
    columns["peak activations"] = [
        numbers.plain(max(device.peak_activations for device in row.devices)) for row in result.rows
    ]
    in_bytes = result.rows[0].problem.bytes is not None
    columns["peak memory" if in_bytes else "share of the model"] = [_memory(row) for row in result.rows]
    if limited:
        columns["fits"] = [
            Text("no", "red") if row.fits_memory is False else Text("yes", "green") for row in result.rows
        ]
    return columns


def _fastest_that_fits(result: Comparison) -> list[Text]:
    fitting = result.fitting
    if not fitting:
        least = min(
            result.rows, key=lambda row: max(device.peak_memory or device.peak_activations for device in row.devices)
        )
        return [
            Text(f"None fits the memory; {least.name} needs the least, {_memory_of(least)} on a device.", "bold red")
        ]
    if len(fitting) == len(result.rows):
        return []
    return [Text(f"The fastest that fits the memory is {fitting[0].name}; those that do not stand below.", "bold")]


def _memory_of(row: Evaluation) -> str:
    if row.problem.bytes is not None:
        return _memory(row)
    return f"{numbers.plain(max(device.peak_activations for device in row.devices))} activations"


def _memory(row: Evaluation) -> str:
    """The most bytes on a device where costs are modelled, else the largest share of the model."""
    if row.problem.bytes is None:
        return numbers.percent(max(device.resident_share for device in row.devices))
    return numbers.size(max(device.peak_memory or 0 for device in row.devices))


def _asynchronous(result: Comparison, width: int) -> list[RenderableType]:
    """Schedules without a flush, by throughput; the best schedule with one stands last for comparison."""
    rows = [*result.asynchronous, *result.rows[:1]]
    unit = rows[0].problem.time.unit
    columns: dict[str, list[str | Text]] = {
        "schedule": [row.name if row.asynchrony else f"{row.name}, with its flush" for row in rows],
        "throughput" + (" (1/s)" if unit == "s" else ""): [numbers.plain(row.throughput, 4) for row in rows],
        "period": [numbers.time(1 / row.throughput if row.throughput else None, unit) for row in rows],
        "weight versions": [str(max(row.asynchrony.weight_versions)) if row.asynchrony else "1" for row in rows],
        "staleness": [_staleness(row.asynchrony) for row in rows],
        "peak activations": [numbers.plain(max(d.peak_activations for d in row.devices)) for row in rows],
        "share of the model" if rows[0].problem.bytes is None else "peak memory": [_memory(row) for row in rows],
    }
    title = "Without a flush, in the steady state" + ("" if result.rows else f": {_title(rows[0])}")
    table, dropped = fitted(title, columns, width, DROPPED_FIRST)
    legend = f"throughput: microbatches in a unit of time; period: the time of each.{dropped}"
    return [table, Text(legend, "dim italic")]


def _staleness(rule: Asynchrony | None) -> str:
    if rule is None:
        return "0"
    return _range((min(least for least, _ in rule.staleness), max(most for _, most in rule.staleness)))


def shared_cautions(result: Comparison) -> Iterator[str]:
    """Each caution once, with the schedules that it concerns."""
    said: dict[str, list[str]] = {}
    for row in (*result.rows, *result.asynchronous):
        for caution in row.cautions:
            said.setdefault(caution, []).append(row.name)
    for caution, names in said.items():
        yield caution if len(names) == len(result.rows) + len(result.asynchronous) else f"{', '.join(names)}: {caution}"


def _bubble(row: Evaluation, level: str, ranks: Mapping[str, int], moves: Mapping[str, tuple[int, int]]) -> Text:
    text = Text(numbers.percent(row.levels[level].bubble_ratio))
    if row.name in ranks:
        text.append(f" [{ranks[row.name]}]", "dim")
    if row.name in moves:
        before, after = moves[row.name]
        text.append(*((" ▲", "green") if after < before else (" ▼", "red")))
    return text


def _changes(result: Comparison) -> list[Text]:
    lines = []
    for coarse, fine in (("formula", "table"), ("table", "execution")):
        moves = result.moves(coarse, fine)
        if moves:
            said = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in moves.items())
            lines.append(Text.assemble((f"Ranking changes from {coarse} to {fine}: ", "bold"), said))
        else:
            lines.append(Text(f"The ranking is the same by {coarse} and by {fine}.", "dim"))
    return lines


def violations(file: str, found: Sequence[Violation]) -> RenderableType:
    """What is wrong with a schedule, or that nothing is."""
    if not found:
        return Text(f"{file}: valid", "green")
    table = Table(title=f"{file}: {_count(len(found), 'violations')}", title_justify="left", title_style="red")
    for column in ("kind", "where", "what"):
        table.add_column(column, overflow="fold")
    for violation in found:
        table.add_row(violation.kind, violation.where, violation.message)
    return table


def listing(name: str, rows: Sequence[Mapping[str, object]]) -> RenderableType:
    """A catalogue: a line for each entry."""
    table = Table(title=name, title_justify="left")
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_listed(value) for value in row.values()))
    return table


def _listed(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={shown}" for key, shown in value.items())
    return str(value)
