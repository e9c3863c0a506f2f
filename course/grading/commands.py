"""The instructor's commands: they exist in the repository and not in a student's workspace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from course import paths

BOOK = "Instructor: the book"
CLASS = "Instructor: the class"
PROJECT = "Instructor: the project"

Chapters = Annotated[
    list[str] | None, typer.Argument(help="Numbers (`1`, `01`), names (`softmax`) or ids; all if left out.")
]
Students = Annotated[
    list[str] | None, typer.Option("--student", "-s", help="Only this student; may be given more than once.")
]


def register(app: typer.Typer) -> None:
    """Add the instructor's commands to the command line."""
    app.command(rich_help_panel=BOOK)(book)
    app.command(rich_help_panel=BOOK)(serve)
    for command in (release, collect, grade, feedback, export):
        app.command(rich_help_panel=CLASS)(command)
    app.command("new-chapter", rich_help_panel=PROJECT)(new_chapter)
    bench = typer.Typer(no_args_is_help=True, help="Measure speed, side by side with other tools.")
    bench.command("grade")(bench_grade)
    bench.command("lib")(bench_lib)
    app.add_typer(bench, name="bench", rich_help_panel=PROJECT)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the classroom's lock; a second command that would write there at the same time is told so."""
    from course.grading import files

    with files.lock(paths.CLASSROOM / "course.lock", "another `course` command on this classroom"):
        yield


def _ids(keys: list[str] | None) -> list[str] | None:
    from course import chapters

    return [chapters.find(key).id for key in keys] if keys else None


def book(
    with_solutions: Annotated[
        bool, typer.Option("--with-solutions", help="Fold each solution under its exercise.")
    ] = False,
) -> None:
    """Build the book into `_build/html`.

    Every cell is run, with the reference solutions; a failing cell or a warning fails the build.
    Pages whose sources, solutions and packages are unchanged come from the cache.

    **Examples**

    `course book`

    `course book --with-solutions` after the deadline, or for self-study
    """
    from course.book.build import build

    (paths.ROOT / "_build").mkdir(exist_ok=True)  # a file in its place is told of in one line
    folder = build(with_solutions=with_solutions)
    typer.echo(f"The book: {folder / 'index.html'}   (course serve shows it)")


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the local server.")] = 8000,
) -> None:
    """Serve the built book on this machine, for a browser.

    **Example**

    `course serve --port 8080`
    """
    from course.book import serve as server

    server.serve(port)


def release(keys: Chapters = None) -> None:
    """Make the students' notebooks and workspace (a folder and a zip), and prove that nothing leaks.

    **Examples**

    `course release` · `course release 00 01`
    """
    from course.release import release as make

    with _alone():
        workspace = make(_ids(keys))
    typer.echo(f"The student workspace: {workspace}")


def collect(
    source: Annotated[
        Path, typer.Argument(help="A folder of submissions, an LMS's zip download, or the root of nbgrader's exchange.")
    ],
    chapter: Annotated[
        str | None, typer.Option("--chapter", "-c", help="The chapter handed in; read from file names if not given.")
    ] = None,
    layout: Annotated[
        str, typer.Option(help="How the source is laid out: auto, folders, moodle, canvas or exchange.")
    ] = "auto",
    roster: Annotated[
        Path | None, typer.Option(help="The class list, a CSV file; `classroom/roster.csv` if there is one.")
    ] = None,
) -> None:
    """Take in submissions: from folders, an LMS zip download, or nbgrader's exchange.

    Every file that is refused is named with the reason; the others are taken in. What a new
    hand-in replaces is kept in `classroom/history`.

    **Examples**

    `course collect handed-in/`

    `course collect ~/Downloads/submissions.zip --chapter 01 --layout moodle --roster class.csv`
    """
    from course.grading.collect import collect as take

    with _alone():
        take(source, chapter, layout, roster)


def grade(
    keys: Chapters = None,
    students: Students = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="At once; one per core if not given.")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="Grade on the Dask cluster at this address, such as tcp://10.0.0.5:8786."),
    ] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Run submissions without the sandbox: for your own work only.")
    ] = False,
) -> None:
    """Grade the submissions against the hidden tests, each in a sandbox of its own.

    Grading the same submission twice changes nothing, and after a crash or a kill the next run
    carries on. The exit code is 1 if a submission could not be graded.

    **Examples**

    `course grade` · `course grade 01 --student ada --student bob` · `course grade 02 --jobs 8`
    """
    from course.grading.run import grade as run

    with _alone():
        run(_ids(keys), students or None, jobs, scheduler, unsafe)


def feedback(keys: Chapters = None, students: Students = None) -> None:
    """Write each graded student's feedback page: every property with a tick or a cross, and hints.

    **Examples**

    `course feedback` · `course feedback 01 --student ada`
    """
    from course.grading.feedback import feedback as write

    with _alone():
        write(_ids(keys), students or None)


def export(
    target: Annotated[Path, typer.Argument(help="The CSV file to write.")] = Path("marks.csv"),
    layout: Annotated[str, typer.Option(help="Columns: plain, moodle or canvas.")] = "plain",
) -> None:
    """Write the class's marks to a CSV file, in the layout that your LMS imports.

    **Examples**

    `course export` · `course export grades.csv --layout moodle`
    """
    from course.grading.export import export as write

    write(target, layout)
    typer.echo(f"The marks: {target}")


def new_chapter(
    number: Annotated[int, typer.Argument(min=0, max=99, help="The chapter's number.")],
    name: Annotated[str, typer.Argument(help="The module's name: lower case, digits and underscores.")],
    title: Annotated[str, typer.Argument(help="The title on the page.")],
) -> None:
    """Write a new chapter's files from templates that already pass the tests of every chapter.

    **Example**

    `course new-chapter 03 multi_head_attention "Multi-head attention"`
    """
    from course.new_chapter import create

    for path in create(number, name, title):
        typer.echo(f"wrote {path.relative_to(paths.ROOT)}")


def bench_grade(
    keys: Chapters = None,
    submissions: Annotated[int, typer.Option("--submissions", "-n", min=2, help="How many to grade.")] = 24,
    rounds: Annotated[
        int, typer.Option("--rounds", "-r", min=1, help="Parts that they are graded in, by both sides in turn.")
    ] = 2,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="At once, here; one per core if not given.")
    ] = None,
) -> None:
    """Grade the same submissions here and by stock nbgrader, in turn, and compare speed and memory.

    **Example**

    `course bench grade --submissions 24 --rounds 3` · `course bench grade 01`
    """
    from course.bench_grade import grade as measure

    measure(_ids(keys), submissions, rounds, jobs)


def bench_lib(
    rounds: Annotated[int, typer.Option("--rounds", "-r", min=1, help="How often both sides are measured.")] = 3,
    only: Annotated[str | None, typer.Option(help="One measurement alone: decode or train.")] = None,
) -> None:
    """Write with SmolLM2 and train a small model, here and in the reference library, and compare speed and memory.

    **Example**

    `course bench lib` · `course bench lib --only decode --rounds 5`
    """
    from course.bench_lib import main as measure

    measure(rounds, only)
