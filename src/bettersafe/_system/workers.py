"""Parallel execution of a task on many items: in this process, on the cores of this machine, or on a Ray cluster.

Each of the three functions is a generator. It takes a task (a function at the top of a module, which is passed by name) and
items, and yields (index of the item, result) as items finish, in any order. An item whose worker died at every try yields
``Lost``. Closing the generator stops the work at once. All of them run a task on one thread, so that the results don't
depend on where it runs.
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
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from bettersafe.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from multiprocessing.connection import Connection


Place = Literal["local", "ray"]
PLACES: tuple[Place, ...] = get_args(Place)
"""Where independent work runs: on processes of this machine, or on a Ray cluster."""

Item = TypeVar("Item")
Result = TypeVar("Result")

RETRIES = 2
"""Number of times that an item is tried again after its worker died."""

AHEAD = 2
"""Items in flight per worker: one running and one queued, so that no worker waits while a result is written."""

CONNECT_TIMEOUT = 10.0
"""Seconds to wait for a cluster to answer."""

THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@dataclass(frozen=True)
class Lost:
    """Result of an item whose worker died at every try."""

    reason: str


def here(task: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result | Lost], None, None]:
    """Run the task on one item after the other, in this process."""
    for index, item in enumerate(items):
        yield index, _do(task, item)


def in_pool(
    task: Callable[[Item], Result], items: Sequence[Item], *, workers: int
) -> Generator[tuple[int, Result | Lost], None, None]:
    """Run the task on ``workers`` processes of this machine.

    If a worker dies, its pool breaks, and which of the items in flight caused it is not known. All of them are tried again in
    a new pool; after a second failure an item is tried alone, where the cause is certain.
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
    """Run the task on a Ray cluster: at ``address``, else the one that ``ray start`` made on this machine, else a new one.

    Results are returned to this process, so the machines need the package, but no shared disk.
    """
    ray = _ray()
    ours = not ray.is_initialized()
    running: dict[Any, int] = {}
    try:
        if ours:
            _join(ray, address)
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_do_remotely)
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
    """Join a Ray cluster as `on_ray` does, once for all calls of `on_ray` in the context."""
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
        _check_listening(address)
        ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    except (OSError, ValueError) as error:
        where = f" at {address}" if address is not None else ""
        raise RunError(f"no Ray cluster could be reached{where}: {last_line(error)}") from None


def _check_listening(address: str | None) -> None:
    """Raise OSError unless a server listens at HOST:PORT. Ray itself retries for minutes."""
    place = re.fullmatch(r"(?:ray://)?([^:/]+):(\d+)", address or "")
    if place:
        socket.create_connection((place[1], int(place[2])), timeout=CONNECT_TIMEOUT).close()


def last_line(error: BaseException) -> str:
    """An error in one line: its type and the last line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def _do(task: Callable[[Item], Result], item: Item) -> Result:
    with _one_thread():
        return task(item)


def _do_remotely(task: Callable[[Item], Result], item: Item, path: list[str]) -> Result:
    """`_do` with the caller's ``sys.path``, which a Ray worker does not inherit (spawned processes do)."""
    sys.path.extend(place for place in path if place not in sys.path)
    return _do(task, item)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit numerical libraries to one thread: workers share the cores, and sums have one order on every machine."""
    from threadpoolctl import threadpool_limits

    before = {name: os.environ.get(name) for name in THREAD_SETTINGS}
    os.environ.update(dict.fromkeys(THREAD_SETTINGS, "1"))  # for libraries not loaded yet
    try:
        with threadpool_limits(limits=1):  # for libraries already loaded
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Pool of processes that end with the context, on an interrupt, and if this process is killed.

    They are spawned: a forked process would inherit locks of threads that do not exist in it.
    """
    context = multiprocessing.get_context("spawn")
    far_end, lifeline = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(far_end,))
    try:
        yield pool
    except BaseException:
        lifeline.close()  # don't wait for running tasks
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        lifeline.close()
        far_end.close()


def _start_worker(lifeline: Connection) -> None:
    """Ignore Ctrl-C, which the main process handles, and end with the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    """Exit when the other end of the pipe is closed, by its owner or by its owner's death. Nothing is ever sent."""
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(1)


def cores() -> int:
    """Number of cores this process may use; ``OMP_NUM_THREADS`` lowers it, as for other numerical libraries."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(there, int(limit))) if limit.isdecimal() else there
