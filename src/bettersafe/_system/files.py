"""Files and folders that are whole when they have their name: written under another one beside it, then renamed.

And folders for what is only needed on the way, of which a process that was killed leaves none for long; digests of files, and the
versions of the packages that wrote them.
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
    """A name to write to; what was written takes the name ``path`` when all went well, and goes when not.

    What was left there by others that were killed goes as well, unless ``tidy`` is False: in folders of thousands of files
    it is better asked for once.
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
    """A name beside ``target`` that says whose it is."""
    return target.with_name(f".{target.name}.{os.getpid()}@{socket.gethostname()}.{secrets.token_hex(4)}.partial")


def remove_leftovers(place: Path, name: str = "*") -> None:
    """Remove what processes on this machine were writing under ``name`` when they were killed.

    A folder that one had put aside to replace it comes back, if that did not come to pass.
    """
    if os.name != "posix":  # elsewhere there is no harmless way to ask whether a process lives
        return
    for left in place.glob(f".{name if name == '*' else glob.escape(name)}.*.partial"):
        owner = re.search(r"^\.(.+)\.(\d+)@(.+)\.([0-9a-f]{8}|old)\.partial$", left.name)
        if owner is None or owner[3] != socket.gethostname() or _alive(int(owner[2])):
            continue
        with suppress(OSError):  # another one may be at it
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
    except PermissionError:  # somebody else's
        return True
    return True


SCRATCH = "bettersafe-"
LOCK = "in-use"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder in the temporary directory (``TMPDIR``) that goes when the context ends.

    A process that is killed leaves its folder behind, perhaps with gigabytes in it: the next one to make a folder removes it.
    The owner holds a lock on a file in the folder, which the system releases when the owner dies, however it dies.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=SCRATCH, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / f".{LOCK}").open("wb") as mark:
            if _locked(mark):
                os.replace(
                    mark.name, folder / LOCK
                )  # from here on, one that finds it free knows that the owner is gone
            yield folder


def _remove_abandoned(place: Path) -> None:
    for lock in place.glob(f"{SCRATCH}*/{LOCK}"):
        with suppress(OSError), lock.open("rb") as mark:  # another one's, or gone in the meantime
            if _locked(mark):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _locked(mark: IO[bytes]) -> bool:
    """Whether the lock on an open file could be had; False where the system has no such locks."""
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
    """A folder to write into that takes the name ``path`` when all went well, and goes when not.

    Args:
        path: The name, free as `check_free` asks.
        mark: A file that tells a folder of this kind.
        force: Replace one.
        own: Names that belong to such a folder: of one that is replaced, everything else comes along. None: nothing does.
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
    """Take along into ``work`` what ``source`` has besides its ``own`` files: as links where the disk can, else as copies."""
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
    """Raise unless a folder may be written: a new name, an empty folder, or with ``force`` one that has the file ``mark``."""
    target = Path(path)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / mark).is_file():
        raise RunError(f"{target} exists and has no {mark}: it is something else. Choose another name.")
    if not force:
        raise RunError(f"{target} already has a {mark}; choose another name, or replace it with --force.")


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
