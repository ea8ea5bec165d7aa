"""Who does the work of a sweep: this process, the cores of this machine, or a Ray cluster.

An engine is a generator: it takes a task (a function of a module, so that it travels by name) and the items to do it on,
and yields (index of the item, result) as they finish, in any order. An item whose worker died every time it was tried
yields ``Lost``. Closing the generator stops the work at once. All engines do a task in the same way, on one thread, so
the results don't depend on which of them did it.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from bettersafe.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from multiprocessing.connection import Connection


Item = TypeVar("Item")
Result = TypeVar("Result")

RETRIES = 2
"""Times that an item is tried again after its worker died."""

AHEAD = 2
"""Items in flight per worker: one under way and one at hand, so that no worker waits while a result is being written."""

KNOCK_SECONDS = 10.0
"""How long a cluster may take to answer."""

THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True)
class Lost:
    """The result of an item whose worker died each time."""

    reason: str


def here(task: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result | Lost], None, None]:
    """One after the other, in this process."""
    for index, item in enumerate(items):
        yield index, _do(task, item)


def in_pool(
    task: Callable[[Item], Result], items: Sequence[Item], *, workers: int
) -> Generator[tuple[int, Result | Lost], None, None]:
    """On ``workers`` processes of this machine.

    A worker that dies takes its pool with it, and nobody can tell which of the items in flight was to blame. All of them
    are tried again in a new pool; those that see it happen twice get their last chance alone, where blame is certain.
    """
    waiting = deque(range(len(items)))
    alone: deque[int] = deque()
    deaths = [0] * len(items)
    while waiting or alone:
        queue, width = (waiting, workers) if waiting else (deque([alone.popleft()]), 1)
        running: dict[Future[Result], int] = {}
        with _pool(min(width, len(queue))) as pool:
            try:
                while queue or running:
                    while queue and len(running) < AHEAD * width:
                        running[pool.submit(_do, task, items[queue[0]])] = queue[0]
                        queue.popleft()
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        yield running.pop(future), result
            except BrokenProcessPool:
                wait(running)
        for future, index in running.items():  # empty unless the pool broke
            if future.exception() is None:
                yield index, future.result()
                continue
            deaths[index] += 1
            if deaths[index] > RETRIES:
                yield index, Lost(f"its worker process died {deaths[index]} times (killed, crashed or out of memory)")
            else:
                (waiting if deaths[index] < RETRIES else alone).append(index)


def on_ray(
    task: Callable[[Item], Result], items: Sequence[Item], *, workers: int | None, address: str | None
) -> Generator[tuple[int, Result | Lost], None, None]:
    """On a Ray cluster: the one at ``address``, else the one that ``ray start`` made here, else a new one here.

    Results come back to this process, so the machines need no disk in common, only the package.
    """
    ray = _ray()
    ours = not ray.is_initialized()
    running: dict[Any, int] = {}
    try:
        if ours:
            _join(ray, address)
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_do_far_away)
        in_flight = workers or AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        queue = deque(range(len(items)))
        while queue or running:
            while queue and len(running) < in_flight:
                index = queue.popleft()
                running[remote.remote(task, items[index], sys.path)] = index
            for reference in ray.wait(list(running), num_returns=1)[0]:
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayError as error:
                    result = Lost(f"its Ray worker failed {RETRIES + 1} times ({last_line(error)})")
                yield running.pop(reference), result
    finally:
        if ours:
            ray.shutdown()
        else:
            for reference in running:
                ray.cancel(reference, force=True)


@contextmanager
def joined(address: str | None) -> Iterator[None]:
    """Join a Ray cluster as `on_ray` does, once for all calls of it inside."""
    ray = _ray()
    ours = not ray.is_initialized()
    try:
        if ours:
            _join(ray, address)
        yield
    finally:
        if ours:
            ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise RunError(
            "the engine 'ray' needs Ray, which is not installed. "
            "Install it with: pip install 'bettersafe[cluster]', or use the engine 'local'."
        ) from None
    return ray


def _join(ray: Any, address: str | None) -> None:
    try:
        _knock(address)
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (OSError, ValueError) as error:
        where = f" at {address}" if address is not None else ""
        raise RunError(f"no Ray cluster could be reached{where}: {last_line(error)}") from None


def _knock(address: str | None) -> None:
    """Raise OSError unless somebody listens at HOST:PORT: Ray itself tries for minutes."""
    place = re.fullmatch(r"(?:ray://)?([^:/]+):(\d+)", address or "")
    if place:
        socket.create_connection((place[1], int(place[2])), timeout=KNOCK_SECONDS).close()


def last_line(error: BaseException) -> str:
    """An error in one line: its kind and the last line of what it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def _do(task: Callable[[Item], Result], item: Item) -> Result:
    with _one_thread():
        return task(item)


def _do_far_away(task: Callable[[Item], Result], item: Item, path: list[str]) -> Result:
    """As ``_do``, where modules may have to be looked for as they are at home (spawned processes do so by themselves)."""
    sys.path.extend(place for place in path if place not in sys.path)
    return _do(task, item)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Numerical libraries on one thread: workers don't crowd each other, and sums have one order on every machine."""
    from threadpoolctl import threadpool_limits

    before = {name: os.environ.get(name) for name in THREAD_SETTINGS}
    os.environ.update(dict.fromkeys(THREAD_SETTINGS, "1"))  # for libraries that are yet to be loaded
    try:
        with threadpool_limits(limits=1):  # for those that are
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes that end when this block does, when it is interrupted, and when this process is killed.

    They are spawned: a forked process would inherit the locks of threads that it doesn't have.
    """
    context = multiprocessing.get_context("spawn")
    far_end, lifeline = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(far_end,))
    try:
        yield pool
    except BaseException:
        lifeline.close()  # don't wait for what is under way
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        lifeline.close()
        far_end.close()


def _start_worker(lifeline: Connection) -> None:
    """Leave Ctrl-C to the main process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    """Nothing is ever sent: reading returns when the other end was closed, by its owner or by its owner's death."""
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(1)


def cores() -> int:
    """Cores this process may use; ``OMP_NUM_THREADS`` lowers it, as it does for other numerical libraries."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(there, int(limit))) if limit.isdecimal() else there
