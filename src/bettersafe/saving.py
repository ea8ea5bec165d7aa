"""Files and folders that are whole when they have their name: written under another one beside it, then renamed.

And folders for what is only needed on the way, of which a process that was killed leaves none for long.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bettersafe.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name to write to; what was written takes the name ``path`` when all went well, and goes when not."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        os.replace(partial, target)
    except OSError as error:
        raise RunError(f"{target} can't be written: {error.strerror or error}. Choose another place.") from None
    finally:
        partial.unlink(missing_ok=True)


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
def whole_folder(path: str | os.PathLike[str], *, mark: str, force: bool = False) -> Iterator[Path]:
    """A folder to write into that takes the name ``path`` when all went well, and goes when not.

    Args:
        path: The name, free as `check_free` asks.
        mark: A file that tells a folder of this kind.
        force: Replace one.
    """
    target = Path(path)
    check_free(target, mark=mark, force=force)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise RunError(f"{target} can't be written: {error.strerror}. Choose another place.") from None
    try:
        yield work
        work.chmod(0o755)  # mkdtemp makes it private
        if (target / mark).exists():
            aside = target.with_name(f".{target.name}.old-{os.getpid()}")
            target.rename(aside)
            work.rename(target)
            shutil.rmtree(aside)
        else:
            work.rename(target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def check_free(path: str | os.PathLike[str], *, mark: str, force: bool) -> None:
    """Raise unless a folder may be written: a new name, an empty folder, or with ``force`` one that has the file ``mark``."""
    target = Path(path)
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    if not (target / mark).is_file():
        raise RunError(f"{target} exists and has no {mark}: it is something else. Choose another name.")
    if not force:
        raise RunError(f"{target} already has a {mark}; choose another name, or replace it with --force.")
