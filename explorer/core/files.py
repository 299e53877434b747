"""Files, so that a failure points at the place and nothing is ever written half."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from explorer.core.errors import Malformed, UsageError


def read_text(path: Path) -> str:
    """The text of a file.

    Raises
    ------
    UsageError
        If it cannot be opened.
    Malformed
        If it is no UTF-8 text.
    """
    try:
        return path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"byte {error.start} is no UTF-8 text", str(path)) from None


def write_text(path: Path, parts: Iterable[str]) -> None:
    """Write a file whole or not at all, replacing what was there; the text is never held as a whole.

    Devices and pipes are written as they are; a link's target is replaced, and a file keeps its mode.

    Raises
    ------
    UsageError
        If the folder does not exist or cannot be written.
    """
    write_bytes(path, (part.encode() for part in parts))


def write_bytes(path: Path, parts: Iterable[bytes]) -> None:
    """The same for what is no text.

    Raises
    ------
    UsageError
        If the folder does not exist or cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a file")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe: nothing to replace
            with path.open("wb") as stream:
                stream.writelines(parts)
            return
        path = path.resolve()  # a link stays a link
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".explorer-")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    temporary = Path(name)
    try:
        with open(handle, "wb") as stream:  # noqa: PTH123 - a handle, not a path
            stream.writelines(parts)
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
