"""What crosses the wall arrives as it was sent, and hostile bytes harm nobody."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from course.grading.hidden import Check, PropertyFailed
from course.grading.protocol import Decoder, Encoder, ProtocolError, pack, unpack
from course.grading.student import (
    LocalConnection,
    Patience,
    Session,
    SocketConnection,
    Student,
    StudentError,
    WorkerLost,
)
from course.grading.worker import in_this_process

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=20)
KEYS = st.text(max_size=5) | st.integers(-9, 9)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


def cross(value: Any, strict: bool = False) -> Any:
    encoder = Encoder(repr, strides=True)
    header, tensors = unpack(pack(encoder.encode(value), encoder.tensors)[8:])
    return Decoder(tensors, lambda key: key, strict).decode(header)


@given(VALUES)
def test_plain_values_arrive_as_they_were_sent(value: Any) -> None:
    assert cross(value) == value


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).reshape(2, 3, 4).transpose(0, 2),
        torch.arange(24).reshape(4, 6)[1::2, ::3],
        torch.randn(3, 1).expand(3, 5),
        torch.zeros(0, 3),
        torch.tensor(1.5),
        torch.ones(2, 3, dtype=torch.float16),
        torch.ones(2, 3, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.randn(2, 3, dtype=torch.float64).requires_grad_(),
    ],
    ids=lambda tensor: f"{list(tensor.shape)} {tensor.dtype}",
)
def test_tensors_arrive_with_their_strides(tensor: Tensor) -> None:
    arrived = cross({"x": [tensor, tensor]})["x"][1]
    assert torch.equal(arrived, tensor)
    assert arrived.dtype == tensor.dtype
    assert arrived.stride() == tensor.stride()
    assert arrived.requires_grad == tensor.requires_grad


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_an_error(frame: bytes) -> None:
    try:
        header, tensors = unpack(frame)
        Decoder(tensors, lambda key: key, strict=True).decode(header)
    except ProtocolError:
        pass


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["tensor", "list", "tuple", "dict", "dtype", "device", "handle"]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_tree_is_a_value_or_an_error(tree: Any) -> None:
    with contextlib.suppress(ProtocolError):
        Decoder([torch.ones(3)], lambda key: key, strict=True).decode(tree)


def test_a_forged_stride_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Decoder([torch.ones(1)], lambda key: key, strict=True).decode(["tensor", 0, [[2**40], [0]], False])


def test_a_deep_tree_is_refused() -> None:
    tree: Any = 1
    for _ in range(500):
        tree = ["list", [tree]]
    with pytest.raises(ProtocolError):
        Decoder([], lambda key: key, strict=True).decode(tree)


TWICE = ["list", [["tensor", 0, None, True]] * 2]
FORGED: dict[str, tuple[list[Tensor], Any, str]] = {
    "a tensor many times": ([torch.ones(3)], TWICE, "came twice"),
    "an empty tensor as long as a disk": ([torch.empty(2**40, 0)], ["tensor", 0, None, False], "empty tensor"),
    "keys that collide": ([], ["dict", [[n * (2**61 - 1), 0] for n in range(20_000)]], "more than 10,000 entries"),
    "a dtype that is a module": ([], ["dtype", "onnx"], "not a value"),
    "a dtype that is a function": ([], ["dtype", "softmax"], "not a value"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_value_cannot_fill_the_graders_memory_or_time(kind: str) -> None:
    tensors, tree, reason = FORGED[kind]
    with pytest.raises(ProtocolError, match=reason):
        Decoder(tensors, lambda key: key, strict=True).decode(tree)


def test_a_header_of_any_size_is_refused_unread() -> None:
    text = b"[" + b"[]," * 2**22 + b"0]"
    names = b"{" + b" " * 2**23 + b"}"
    for frame in (
        len(text).to_bytes(4, "big") + text,
        (2).to_bytes(4, "big") + b"{}" + len(names).to_bytes(8, "little") + names,
    ):
        with pytest.raises(ProtocolError, match="not a frame"):
            unpack(frame)
    with pytest.raises(ProtocolError, match="larger than 8 MiB"):
        pack("x" * 2**24, [])


MODULE = """
import torch
from torch import nn


def cube(x, power=3):
    return x**power


def broken(x):
    raise ValueError("x must be positive")


class Scale(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.full((d,), 2.0))

    def forward(self, x):
        return x * self.weight
"""


@pytest.fixture
def student() -> Any:
    with in_this_process() as worker:
        session = Session(LocalConnection(worker.handle))
        session.begin({"__init__.py": b""}, "example", seed=1)
        assert session.add(MODULE) is None
        yield Student(session)


def test_an_object_of_the_students_is_never_walked_through(student: Student) -> None:
    endless = student.torch.nn.Identity()
    with pytest.raises(TypeError, match="not iterable"):
        list(endless)
    with pytest.raises(TypeError, match="not iterable"):
        assert 1 in endless


def test_an_answer_that_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the answer never."""
    monkeypatch.setattr("course.grading.student.CALL_SECONDS", 0.3)
    ours, theirs = socket.socketpair()

    def drip() -> None:
        with contextlib.suppress(OSError):
            theirs.sendall((2**20).to_bytes(8, "big"))
            while True:
                theirs.sendall(b"x")
                time.sleep(0.0002)

    thread = threading.Thread(target=drip)
    thread.start()
    start = time.monotonic()
    with ours, pytest.raises(WorkerLost, match="did not finish"):
        SocketConnection(ours, Patience()).exchange(b"{}")
    thread.join()
    assert time.monotonic() - start < 5


def test_an_imaginary_part_is_not_overlooked() -> None:
    with pytest.raises(PropertyFailed, match="expected real numbers, got complex64"):
        Check(1).close(torch.tensor([1 + 2j]), torch.tensor([1.0]), "the result")


def test_gradients_cross(student: Student) -> None:
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(student.cube(x, power=4).sum(), x)
    torch.testing.assert_close(gradient, 4 * x.detach() ** 3)
    assert torch.autograd.gradcheck(student.cube, (x,))


def test_gradients_of_parameters_stay_and_can_be_fetched(student: Student) -> None:
    module = student.Scale(3)
    x = torch.tensor([1.0, 2.0, 3.0])
    module(x).sum().backward()
    module(x).sum().backward()
    torch.testing.assert_close(module.grads()["weight"], 2 * x)
    module.zero_grad()
    assert module.grads()["weight"] is None


def test_objects_cross_as_handles(student: Student) -> None:
    module = student.Scale(2)
    module.load_state_dict({"weight": torch.tensor([5.0, 7.0])})
    torch.testing.assert_close(module.weight.detach(), torch.tensor([5.0, 7.0]))
    stack = student.torch.nn.Sequential(module, student.torch.nn.Identity())
    torch.testing.assert_close(stack(torch.ones(2)).detach(), torch.tensor([5.0, 7.0]))


def test_an_error_names_its_kind_message_and_line(student: Student) -> None:
    with pytest.raises(StudentError) as raised:
        student.broken(torch.ones(1))
    assert raised.value.kinds[:2] == ["ValueError", "Exception"]
    assert str(raised.value) == (
        'your code raised ValueError: x must be positive, at `raise ValueError("x must be positive")`'
    )


def test_a_missing_name_says_so(student: Student) -> None:
    with pytest.raises(StudentError, match="no attribute 'softmax'"):
        student.softmax(torch.ones(1))
