"""Judging many submissions at once: on this machine's cores, or on a Dask cluster.

Both are executors in the sense of `concurrent.futures`, and both get plain values: the cells, the
seed. What comes back is a verdict as JSON.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

from course import chapters
from course.errors import CourseError

# Bytes that a judge may hold, not counting the sandbox: what a hidden test computes from a student's
# values can become huge, and must end in an error of that test, not in the machine's.
MEMORY = 4 * 2**30
CRASHED = "the grader crashed on this submission; tell your instructor"

_one_at_a_time = threading.Lock()  # a process has one sandbox, and a Dask worker may have many threads


@dataclass(frozen=True)
class Task:
    """One submission to judge, as plain values that can go to another machine."""

    key: str
    chapter: str
    cells: dict[str, str]
    extra: list[str]
    seed: int
    judged_by: str
    unsafe: bool


Outcome = str | Exception


def judge(task: Task) -> str:
    """Judge one submission in this process's sandbox; the verdict as JSON.

    Raises:
        CourseError: the sandbox does not work here, or this machine has another version of the course.
    """
    from course.grading.judge import rules
    from course.grading.verdict import judge_cells, refused

    with _one_at_a_time:
        if rules(chapters.find(task.chapter)) != task.judged_by:
            raise CourseError(
                f"machine {os.uname().nodename} has another version of the course than this run began with; give every "
                f"machine the same version, and run `course grade` again"
            )
        try:
            verdict = judge_cells(task.chapter, task.cells, task.extra, task.seed, unsafe=task.unsafe)
        except RecursionError:
            verdict = refused(task.chapter, CRASHED)
        return verdict.to_json()


def judge_all(tasks: Sequence[Task], jobs: int | None, scheduler: str | None) -> Iterator[tuple[Task, Outcome]]:
    """Judge the tasks; each with its verdict as JSON or the exception that stopped it, as they come.

    Args:
        tasks: what to judge.
        jobs: how many at once on this machine; None for one per core.
        scheduler: address of a Dask scheduler to use in place of this machine.
    """
    if not tasks:
        return
    if scheduler is not None:
        yield from _on_dask(tasks, scheduler)
    else:
        yield from _here(list(tasks), min(jobs or os.cpu_count() or 1, len(tasks)))


def _on_dask(tasks: Sequence[Task], scheduler: str) -> Iterator[tuple[Task, Outcome]]:
    from distributed import Client

    try:
        client = Client(scheduler, timeout=20, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CourseError(
            f"cannot reach a Dask scheduler at {scheduler}: {reason}; check the address, or leave out --scheduler"
        ) from None
    with client, client.get_executor(pure=False) as executor:
        yield from _outcomes(executor, tasks)


def _here(tasks: list[Task], jobs: int) -> Iterator[tuple[Task, Outcome]]:
    unfinished = {task.key: task for task in tasks}
    with _local(jobs) as executor:
        for task, outcome in _outcomes(executor, tasks):
            if not isinstance(outcome, BrokenProcessPool):
                del unfinished[task.key]
                yield task, outcome
    # A process died, and its pool with it. Each of the rest gets a pool of its own: only the culprit's dies.
    for task in unfinished.values():
        with _local(1) as executor:
            yield from _outcomes(executor, [task])


def _outcomes(executor: Executor, tasks: Sequence[Task]) -> Iterator[tuple[Task, Outcome]]:
    pending: dict[Future[str], Task] = {}
    try:
        for task in tasks:
            try:
                pending[executor.submit(judge, task)] = task
            except BrokenProcessPool as error:
                yield task, error
        for future in as_completed(list(pending)):
            failure = future.exception()
            yield pending[future], future.result() if failure is None else _as_exception(failure)
    finally:
        for future in pending:
            future.cancel()


def _as_exception(error: BaseException) -> Exception:
    if not isinstance(error, Exception):
        raise error
    return error


def _local(jobs: int) -> ProcessPoolExecutor:
    """Processes forked from one that has loaded torch already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["course.grading.verdict"])
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_confine)


def _confine() -> None:
    """Limit the memory. And no judge outlives a run that was killed; its sandbox dies with it."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run to handle
    threading.Thread(target=_watch_parent, daemon=True).start()


def _watch_parent() -> None:
    run = multiprocessing.parent_process()
    assert run is not None
    run.join()
    os._exit(1)
