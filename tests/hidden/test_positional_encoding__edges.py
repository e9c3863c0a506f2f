"""Hidden tests of chapter 04, continued: the edges of LearnedPositionalEncoding."""

from functools import partial

import torch

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student
from tests.hidden.test_positional_encoding import loaded


@hidden_test(
    "LearnedPositionalEncoding",
    "the table starts as normal random numbers, another table as others",
    hint="nn.init.normal_ with a standard deviation of 0.02, and no torch.manual_seed.",
)
def test_start(student: Student, check: Check) -> None:
    one, two = (student.LearnedPositionalEncoding(400, 30).weight for _ in range(2))
    weight = check.tensor(one, (400, 30), "weight").detach()
    share = float((weight.abs() > 0.04).double().mean())
    check.close(share, 0.0455, "the share of numbers beyond two standard deviations, 0.04", rtol=0.3)
    check.true(not torch.equal(one, two), "two tables start equal: leave the seed of the random numbers alone")


@hidden_test(
    "LearnedPositionalEncoding",
    "a negative offset is refused, however many tokens follow",
    hint="It is the first position that must have a row, not the last alone; the message names all three numbers.",
)
def test_negative_offsets(student: Student, check: Check) -> None:
    layer, weight = loaded(student, check, 23, 4)
    for offset, T in ((-1, 5), (-4, 4), (-7, 6)):
        call = partial(layer, check.randn(2, T, 4), offset=offset)
        check.raises(ValueError, call, f"offset {offset}, {T} tokens, 23 rows", mentions=(offset, T, 23))
    x = check.randn(2, 5, 4)
    check.close(layer(x), x.double() + weight[:5].double(), "offset 0")
