"""Files and folders that are whole when they have their name: written under another one beside it, then renamed."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

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
