"""Rich tables of evaluations and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.evaluation.checker import Violation
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
    """What was evaluated, and how."""
    shown = ", ".join(f"{key} {value}" for key, value in result.parameters.items() if value is not None)
    text = Text.assemble((result.name, "bold"), f"  {shown}")
    text.append(f"\ncommunication: {result.problem.communication}; {_exactness(result)}", "dim")
    return text


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
    table.add_column("holds for", overflow="fold")
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
    return said + (", gradient synchronisation included" if result.timeline.syncs else "")


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
    parts = ", ".join(f"{part} {numbers.time(time, unit)}" for part, time in result.path_split.items() if time)
    table.add_row("critical path", parts or "nothing takes time")
    over, has = overflowing(result.devices, result.problem), result.problem.device_memory
    if over and has is not None:
        worst = max(over, key=lambda device: device.peak_memory or 0)
        said = f"{len(over)} of {len(result.devices)} devices need more than the {numbers.size(has)} that they have, "
        said += f"device {worst.device} the most: {numbers.size(worst.peak_memory)}"
        table.add_row("memory", Text(said, "bold red"))
    limit = result.problem.memory_limit
    if limit is not None:
        verdict = "fits" if result.fits_memory else "does not fit"
        table.add_row("memory limit", Text(f"{limit.text}: {verdict}", "green" if result.fits_memory else "bold red"))
    return table


def _add_steady_state(table: Table, result: Evaluation, steady: SteadyState, rule: Asynchrony) -> None:
    unit = result.problem.time.unit
    table.add_row("steady state", f"one microbatch every {numbers.time(steady.period, unit)}, for ever; {rule.remark}")
    table.add_row("update of the weights", f"every {rule.update_every} microbatches")
    table.add_row("weight versions", ", ".join(map(str, rule.weight_versions)))
    table.add_row("staleness in updates", ", ".join(map(_range, rule.staleness)))


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


def comparison(result: Comparison) -> RenderableType:
    """All schedules side by side, the fastest execution first, with their places at each level."""
    parts: list[RenderableType] = []
    if result.rows:
        parts += [_synchronous(result), *_changes(result)]
    if result.asynchronous:
        parts.append(_asynchronous(result))
    if result.inapplicable:
        parts.append(Text("Not for this problem:", "dim"))
        parts += [Text(f"  {name}: {why}", "dim") for name, why in result.inapplicable.items()]
    return Group(*parts, *cautions(_shared_cautions(result)))


def _title(row: Evaluation) -> str:
    parameters, communication = row.parameters, row.problem.communication
    return f"{parameters['devices']} devices, {parameters['microbatches']} microbatches, communication {communication}"


def _synchronous(result: Comparison) -> Table:
    first = result.rows[0]
    unit = first.problem.time.unit
    table = Table(
        title=_title(first),
        title_justify="left",
        caption="A place in brackets: the level's rank by makespan. ▲ better and ▼ worse than at the level before.",
        caption_justify="left",
    )
    table.add_column("schedule", no_wrap=True)
    for column in ("makespan", "over the best", "bubble: formula", "table", "execution", "peak activations"):
        table.add_column(column, justify="right")
    table.add_column("share of the model" if first.problem.bytes is None else "peak memory", justify="right")
    limited = first.problem.memory_limit is not None or first.problem.device_memory is not None
    if limited:
        table.add_column("fits")
    ranks = {level: result.ranks(level) for level in LEVELS}
    moves = {"table": result.moves("formula", "table"), "execution": result.moves("table", "execution")}
    for row in result.rows:
        cells: list[str | Text] = [
            row.name,
            numbers.time(row.makespan, unit),
            numbers.percent(row.makespan / first.makespan - 1 if first.makespan else None),
            *(_bubble(row, level, ranks[level], moves.get(level, {})) for level in LEVELS),
            numbers.plain(max(device.peak_activations for device in row.devices)),
            _memory(row),
        ]
        if limited:
            cells.append(Text("yes", "green") if row.fits_memory else Text("no", "red"))
        table.add_row(*cells)
    return table


def _memory(row: Evaluation) -> str:
    """The most bytes on a device where costs are modelled, else the largest share of the model."""
    if row.problem.bytes is None:
        return numbers.percent(max(device.resident_share for device in row.devices))
    return numbers.size(max(device.peak_memory or 0 for device in row.devices))


def _asynchronous(result: Comparison) -> Table:
    """Schedules without a flush, by throughput; the best schedule with one stands below for comparison."""
    rows = list(result.asynchronous)
    unit = rows[0].problem.time.unit
    table = Table(
        title="Without a flush, in the steady state" + ("" if result.rows else f": {_title(rows[0])}"),
        title_justify="left",
    )
    table.add_column("schedule", no_wrap=True)
    for column in ("microbatches per " + ("s" if unit == "s" else "unit of time"), "time per microbatch"):
        table.add_column(column, justify="right")
    memory = "share of the model" if rows[0].problem.bytes is None else "peak memory"
    for column in ("weight versions", "staleness", "peak activations", memory):
        table.add_column(column, justify="right")
    for row in [*rows, *result.rows[:1]]:
        rate, rule = row.throughput, row.asynchrony
        table.add_row(
            row.name if rule else f"{row.name} (with its flush)",
            numbers.plain(rate, 4),
            numbers.time(1 / rate if rate else None, unit),
            str(max(rule.weight_versions)) if rule else "1",
            _range((min(min(s) for s in rule.staleness), max(max(s) for s in rule.staleness))) if rule else "0",
            numbers.plain(max(device.peak_activations for device in row.devices)),
            _memory(row),
            end_section=row is rows[-1],
        )
    return table


def _shared_cautions(result: Comparison) -> Iterator[str]:
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
    table = Table(title=f"{file}: {len(found)} violations", title_justify="left", title_style="red")
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
