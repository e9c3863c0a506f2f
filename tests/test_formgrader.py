"""nbgrader's web page, on a real server: its autograde button, and no student's markup on it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from bs4 import BeautifulSoup

from course import paths
from course.grading import specimens
from tests.classrooms import CHAPTER, Classroom, changed

TOKEN = "for-this-test-only"


class Server:
    """A Jupyter server on a free port."""

    def __init__(self, room: Classroom, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = log
        settings = [
            f"--ServerApp.port={self.port}",
            f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={room.root.parent}",
            "--ServerApp.open_browser=False",
            "--ServerApp.disable_check_xsrf=True",
            "--allow-root",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *settings],
            cwd=paths.ROOT,
            env={**os.environ, "COURSE_CLASSROOM": str(room.root), "JUPYTER_CONFIG_DIR": str(log.parent / "config")},
            stdin=subprocess.DEVNULL,
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
        )

    def ask(self, path: str, method: str = "GET") -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=b"" if method == "POST" else None,
            headers={"Authorization": f"token {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=240) as response:
            text: str = response.read().decode("utf-8")
            return text

    def wait(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                self.ask("/api/status")
                return
            except (urllib.error.URLError, ConnectionError):
                assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
                assert time.monotonic() < deadline, self.log.read_text(encoding="utf-8")
                time.sleep(0.3)


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Classroom:
    return Classroom.fresh(tmp_path / "classroom", monkeypatch)


@pytest.fixture
def server(room: Classroom, tmp_path: Path) -> Iterator[Server]:
    made = Server(room, tmp_path / "server.log")
    try:
        made.wait()
        yield made
    finally:
        made.process.terminate()
        made.process.wait(30)


def test_the_autograde_button_and_the_submission_page(room: Classroom, server: Server) -> None:
    evil = "<script>alert('evil')</script> <img src=x onerror=alert(2)> [x](javascript:alert(3))"

    def add(notebook: Any) -> None:
        notebook.cells.append(nbformat.v4.new_markdown_cell(evil, id="evil"))

    room.hand_in("ada", changed(add, specimens.reference_cells("softmax")))
    result = json.loads(server.ask(f"/formgrader/api/submission/{CHAPTER}/ada/autograde", "POST"))
    assert result["success"], result
    assert room.totals() == {"ada": 16.0}

    listed = json.loads(server.ask(f"/formgrader/api/submissions/{CHAPTER}"))
    assert [(one["student"], one["score"], one["autograded"]) for one in listed] == [("ada", 16.0, True)]
    (notebook,) = json.loads(server.ask(f"/formgrader/api/submitted_notebooks/{CHAPTER}/{CHAPTER}"))
    page = BeautifulSoup(server.ask(f"/formgrader/submissions/{notebook['id']}/"), "html.parser")
    assert "alert('evil')" in page.get_text(), "what the student wrote is shown as text"
    assert not [script for script in page.find_all("script") if "evil" in script.get_text()]
    assert not page.select("img[onerror], a[href^=javascript]")
    assert "softmax: 6 of 6 points" in page.get_text()
