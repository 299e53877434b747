"""Reading when ops ran from profiler traces: Chrome's format, as PyTorch's profiler writes it, one file a rank.

Traces have hundreds of megabytes: events are read one by one, also from ``.gz`` files.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from explorer.core.errors import Malformed, UsageError
from explorer.core.op import Kind, Op

PYTORCH = r"PP:(?P<stage>\d+)(?P<kind>[FIWB])(?P<microbatch>\d+)"
"""How ``torch.distributed.pipelining`` labels what it does."""

KINDS = {
    "f": Kind.F, "forward": Kind.F, "fwd": Kind.F, "b": Kind.B, "backward": Kind.B, "bwd": Kind.B,
    "i": Kind.I, "input": Kind.I, "dgrad": Kind.I, "w": Kind.W, "weight": Kind.W, "wgrad": Kind.W,
}  # fmt: skip
"""The words that a pattern's group ``kind`` may match."""

_DIGITS = re.compile(r"[0-9]{1,9}")
_CHUNK = 1 << 20
_LONGEST = 64 << 20
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_RANK = re.compile(r'"rank"\s*:\s*(\d{1,9})\b')
_WORLD = re.compile(r'"world_size"\s*:\s*(\d{1,9})\b')
_BASE = re.compile(r'"baseTimeNanoseconds"\s*:\s*(\d+)')


class Ran(NamedTuple):
    """An op and when it ran, in nanoseconds of its rank's clock."""

    op: Op
    start: int
    end: int


class Profile(NamedTuple):
    """What one rank ran, by start, and how many ranks there were; -1 and 0 where the trace does not say."""

    name: str
    rank: int
    ran: list[Ran]
    world: int = 0


def pattern(text: str | None) -> re.Pattern[str]:
    """Compile a pattern for labels.

    Parameters
    ----------
    text
        A regular expression with a group ``kind``, and where labels have them ``stage`` and ``microbatch``; PyTorch's
        labels by default.

    Raises
    ------
    UsageError
        If it is no regular expression or lacks ``kind``.
    """
    try:
        compiled = re.compile(text or PYTORCH)
    except re.error as error:
        raise UsageError(f"{text!r} is no regular expression: {error}") from None
    if "kind" not in compiled.groupindex:
        raise UsageError(
            "a pattern needs a group (?P<kind>...), and (?P<stage>...) and (?P<microbatch>...) if labels have them"
        )
    return compiled


def read(path: Path, labels: re.Pattern[str], place: int) -> Profile:
    """Read one rank's trace.

    Parameters
    ----------
    labels
        See `pattern`. Where it has no stage, ``place`` is taken; where it has no microbatch, ops count up.
    place
        The position of the file among all.

    Raises
    ------
    UsageError
        If the file cannot be read.
    Malformed
        If it is no trace, or holds no op; the message says what labels were looked for.
    """
    found: dict[str, list[Ran]] = {"user_annotation": [], "gpu_user_annotation": []}
    counts: dict[tuple[str, int, Kind], int] = {}
    head, events = _open(path)
    base = int(match[1]) if (match := _BASE.search(head)) else 0
    for event in events:
        label = event.get("name")
        if event.get("ph") != "X" or not isinstance(label, str) or (match := labels.fullmatch(label)) is None:
            continue
        category = "gpu_user_annotation" if event.get("cat") == "gpu_user_annotation" else "user_annotation"
        groups = match.groupdict()
        kind = _kind(groups["kind"], path)
        stage = _index(groups["stage"], label, path) if groups.get("stage") else place
        count = counts.get((category, stage, kind), 0)
        counts[category, stage, kind] = count + 1
        microbatch = _index(groups["microbatch"], label, path) if groups.get("microbatch") else count
        start = base + round(_number(event, "ts", path) * 1000)
        end = start + round(_number(event, "dur", path) * 1000)
        found[category].append(Ran(Op(stage, kind, microbatch), start, end))
    ran = (
        found["gpu_user_annotation"] or found["user_annotation"]
    )  # when the device ran it, rather than who launched it
    if not ran:
        raise Malformed(f"no event is labelled like an op; labels looked for: {labels.pattern}", str(path))
    ran.sort(key=lambda entry: entry.start)
    rank, world = (int(match[1]) if (match := said.search(head)) else None for said in (_RANK, _WORLD))
    return Profile(str(path), -1 if rank is None else rank, ran, world or 0)


def _kind(word: str, path: Path) -> Kind:
    if word.lower() not in KINDS:
        raise Malformed(f"the pattern's kind matched {word!r}; known: {', '.join(KINDS)}", str(path))
    return KINDS[word.lower()]


def _index(text: str, label: str, path: Path) -> int:
    if not _DIGITS.fullmatch(text):
        raise Malformed(f"{text[:20]!r} in the label {label[:60]!r} is no number of a stage or microbatch", str(path))
    return int(text)


def _number(event: dict[str, Any], key: str, path: Path) -> float:
    value = event.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not -1e18 < value < 1e18:
        raise Malformed(f"event {event.get('name')!r} has no {key!r} that is a number", str(path))
    return value


def _open(path: Path) -> tuple[str, Iterator[dict[str, Any]]]:
    """What stands before the events, and the events."""
    parts = _parts(path)
    text = ""
    for part in parts:
        text += part
        if text.lstrip().startswith("["):
            return "", _decode(text.lstrip()[1:], parts, str(path))
        if (match := _EVENTS.search(text)) is not None:
            return text[: match.start()], _decode(text[match.end() :], parts, str(path))
        if len(text) > _LONGEST:
            break
    raise Malformed('expected a Chrome trace: an object with "traceEvents", or an array of events', str(path))


def _parts(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as start:
            packed = start.read(2) == b"\x1f\x8b"
        stream: IO[str] = (
            gzip.open(path, "rt", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed below
            if packed
            else path.open("r", encoding="utf-8", errors="replace")
        )
        with stream:
            while part := stream.read(_CHUNK):
                yield part
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def _decode(text: str, parts: Iterator[str], name: str) -> Iterator[dict[str, Any]]:
    """The events of an array whose beginning is ``text``; whatever follows the array is left unread."""
    decoder, place = json.JSONDecoder(), 0
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        if place < len(text) and text[place] == "]":
            return
        try:
            event, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError:
            more = next(parts, "")
            if not more or len(text) - place > _LONGEST:
                raise Malformed("the trace ends, or breaks, in the middle of its events", name) from None
            text, place = text[place:] + more, 0
            continue
        if isinstance(event, dict):
            yield event
