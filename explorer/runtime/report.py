"""What a run says: rich tables for people, plain values for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.runtime.measure import Measured


def as_json(name: str, run: Measured, notes: Iterable[str]) -> dict[str, Any]:
    """A run as plain JSON values; times in seconds."""
    schedule, predicted = run.schedule, run.predicted
    ops = [
        {
            "device": device,
            "op": str(schedule.op(row)),
            "predicted_start": int(predicted.start[row]) / 1e6,
            "predicted_end": int(predicted.end[row]) / 1e6,
            "start": float(run.start[row]),
            "end": float(run.end[row]),
        }
        for device in range(schedule.devices)
        for row in schedule.rows(device)
    ]
    return {
        "schedule": name,
        "devices": schedule.devices,
        "microbatches": schedule.microbatches,
        "predicted_makespan": run.predicted_makespan,
        "measured_makespan": run.makespan,
        "excess": run.excess,
        "gradients_equal": run.gradients_equal,
        "gradient_error": run.gradient_error,
        "loss_error": run.loss_error,
        "order_kept": run.order_kept,
        "notes": list(notes),
        "ops": ops,
    }


def summary(name: str, run: Measured, notes: Iterable[str]) -> RenderableType:
    """Totals, then each device."""
    schedule = run.schedule
    heading = Text.assemble((name, "bold"), f"  devices {schedule.devices}, microbatches {schedule.microbatches}")
    totals = Table(title="Predicted against measured", title_justify="left", show_header=False)
    totals.add_row("predicted makespan", _ms(run.predicted_makespan))
    totals.add_row("measured makespan", f"{_ms(run.makespan)}  ({run.excess:+.1%})")
    totals.add_row("gradients", _gradients(run))
    totals.add_row("order", "as in the table" if run.order_kept else "NOT as in the table")
    devices = Table(title="Devices", title_justify="left")
    for column in ("device", "ops", "predicted end", "measured end", "largest lag of an op"):
        devices.add_column(column, justify="right")
    for device in range(schedule.devices):
        rows = schedule.rows(device)
        part = slice(rows.start, rows.stop)
        devices.add_row(
            str(device),
            str(len(rows)),
            _ms(run.predicted.end[part].max() / 1e6),
            _ms(run.end[part].max()),
            _ms(run.lag[part].max()),
        )
    return Group(heading, totals, devices, *(Text(f"note: {note}", "yellow") for note in notes))


def op_by_op(run: Measured) -> RenderableType:
    """Every op, device by device in order."""
    table = Table(title="Op by op", title_justify="left")
    for column in ("device", "op", "predicted start", "measured start", "predicted end", "measured end", "lag"):
        table.add_column(column, justify="left" if column == "op" else "right")
    schedule = run.schedule
    for device in range(schedule.devices):
        for row in schedule.rows(device):
            times = (run.predicted.start[row] / 1e6, run.start[row], run.predicted.end[row] / 1e6, run.end[row])
            table.add_row(str(device), str(schedule.op(row)), *map(_ms, times), _ms(run.lag[row]))
        table.add_section()
    return table


def _gradients(run: Measured) -> str:
    if run.gradients_equal:
        return f"equal to the unsplit model's (largest relative difference {run.gradient_error:.0e})"
    return f"NOT those of the unsplit model: off by {run.gradient_error:.0e}, losses by {run.loss_error:.0e}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
