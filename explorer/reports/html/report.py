"""The report: one page that a team can pass on, from the question to the commands that give the same again."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from importlib.metadata import version
from pathlib import Path

from explorer.evaluation.results import Comparison, Evaluation
from explorer.reports import numbers, tables
from explorer.reports.figures import caption, plot
from explorer.reports.figures import frontier as figures
from explorer.reports.html import comparison as fragments
from explorer.reports.html.page import VIEWER, page
from explorer.reports.recommendation import Recommendation
from solvers.pareto import Frontier

PACKAGES = ("pipeline-schedule-explorer", "ortools", "numpy", "numba")
MOST_TIMELINES = 4


@dataclass(frozen=True)
class Origin:
    """Where a report comes from.

    Parameters
    ----------
    setting
        What was given, by name: the system, the model, ...
    commands
        For each command line what it gives.
    files
        What they read besides what is installed.
    """

    setting: Mapping[str, str]
    commands: Mapping[str, str]
    files: Sequence[Path] = ()


def report(
    result: Comparison, advice: Recommendation, origin: Origin, frontier: Frontier | None = None
) -> Iterator[str]:
    """The parts of the page.

    Parameters
    ----------
    result
        At least one schedule that flushes.
    advice
        As `explorer.reports.recommendation.recommend` gives it.
    frontier
        Makespan against memory, if it was searched; drawing it needs matplotlib.
    """
    shown = fragments.timelines(_first(result, advice))
    question = _question(result)
    body = [
        f"<h1>{escape(question)}</h1>",
        "<h2>Recommendation</h2>",
        _advice(advice),
        "<h2>System and costs</h2>",
        _setting(result, origin.setting),
        "<h2>Comparison</h2>",
        fragments.table(result),
        *([] if frontier is None else ["<h2>Makespan against memory</h2>", _frontier(frontier)]),
        "<h2>Timelines</h2>",
        _left_out(result, len(shown)),
        VIEWER,
        "<h2>How to get the same again</h2>",
        _origin(origin),
    ]
    return page(question, "\n".join(body), shown)


def _first(result: Comparison, advice: Recommendation) -> list[Evaluation]:
    """What is shown as timelines: the recommended schedule, then the others in their order."""
    first = [row for row in result.rows if row is advice.chosen]
    return [*first, *(row for row in result.rows if row is not advice.chosen)][:MOST_TIMELINES]


def _left_out(result: Comparison, shown: int) -> str:
    others = len(result.rows) - shown
    return f'<p class="note">{others} more schedules in the table only.</p>' if others else ""


def _question(result: Comparison) -> str:
    first = result.rows[0]
    limit = first.problem.memory_limit
    within = f" within {limit.text} of memory" if limit is not None and limit.text else ""
    if limit is not None and not limit.in_bytes:
        within = f" with at most {limit.text} activations"
    return (
        f"Which pipeline schedule? {first.problem.title[0].upper()}{first.problem.title[1:]}, "
        f"{first.parameters['microbatches']} microbatches on {first.parameters['devices']} devices{within}"
    )


def _advice(advice: Recommendation) -> str:
    name = f"<p>Take <strong>{escape(advice.chosen.name)}</strong>.</p>" if advice.chosen else ""
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in advice.reasons)
    return f'<div class="recommendation">{name}<ul>{reasons}</ul></div>'


def _setting(result: Comparison, given: Mapping[str, str]) -> str:
    first = result.rows[0]
    problem = first.problem
    lines = {**given, "costs": caption.costs(first)}
    if problem.device_memory is not None:
        lines["memory of a device"] = numbers.size(problem.device_memory)
    if problem.memory_limit is not None:
        lines["memory limit"] = problem.memory_limit.text
    lines["exactness"] = (
        f"durations rounded by at most {numbers.time(problem.rounding, problem.time.unit)}, exact from there"
        if problem.time.rounds
        else "exact"
    )
    engines = {row.confirmed_by for row in result.rows}
    lines["engine"] = ", ".join(sorted({row.engine for row in result.rows})) + (
        "; every timeline confirmed by cp-sat" if engines == {"cp-sat"} else ""
    )
    notes = "".join(f'<p class="note">Note: {escape(said)}</p>' for said in tables.shared_cautions(result))
    return _definitions(lines) + notes


def _frontier(result: Frontier) -> str:
    """The figure, and its points as a table."""
    drawn = figures.curve(result)
    picture = base64.b64encode(plot.rendered(".svg", lambda: figures.frontier(drawn))).decode()
    rows = "".join(
        f"<tr><td>{numbers.plain(Fraction(step.limit), 4)}</td><td>{step.best:.6g}</td><td>{step.bound:.6g}</td>"
        f"<td>{'proved' if step.proved else 'found'}</td></tr>"
        for step in drawn.steps
    )
    head = f"<th>{drawn.memory}</th><th>best {drawn.time}</th><th>bound</th><th>status</th>"
    return (
        f'<p class="note">Stages in a line, searched for {result.settings.time_limit:g} s.</p>'
        f'<img class="figure" alt="{escape(drawn.title)}" src="data:image/svg+xml;base64,{picture}">'
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _definitions(lines: Mapping[str, str]) -> str:
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="text">{escape(value)}</td></tr>' for name, value in lines.items()
    )
    return f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'


def _origin(origin: Origin) -> str:
    commands = "\n".join(f"{line}\n    # {what}" for line, what in origin.commands.items())
    versions = {name: version(name) for name in PACKAGES}
    lines = versions | {"Python": platform.python_version(), "machine": platform.platform()}
    lines |= {f"SHA-256 of {file}": hashlib.sha256(file.read_bytes()).hexdigest() for file in origin.files}
    return f"<pre>{escape(commands)}</pre>{_definitions(lines)}"
