"""`python -m course` is the `course` command."""

from course.cli import app

if __name__ == "__main__":
    app(prog_name="course")
