"""Parts: what only one can use at a time."""

from __future__ import annotations

from solvers.model.variables import Model


def device_exclusive(model: Model) -> None:
    """``[start, free)`` of any two occupancies of one device do not overlap."""
    for tasks in model.tasks:
        model.cp.add_no_overlap([task.interval for task in tasks])


def link_exclusive(model: Model) -> None:
    """``[sent, sent + hold)`` of any two transfers over one link do not overlap; of n + 1 where it serves n at a time.

    The same of all-reduces that hold it.

    Redundant where the order of service is stated, by turns or by pins; stated once more for the link as a whole.
    """
    for name, transfers in model.links.items():
        intervals = [
            model.cp.new_fixed_size_interval_var(t.sent, t.send.hold, f"on {name}[{t.send.op}]")
            for t in transfers
            if t.send.hold
        ]
        intervals += [
            model.cp.new_fixed_size_interval_var(sync.start, sync.ticks, f"on {name}[all-reduce {sync.chunk}]")
            for sync in model.reduced.get(name, ())
        ]
        if model.servers[name] == 1:
            model.cp.add_no_overlap(intervals)
        else:
            model.cp.add_cumulative(intervals, [1] * len(intervals), model.servers[name])
