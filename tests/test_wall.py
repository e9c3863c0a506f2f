"""Hostile code behind the wall: it earns nothing that it did not earn, and harms nobody.

Each attack stands in the cell of the first exercise of chapter 01. The other exercises are the
reference's, and an honest submission that follows in the same sandbox must earn full marks.
"""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from course import paths
from course.grading import pool, sandbox, specimens, student
from course.grading.verdict import ExerciseVerdict, Verdict, judge_cells

CHAPTER = "01_softmax"
ATTACKED = "softmax"

# What an attack tries, and the reason that the verdict must give, as a regular expression. Where time and
# memory run out together, either may come first.
ATTACKS = {
    "an endless loop": ("while True: pass", "did not finish within"),
    "a memory bomb": ("return torch.cat([torch.ones(2**28) for _ in range(64)])", "alloc|did not finish"),
    "a memory bomb in small pieces": ("x = []\nwhile True: x.append(bytearray(2**24))", "MemoryError|did not finish"),
    "files that fill the memory": (
        "for i in range(10**6):\n    open(f'/tmp/{i}', 'wb').write(bytes(2**20))",
        "OSError",
    ),
    "files in /dev/shm": ("open('/dev/shm/x', 'wb').write(bytes(2**20))", "OSError"),
    "a fork bomb": ("while True: os.fork()", "PermissionError"),
    "a fork through subprocess": ("subprocess.run(['/bin/true'], check=True)", "PermissionError"),
    "another program": ("os.execv('/bin/sh', ['sh', '-c', 'true'])", "PermissionError"),
    "a thread bomb": (
        "import threading\nwhile True: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
        "start new thread|did not finish",
    ),
    "os._exit": ("os._exit(0)", "ended the Python process"),
    "sys.exit": ("sys.exit(0)", "SystemExit"),
    "a crash": ("ctypes.string_at(0)", "ended the Python process"),
    "endless recursion": ("return softmax(x, dim)", "RecursionError"),
    "killing everything": ("os.kill(-1, 9)", "ProcessLookupError"),
    "killing its keeper": ("assert os.getppid() == 0\nos.kill(0, 9)", "expected a tensor, got None"),
    "a socket": ("socket.socket().connect(('127.0.0.1', 80))", "PermissionError"),
    "a new namespace": ("assert ctypes.CDLL(None).unshare(0x10000000) == 0", "AssertionError"),
    "a mount": ("assert ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0", "AssertionError"),
    "an object equal to everything": ("return Anything()", "expected a tensor, got an object of type Anything"),
    "a number that claims to be anything": ("return Number(1.0)", "expected a tensor"),
    "a tensor that lies": ("return Liar(x)", "expected"),
    "a result that pickles code": ("return Pickled()", "expected a tensor, got an object of type Pickled"),
    "a result too large to cross": ("return torch.zeros(2**26)", ""),
    "a result nested without end": ("x = []\nx.append(x)\nreturn x", "nested"),
    "a broken frame": ("[os.write(fd, b'\\xff' * 64) for fd in fds()]\nreturn x", "broke the connection|too large"),
    "a forged frame": ("[os.write(fd, forged()) for fd in fds()]\nreturn x", ""),
    "a closed connection": ("[os.close(fd) for fd in fds()]\nreturn x", "ended the Python process"),
    "an exception that cannot be printed": ("raise Unprintable", "Unprintable"),
    "an exception of a megabyte": ("raise ValueError('x' * 2**20)", "ValueError"),
    "output without end": ("print('x' * 2**20, flush=True)\nreturn x * 0 + 0.3", "expected"),
}

HELPERS = """
import ctypes, os, socket, stat, subprocess, sys, time
import torch
from torch import Tensor


class Anything:
    shape = (3,)
    def __eq__(self, other): return True
    def __getattr__(self, name): return self
    def __call__(self, *args, **kwargs): return self


class Number(float):
    def __eq__(self, other): return True


class Liar(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True if function is torch.allclose else super().__torch_function__(function, types, args, kwargs)


class Pickled:
    def __reduce__(self): return (os.system, ("touch /tmp/pickled",))


class Unprintable(Exception):
    def __str__(self): raise ValueError("no text")


def fds():
    return [fd for fd in range(3, 64) if exists(fd) and stat.S_ISSOCK(os.fstat(fd).st_mode)]


def exists(fd):
    try: os.fstat(fd)
    except OSError: return False
    return True


def forged():
    import json, struct
    text = json.dumps({"value": None, "graph": None, "passed": True}).encode()
    return struct.pack(">QI", len(text) + 4, len(text)) + text
"""


def attack(body: str) -> dict[str, str]:
    """The reference's answers, with the attacked exercise's replaced."""
    answers = specimens.reference_cells("softmax")
    code = textwrap.indent(body, "    ")
    answers[ATTACKED] = f"{HELPERS}\n\ndef softmax(x: Tensor, dim: int = -1) -> Tensor:\n{code}\n"
    return answers


def judge(answers: dict[str, str]) -> Verdict:
    return judge_cells(CHAPTER, answers, [], seed=7)


def outcome(verdict: Verdict) -> ExerciseVerdict:
    return next(exercise for exercise in verdict.exercises if exercise.id == ATTACKED)


@pytest.fixture(autouse=True)
def short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(student, "CALL_SECONDS", 6.0)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_earns_nothing_and_harms_nobody(name: str) -> None:
    body, reason = ATTACKS[name]
    attacked = judge(attack(body))
    exercise = outcome(attacked)
    assert exercise.earned == 0, exercise
    seen = exercise.problem or " | ".join(p.message for p in exercise.properties)
    assert re.search(reason, seen), seen
    assert all("\n" not in p.message and len(p.message) < 600 for p in exercise.properties)
    after = judge(specimens.reference_cells("softmax"))
    assert after.earned == after.points


@pytest.mark.parametrize("body", ["while True: pass", "import os; os._exit(0)", "raise SystemExit", "x = 1 / 0", "((("])
def test_a_cell_that_ruins_its_own_import_costs_its_own_marks_only(body: str) -> None:
    answers = specimens.reference_cells("softmax")
    answers[ATTACKED] = f"def harmless(): ...\n\n\nruin = [0]\n\n\nclass Ruin:\n    {body}\n"
    verdict = judge(answers)
    assert outcome(verdict).earned == 0
    assert outcome(verdict).problem
    for exercise in verdict.exercises:
        if exercise.id == "cross_entropy":
            assert exercise.earned == exercise.points, exercise


def test_nothing_of_the_grader_is_to_be_seen() -> None:
    """Files, environment and processes: a submission that finds any of them says so in its error."""
    names = "gradebook.db test_softmax.py solutions classroom chapters verdict.py hidden.py shadow .git id_rsa"
    body = f"""
        found = []
        for folder, dirs, files in os.walk('/'):
            dirs[:] = [name for name in dirs if name not in ('site-packages', 'share', 'include', 'python3.11')]
            found += [os.path.join(folder, name) for name in dirs + files if name in {names.split()!r}]
        processes = [name for name in os.listdir('/proc') if name.isdigit()]
        raise ValueError(f'files {{found}}, processes {{processes}}, variables {{sorted(os.environ)}}')
    """
    message = outcome(judge(attack(textwrap.dedent(body).strip()))).properties[0].message
    assert "files [], processes []" in message
    for secret in ("PASSWORD", "TOKEN", "KEY", "SECRET"):
        assert secret not in message


def test_nothing_can_be_written_outside_and_nothing_stays() -> None:
    body = """
        places = []
        for folder, dirs, _ in os.walk('/'):
            dirs[:] = [name for name in dirs if name not in ('site-packages', 'share', 'include', 'python3.11')]
            if not folder.startswith('/tmp'):
                try:
                    open(os.path.join(folder, 'left-behind'), 'w').close()
                    places.append(folder)
                except OSError:
                    pass
        stayed = os.path.exists('/tmp/left-behind')
        open('/tmp/left-behind', 'w').close()
        raise ValueError(f'wrote {places}, stayed {stayed}')
    """
    answers = attack(textwrap.dedent(body).strip())
    for _ in range(2):
        assert "wrote [], stayed False" in outcome(judge(answers)).properties[0].message


def test_a_slow_submission_has_one_budget_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(student, "CALL_SECONDS", 3.0)
    monkeypatch.setattr(student.Patience.__init__, "__defaults__", (4.0,))
    verdict = judge(attack("time.sleep(1.5)\nreturn torch.exp(x) / torch.exp(x).sum(dim, keepdim=True)"))
    assert any("used up" in p.message for p in outcome(verdict).properties)


def test_the_sandbox_is_used_again() -> None:
    """Where nested namespaces work, one bubblewrap serves many submissions, each in a fresh process."""
    judge(specimens.reference_cells("softmax"))
    first = sandbox.cage()
    judge(specimens.reference_cells("softmax"))
    assert (sandbox.cage() is first) == first.reusable


def test_what_a_test_makes_of_a_students_values_cannot_fill_the_memory() -> None:
    with pool._local(1) as executor, pytest.raises(RuntimeError, match="allocate"):
        executor.submit(torch.rand, pool.MEMORY // 4).result()


def test_a_class_beneath_a_place_that_is_shown_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a Python installed around the class: it is to be seen, and so is an environment in the class's folder."""
    room = tmp_path / "class"
    (room / "env").mkdir(parents=True)
    for path in (tmp_path / "python", room / "gradebook.db", room / "env" / "torch"):
        path.touch()
    monkeypatch.setattr(paths, "CLASSROOM", room)
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(room / "env"))
    sandbox.bubblewrap.cache_clear()
    try:
        command = sandbox.bubblewrap()
    finally:
        sandbox.bubblewrap.cache_clear()
    script = "ls $0 $0/class $0/class/env; touch $0/class/x"
    done = subprocess.run([*command, "/bin/sh", "-c", script, tmp_path], capture_output=True, text=True)
    names = [line for line in done.stdout.splitlines() if line and not line.endswith(":")]
    assert names == ["class", "python", "env", "torch"], done
    assert "Read-only file system" in done.stderr
