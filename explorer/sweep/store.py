"""Results on disk: one SQLite file, written point by point, that any number of sweeps may share.

Every sweep that runs is an *owner* and shows signs of life. It claims points before it computes them; claims of an
owner that has died are anyone's. A point's result and the end of its claim are one transaction, so a result is there
whole or not at all, whenever the process ends.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from explorer.core.errors import Malformed, UsageError

APPLICATION = 0x50534558
"""Marks a SQLite file as a store of sweeps."""
LAYOUT = 1
SILENCE = 30.0
"""Seconds without a sign of life after which an owner on another machine counts as dead."""
_BUSY = 60.0
_AT_ONCE = 500

_TABLES = """
CREATE TABLE meta (version TEXT NOT NULL);
CREATE TABLE results (key TEXT PRIMARY KEY, point TEXT NOT NULL, row TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE owners (owner TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, seen REAL NOT NULL);
CREATE TABLE claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL) WITHOUT ROWID;
"""


class Store:
    """An open store.

    Parameters
    ----------
    path
        The file.
    version
        Of the program; results of another are not mixed in.
    create
        Whether to make the file where there is none.

    Raises
    ------
    UsageError
        If it cannot be opened or written, or another version wrote it.
    Malformed
        If it is no store, or is damaged.
    """

    def __init__(self, path: Path, version: str, *, create: bool = True) -> None:
        self.path, self.owner = path, uuid4().hex
        self.version = version
        if not create and not path.exists():
            raise UsageError(f"there is no store {path}; `explorer sweep` makes one")
        with self._told():
            self._db = sqlite3.connect(path, timeout=_BUSY, isolation_level=None)
            try:
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._require_ours()
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is claimed and close the file."""
        with closing(self._db), self._told():
            self._release(self.owner)

    def _require_ours(self) -> None:
        db = self._db
        with self._transaction():
            empty = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            mark, layout = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
            if empty and mark == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    db.execute(statement)
                db.execute("INSERT INTO meta VALUES (?)", (self.version,))
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {LAYOUT}")
            elif mark != APPLICATION:
                raise Malformed("this is a SQLite file, but no store of sweeps; give another file", str(self.path))
            elif layout != LAYOUT:
                raise UsageError(f"{self.path} has layout {layout}, this version reads {LAYOUT}; give another store")
            else:
                (written,) = db.execute("SELECT version FROM meta").fetchone()
                if written != self.version:
                    raise UsageError(
                        f"{self.path} was written by version {written}, this is {self.version}, whose results may "
                        "differ; give another store"
                    )
        if db.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise UsageError(f"{self.path} is on a file system without shared memory; put the store on a local disk")
        if db.execute("PRAGMA quick_check").fetchone()[0] != "ok":
            raise Malformed("the store is damaged; give another file", str(self.path))

    def done(self, keys: Sequence[str]) -> set[str]:
        """Which of these points have a result."""
        found: set[str] = set()
        with self._told():
            for first in range(0, len(keys), _AT_ONCE):
                some = keys[first : first + _AT_ONCE]
                marks = ",".join("?" * len(some))
                found |= {key for (key,) in self._db.execute(f"SELECT key FROM results WHERE key IN ({marks})", some)}
        return found

    def claim(self, keys: Iterable[str]) -> list[str]:
        """Take points for this sweep; those that have a result, or that a living sweep has claimed, are left out."""
        taken = []
        with self._told(), self._transaction():
            self.show_life()
            for (owner,) in self._db.execute("SELECT owner FROM owners").fetchall():
                if not self._lives(owner):
                    self._release(owner)
            for key in keys:
                if self._db.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone():
                    continue
                if self._db.execute("INSERT OR IGNORE INTO claims VALUES (?, ?)", (key, self.owner)).rowcount:
                    taken.append(key)
        return taken

    def record(self, results: Iterable[tuple[str, Any, Any]]) -> None:
        """Keep results: (key, the point's axes, its row), and end their claims."""
        with self._told(), self._transaction():
            self.show_life()
            for key, point, row in results:
                self._db.execute(
                    "INSERT OR IGNORE INTO results VALUES (?, ?, ?)", (key, json.dumps(point), json.dumps(row))
                )
                self._db.execute("DELETE FROM claims WHERE key = ?", (key,))

    def rows(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """All results, by key: the point's axes and its row."""
        with self._told():
            for point, row in self._db.execute("SELECT point, row FROM results ORDER BY key"):
                yield json.loads(point), json.loads(row)

    def show_life(self) -> None:
        """Say that this sweep lives; `claim` and `record` say so too."""
        values = (self.owner, socket.gethostname(), os.getpid(), time.time())
        with self._told():
            self._db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?)", values)

    def _lives(self, owner: str) -> bool:
        host, pid, seen = self._db.execute("SELECT host, pid, seen FROM owners WHERE owner = ?", (owner,)).fetchone()
        if host == socket.gethostname():
            return owner == self.owner or (pid != os.getpid() and _runs(pid))
        return bool(time.time() - seen < SILENCE)

    def _release(self, owner: str) -> None:
        self._db.execute("DELETE FROM claims WHERE owner = ?", (owner,))
        self._db.execute("DELETE FROM owners WHERE owner = ?", (owner,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Faults of the file in one sentence."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise UsageError(f"the store {self.path} cannot be used: {error}") from None
        except (sqlite3.DatabaseError, json.JSONDecodeError) as error:
            raise Malformed(f"this is no store of sweeps, or it is damaged: {error}", str(self.path)) from None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # someone else's process
        return True
    return True
