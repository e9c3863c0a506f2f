"""What crosses the wall between the grader and a student's code: frames of plain values and tensors.

A frame is a length, a JSON header and a safetensors block. Plain values cross by value; every
other object stays where it is and crosses as a handle. Nothing is ever pickled, so reading a frame
executes nothing, whoever wrote it. Both sides use this module.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

MAX_FRAME = 64 * 2**20  # bytes; larger results than this are refused
MAX_HEADER = 8 * 2**20  # bytes of JSON; read, it can take 25 times as much memory
MAX_DEPTH = 50  # nesting of lists in a value
MAX_ENTRIES = 10_000  # of all dicts in a value; chosen keys can all collide, and then time grows with the square
DTYPES = {str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)}

Json = Any


class ProtocolError(Exception):
    """A frame that does not keep the format, or a value that cannot cross."""


def pack(header: Json, tensors: list[Tensor]) -> bytes:
    """One frame: 8 bytes of length, 4 of header length, the header, the tensors."""
    text = json.dumps(header).encode()
    block = save({str(i): tensor for i, tensor in enumerate(tensors)}) if tensors else b""
    if len(text) > MAX_HEADER:
        raise ProtocolError(f"the value is larger than {MAX_HEADER // 2**20} MiB, tensors aside")
    if len(text) + len(block) > MAX_FRAME:
        raise ProtocolError(f"the value is larger than {MAX_FRAME // 2**20} MiB")
    return struct.pack(">QI", len(text) + len(block) + 4, len(text)) + text + block


def unpack(frame: bytes) -> tuple[Json, list[Tensor]]:
    """The header and tensors of a frame's bytes after its length.

    Raises:
        ProtocolError: the bytes are not a frame.
    """
    try:
        (size,) = struct.unpack(">I", frame[:4])
        block = frame[4 + size :]
        if max(size, int.from_bytes(block[:8], "little")) > MAX_HEADER:
            raise ValueError("a header too large")
        header = json.loads(frame[4 : 4 + size].decode())
        named = load(block) if block else {}
        return header, [named[str(i)] for i in range(len(named))]
    except Exception as error:  # whatever a hostile frame provokes
        raise ProtocolError(f"not a frame ({type(error).__name__})") from error


class Encoder:
    """Turns values into JSON and a list of tensors. `handle` names the objects that stay behind.

    With `strides` a tensor's layout in memory crosses too, so that a test can hand over a transposed
    or expanded view; results cross contiguous.
    """

    def __init__(self, handle: Callable[[Any], Json], strides: bool) -> None:
        self.handle = handle
        self.strides = strides
        self.tensors: list[Tensor] = []
        self.differentiable: list[Tensor] = []  # those that require grad, in order

    def encode(self, value: Any, depth: int = 0) -> Json:
        """The JSON form of a value; lists starting with a tag stand for everything but scalars."""
        if depth > MAX_DEPTH:
            raise ProtocolError("the value is nested too deeply")
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Tensor):
            return self._tensor(value)
        if type(value) is list:
            return ["list", [self.encode(item, depth + 1) for item in value]]
        if isinstance(value, tuple):
            return ["tuple", [self.encode(item, depth + 1) for item in value]]
        if isinstance(value, dict):
            pairs = [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in value.items()]
            return ["dict", pairs]
        if isinstance(value, torch.dtype):
            return ["dtype", str(value).removeprefix("torch.")]
        if isinstance(value, torch.device):
            return ["device", str(value)]
        return ["handle", self.handle(value)]

    def _tensor(self, tensor: Tensor) -> Json:
        grad = tensor.requires_grad
        if grad:
            self.differentiable.append(tensor)
        data = tensor.detach().cpu()
        layout = None
        if self.strides and not data.is_contiguous() and data.numel():
            layout = [list(data.shape), list(data.stride())]
            span = 1 + sum((size - 1) * stride for size, stride in zip(*layout, strict=True))
            data = torch.as_strided(data, (span,), (1,))
        self.tensors.append(data.contiguous().clone())
        return ["tensor", len(self.tensors) - 1, layout, grad]


class Decoder:
    """Turns JSON and tensors back into values. `resolve` gives the object behind a handle.

    With `strict` (the trusted side) a tensor must come contiguous and once, and an empty one must not
    have a huge shape: forged, each could make whatever is computed from it fill the memory.
    """

    def __init__(self, tensors: list[Tensor], resolve: Callable[[Json], Any], strict: bool) -> None:
        self.tensors = tensors
        self.resolve = resolve
        self.strict = strict
        self.differentiable: list[Tensor] = []
        self._come: set[int] = set()
        self._entries = 0

    def decode(self, tree: Json) -> Any:
        """The value of a JSON tree.

        Raises:
            ProtocolError: the tree does not keep the format.
        """
        try:
            return self._decode(tree, 0)
        except ProtocolError:
            raise
        except Exception as error:
            raise ProtocolError(f"not a value ({type(error).__name__})") from error

    def _decode(self, tree: Json, depth: int) -> Any:
        if not isinstance(tree, list):
            return tree
        if depth > MAX_DEPTH:
            raise ProtocolError("the value is nested too deeply")
        tag, content, *more = tree
        if tag == "tensor":
            return self._tensor(content, *more)
        if tag == "list":
            return [self._decode(item, depth + 1) for item in content]
        if tag == "tuple":
            return tuple(self._decode(item, depth + 1) for item in content)
        if tag == "dict":
            self._entries += len(content)
            if self._entries > MAX_ENTRIES:
                raise ProtocolError(f"dicts have more than {MAX_ENTRIES:,} entries")
            return {self._decode(k, depth + 1): self._decode(v, depth + 1) for k, v in content}
        if tag == "dtype":
            return DTYPES[content]
        if tag == "device":
            return torch.device(content)
        if tag == "handle":
            return self.resolve(content)
        raise ProtocolError(f"unknown tag {tag!r}")

    def _tensor(self, index: int, layout: Json, grad: bool) -> Tensor:
        tensor = self.tensors[index]
        if self.strict:
            self._examine(tensor, layout)
        elif layout is not None:
            tensor = torch.as_strided(tensor, *layout)
        if grad:
            if not self.strict:
                tensor.requires_grad_()
            self.differentiable.append(tensor)
        return tensor

    def _examine(self, tensor: Tensor, layout: Json) -> None:
        if layout is not None:
            raise ProtocolError("a result must be contiguous")
        if id(tensor) in self._come:
            raise ProtocolError("a tensor came twice")
        self._come.add(id(tensor))
        if math.prod(max(size, 1) for size in tensor.shape) * tensor.element_size() > MAX_FRAME:
            raise ProtocolError(f"an empty tensor has the shape {list(tensor.shape)}")
