"""Atomic files and folders: written under a temporary name, then renamed.

Also scratch folders, which are removed even after a process was killed; digests of files; versions of packages.
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import socket
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bettersafe.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


@contextmanager
def whole_file(path: str | os.PathLike[str], *, tidy: bool = True) -> Iterator[Path]:
    """Temporary name to write to; it is renamed to ``path`` on success, and removed on failure.

    Leftovers of killed processes are removed too, unless ``tidy`` is False: in a folder of thousands of files, one call of
    `remove_leftovers` is faster.
    """
    target = Path(path)
    if tidy:
        remove_leftovers(target.parent, target.name)
    partial = _partial(target)
    try:
        yield partial
        os.replace(partial, target)
    except OSError as error:
        raise RunError(f"{target} can't be written: {error.strerror or error}. Choose another place.") from None
    finally:
        partial.unlink(missing_ok=True)


def _partial(target: Path) -> Path:
    """Temporary name beside ``target``, with the process and host that own it."""
    return target.with_name(f".{target.name}.{os.getpid()}@{socket.gethostname()}.{secrets.token_hex(4)}.partial")


def remove_leftovers(place: Path, name: str = "*") -> None:
    """Remove partial files and folders ``name`` of processes on this machine that were killed.

    A folder that was set aside to be replaced is restored if its replacement is missing.
    """
    if os.name != "posix":  # on Windows, os.kill(pid, 0) would send Ctrl-C
        return
    for left in place.glob(f".{name if name == '*' else glob.escape(name)}.*.partial"):
        owner = re.search(r"^\.(.+)\.(\d+)@(.+)\.([0-9a-f]{8}|old)\.partial$", left.name)
        if owner is None or owner[3] != socket.gethostname() or _alive(int(owner[2])):
            continue
        with suppress(OSError):  # another process may be removing it
            if owner[4] == "old" and not (place / owner[1]).exists():
                left.rename(place / owner[1])
            elif left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


SCRATCH = "bettersafe-"
LOCK = "in-use"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Folder in the temporary directory (``TMPDIR``) that is removed at the end of the context.

    A killed process leaves its folder behind, perhaps with gigabytes of data; the next scratch folder to be made removes it.
    The owner holds a lock on a file in the folder, which the system releases when the owner dies.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=SCRATCH, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / f".{LOCK}").open("wb") as mark:
            if _locked(mark):
                os.replace(mark.name, folder / LOCK)  # from now on, a free lock means that the owner is dead
            yield folder


def _remove_abandoned(place: Path) -> None:
    for lock in place.glob(f"{SCRATCH}*/{LOCK}"):
        with suppress(OSError), lock.open("rb") as mark:  # of another user, or already removed
            if _locked(mark):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _locked(mark: IO[bytes]) -> bool:
    """Whether the lock on an open file was acquired; False if the system has no such locks."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def whole_folder(
    path: str | os.PathLike[str], *, mark: str, force: bool = False, own: Collection[str] | None = None
) -> Iterator[Path]:
    """Temporary folder to write into; it is renamed to ``path`` on success, and removed on failure.

    Args:
        path: Name of the folder; must be free (`check_free`).
        mark: File that marks a folder of this kind.
        force: Whether to replace an existing folder of this kind.
        own: Names of the files of such a folder; if it is replaced, all other files are kept. None keeps nothing.
    """
    target = Path(path)
    remove_leftovers(target.parent, target.name)
    check_free(target, mark=mark, force=force)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = _partial(target)
        work.mkdir()
    except OSError as error:
        raise RunError(f"{target} can't be written: {error.strerror}. Choose another place.") from None
    aside = target.with_name(f".{target.name}.{os.getpid()}@{socket.gethostname()}.old.partial")
    try:
        yield work
        if (target / mark).exists():
            if own is not None:
                _carry(target, work, own)
            target.rename(aside)
            work.rename(target)
            shutil.rmtree(aside)
        else:
            work.rename(target)
    except BaseException:
        if aside.exists() and not target.exists():
            aside.rename(target)
        shutil.rmtree(work, ignore_errors=True)
        raise


def _carry(source: Path, work: Path, own: Collection[str]) -> None:
    """Copy the files of ``source`` that are not ``own`` into ``work``, as hard links if the file system supports them."""
    for entry in source.iterdir():
        if entry.name in own:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, work / entry.name, symlinks=True, copy_function=_link)
        else:
            _link(str(entry), str(work / entry.name))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def check_free(path: str | os.PathLike[str], *, mark: str, force: bool) -> None:
    """Raise RunError unless ``path`` is new, an empty folder, or, with ``force``, a folder with the file ``mark``."""
    target = Path(path)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / mark).is_file():
        raise RunError(f"{target} exists and has no {mark}: it holds something else. Choose another name.")
    if not force:
        raise RunError(f"{target} already has a {mark}; choose another name, or replace it with `force`.")


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def versions() -> dict[str, str]:
    """Versions of the packages that a result depends on."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in ("bettersafe", "numpy", "scipy", "duckdb", "pyarrow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
