"""The `course` command.

A student's workspace has `lab`, `check`, `status` and `doctor`; the repository has the instructor's
commands beside them. Heavy imports wait until a command needs them: `course --help` is quick.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from course import paths
from course.errors import CourseError

STUDENT = "Student"
PORT_HELP = "Port of the local server; the next free one if it is taken."

app = typer.Typer(
    name="course",
    help="*Architecture Ideas That Won*: build every idea inside a modern language model.",
    epilog="`course COMMAND --help` shows a command's options and examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; a person's mistake is one line on stderr and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows a question mark
    try:
        app(prog_name="course")
    except CourseError as error:
        _fail(str(error))
    except OSError as error:
        message = explain_os_error(error)
        if message is None:
            raise
        _fail(message)
    except LookupError as error:
        from course.chapters import UnknownChapter

        if not isinstance(error, UnknownChapter):
            raise
        _fail(str(error))


def explain_os_error(error: OSError) -> str | None:
    """One line about a failure of the disk or of permissions; None for any other error."""
    where = error.filename if isinstance(error.filename, str) else "a file"
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"the disk is full (writing {where}): free some space, then run the same command again"
        case errno.EFBIG:
            return f"{where} may not grow any further (a limit on file size): lift the limit, then run this again"
        case errno.EACCES | errno.EPERM:
            return f"no permission for {where}: make it readable and writable for you, then run this again"
        case errno.EROFS:
            return f"{where} is on a read-only disk: choose a folder that can be written, then run this again"
        case errno.ENOTDIR | errno.EEXIST | errno.EISDIR:
            return f"{where} is in the way (a file in a folder's place, or the reverse): move it, then run this again"
        case errno.ENOENT:
            return f"{where} is not there: put it back or name another one, then run this again"
        case errno.EPIPE:
            return "the reader of the output went away"
        case _:
            return None


def _fail(message: str) -> None:
    # Plain stderr rather than Rich: no wrapping and no markup in names that people chose.
    print(f"course: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(1)


@app.command(rich_help_panel=STUDENT)
def lab(
    browser: Annotated[bool, typer.Option(help="Open a browser window.")] = True,
    port: Annotated[int, typer.Option(min=1, max=65535, help=PORT_HELP)] = 8888,
) -> None:
    """Open JupyterLab on the notebooks.

    In the repository this is the student workspace, `classroom/workspace`; it is released first
    where it is missing.

    **Examples**

    `course lab`

    `course lab --no-browser --port 8900`
    """
    import subprocess

    folder = paths.ROOT if paths.is_workspace() else _released_workspace()
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}", f"--port={port}"]
    if not browser:
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    raise typer.Exit(subprocess.run(command, cwd=folder).returncode)


def _released_workspace() -> Path:
    workspace = paths.CLASSROOM / "workspace"
    if not any(workspace.glob("*.ipynb")):
        from course.release import release

        typer.echo(f"No workspace in {workspace} yet: releasing the notebooks first.", err=True)
        return release(None)
    return workspace


@app.command(rich_help_panel=STUDENT)
def check(
    chapter: Annotated[list[str] | None, typer.Argument(help="Numbers or names; every chapter if left out.")] = None,
) -> None:
    """Run a chapter's visible checks against your `lib`.

    The exit code is 0 only when every check passes.

    **Examples**

    `course check 01` · `course check softmax attention` · `course check`
    """
    from course import check as checks

    raise typer.Exit(checks.main(chapter or []))


@app.command(rich_help_panel=STUDENT)
def status() -> None:
    """Show what is done: exercises, whose each module of `lib` is, points of the visible checks.

    In the repository it shows the class: who handed in what, and the marks.

    **Example**

    `course status`
    """
    from course import status as statuses

    raise typer.Exit(statuses.main())


@app.command(rich_help_panel=STUDENT)
def doctor() -> None:
    """Say what is installed, which device is used, and the command that mends each thing missing.

    The exit code is 1 if something that is needed does not work.

    **Example**

    `course doctor`
    """
    from course import doctor as doctors

    raise typer.Exit(doctors.main())


@app.command(rich_help_panel=STUDENT)
def chat(
    model: Annotated[
        Path | None,
        typer.Option(help="A Hugging Face folder or a GGUF file; SmolLM2-135M-Instruct if left out.", exists=True),
    ] = None,
    system: Annotated[str | None, typer.Option(help="What the model is told before the conversation.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="The longest answer.")] = 512,
    temperature: Annotated[float, typer.Option(min=0, help="0 always takes the likeliest token.")] = 0.7,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from this many likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest tokens that reach this.")] = 0.9,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same answers.")] = None,
) -> None:
    """Talk with a real model that runs through the pieces you wrote (chapters 00 to 14).

    **Examples**

    `course chat` · `course chat --temperature 0` · `course chat --model path/to/folder`
    """
    from course import chat as chats

    chats.main(model, system, max_new_tokens, seed, temperature=temperature, top_k=top_k, top_p=top_p)


@app.command(rich_help_panel=STUDENT)
def search(
    question: Annotated[str, typer.Argument(help="A question or a few words, in quotation marks.")],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many pages, and how many terms.")] = 3,
) -> None:
    """Find the pages and glossary entries nearest in meaning, with the encoder you wrote (chapter 10).

    **Examples**

    `course search "how do models know word order"` · `course search "why is writing slow" -n 5`
    """
    from course import search as searches

    searches.main(question, count)


if (Path(__file__).parent / "grading").is_dir():
    from course.grading import commands

    commands.register(app)

if __name__ == "__main__":
    main()
