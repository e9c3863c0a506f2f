"""Helpers of the hidden tests that must run beside the student's code; public, and no test among them."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class _Largest(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operator returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in tree_flatten(result)[0]:
            if isinstance(value, Tensor):
                # An expanded view reports its elements but holds only its storage.
                held = value.untyped_storage().nbytes() // max(value.element_size(), 1)
                self.elements = max(self.elements, min(value.numel(), held))
        return result


class _Made(TorchDispatchMode):
    """Adds up the elements of all tensors that operators make; a view of what was there makes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {x.untyped_storage().data_ptr() for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)}
        result = function(*args, **(kwargs or {}))
        for value in tree_flatten(result)[0]:
            if isinstance(value, Tensor) and value.untyped_storage().data_ptr() not in given:
                self.elements += value.numel()
        return result


class _Operators(TorchDispatchMode):
    """Records the names of the operators that run, composite ones taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    """Records the names of torch's Python functions that are called, composite ones whole."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function.__name__)
        return function(*args, **(kwargs or {}))


def largest_tensor(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Elements of the largest tensor that `function(*args, **kwargs)` makes on its way."""
    with _Largest() as record:
        function(*args, **kwargs)
    return record.elements


def made(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Elements of all tensors that `function(*args, **kwargs)` makes on its way, added up: a measure of its work."""
    with _Made() as record:
        function(*args, **kwargs)
    return record.elements


def kept_bytes(thing: Any) -> int:
    """Bytes of memory that the tensors in an object's attributes keep alive, a whole tensor for a view of it."""
    storages: dict[int, int] = {}
    _storages(thing, storages, set())
    return sum(storages.values())


def _storages(thing: Any, found: dict[int, int], seen: set[int]) -> None:
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        found[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
    elif isinstance(thing, dict):
        for value in thing.values():
            _storages(value, found, seen)
    elif isinstance(thing, list | tuple | set | deque):
        for value in thing:
            _storages(value, found, seen)
    elif hasattr(thing, "__dict__"):
        _storages(vars(thing), found, seen)


def operators(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """Names of the torch operators that `function(*args, **kwargs)` runs, in order, such as `_softmax`."""
    with _Operators() as record:
        function(*args, **kwargs)
    return record.names


def functions(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """Names of the torch functions and methods that run, composite ones such as `rms_norm` under their own."""
    with _Functions() as record:
        function(*args, **kwargs)
    return record.names


def unchanged(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """True if the call leaves every tensor argument as it was: its numbers, `requires_grad` and `.grad`."""
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
    before = [(x.detach().clone(), x.requires_grad, None if x.grad is None else x.grad.clone()) for x in tensors]
    function(*args, **kwargs)
    return all(
        _same(old, new) and asks == new.requires_grad and _same_gradient(gradient, new.grad)
        for (old, asks, gradient), new in zip(before, tensors, strict=True)
    )


def _same_gradient(old: Tensor | None, new: Tensor | None) -> bool:
    return old is new is None or (old is not None and new is not None and _same(old, new))


def _same(old: Tensor, new: Tensor) -> bool:
    if old.shape != new.shape or old.dtype != new.dtype:
        return False
    same = old == new.detach()
    if old.is_floating_point():
        same |= old.isnan() & new.detach().isnan()
    return bool(same.all())


def grads(module: nn.Module) -> dict[str, Tensor | None]:
    """The gradient of each parameter, None where none has arrived."""
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def device(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Where the tensor that the call returns is, such as `cpu` or `meta`."""
    return str(function(*args, **kwargs).device)


def results(function: Callable[..., Any], calls: Sequence[Sequence[Any]]) -> list[Any]:
    """What `function(*call)` returned for each of the calls, in order, as it stands after the last one."""
    return [function(*call) for call in calls]


def generate(model: Any, ids: Tensor, max_new_tokens: int, **sampling: Any) -> Tensor:
    """What `generate` of chapter 09 writes, which reads everything again for each token."""
    written: Tensor = importlib.import_module("lib.decoder").generate(model, ids, max_new_tokens, **sampling)
    return written


class Attend:
    """An `attend` to hand to a layer: torch's own attention times `factor`; keeps the shapes it was called with."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.shapes: list[list[list[int]]] = []

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, /) -> Tensor:
        """`factor` times the attention of `(B, H, T, d)` queries, in groups where there are fewer heads of keys."""
        self.shapes.append([list(x.shape) for x in (q, k, v)])
        grouped = k.shape[1] < q.shape[1]
        return self.factor * functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=grouped)


def config(**fields: Any) -> Any:
    """The plan of a model, `lib.config.Config`; chapters before it have no use for it."""
    return importlib.import_module("lib.config").Config(**fields)


def language_model(**fields: Any) -> Any:
    """A `LanguageModel` of the plan with these fields, from `lib.model`; chapters before it have no use for it."""
    return importlib.import_module("lib.model").LanguageModel(config(**fields))


class Times(nn.Module):
    """A sublayer that multiplies by `factor`, and keeps the names of the keywords it was called with."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.seen: list[list[str]] = []

    def forward(self, x: Tensor, **kwargs: Any) -> Tensor:
        """`factor * x`."""
        self.seen.append(sorted(kwargs))
        return self.factor * x


class Reader(nn.Module):
    """A toy language model that keeps a cache; its scores depend on every token read, and on their order.

    Each layer's key of a token is its id, its value its position, counted from `cache.length`. It keeps
    `read`, the number of tokens handed over in each call, `held`, the cache's length at each call (-1 where
    there was none), and `recorded`, whether torch recorded for gradients.
    """

    def __init__(self, n_layers: int, vocab_size: int) -> None:
        super().__init__()
        self.config = SimpleNamespace(n_layers=n_layers)
        self.ids = torch.arange(1.0, vocab_size + 1, dtype=torch.float64)
        self.read: list[int] = []
        self.held: list[int] = []
        self.recorded: list[bool] = []

    def forward(self, ids: Tensor, cache: Any = None) -> Tensor:
        """Scores `(B, T, V)` of the next id after each of the tokens `(B, T)`."""
        start = 0 if cache is None else cache.length
        self.read.append(ids.shape[1])
        self.held.append(-1 if cache is None else start)
        self.recorded.append(torch.is_grad_enabled())
        positions = torch.arange(start + 1.0, start + ids.shape[1] + 1, dtype=torch.float64)
        scores = torch.zeros(*ids.shape, len(self.ids), dtype=torch.float64)
        for layer in range(self.config.n_layers):
            k = (ids + layer + 1).double()[:, None, :, None]  # (B, 1, T, 1)
            v = positions.expand(ids.shape)[:, None, :, None]
            if cache is not None:
                k, v = cache.update(layer, k, v)
            order = torch.arange(1.0, k.shape[2] + 1, dtype=torch.float64)
            sums = (k * v)[:, 0, :, 0].mul(order).cumsum(dim=1)[:, -ids.shape[1] :]  # (B, T)
            scores += torch.sin(0.7 * (sums % 997)[..., None] * self.ids)
        return 3 * scores


class SumModel:
    """A model whose likeliest next id is the sum of all ids read so far, modulo `V`; it notes how it was called."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.lengths: list[int] = []
        self.with_gradient: list[bool] = []

    def __call__(self, ids: Tensor) -> Tensor:
        """Scores `(B, T, V)` of ids `(B, T)`."""
        self.lengths.append(ids.shape[1])
        self.with_gradient.append(torch.is_grad_enabled())
        return 30.0 * functional.one_hot(ids.cumsum(dim=1) % self.vocab_size, self.vocab_size).float()


class CountingExperts(nn.ModuleList):
    """Experts, `tanh(W x + b)` each, that keep what they were called with.

    Args:
        weights: `(E, D, D)`, one matrix an expert.
        biases: `(E, D)`.
    """

    def __init__(self, weights: Tensor, biases: Tensor) -> None:
        super().__init__(CountingExpert(w, b) for w, b in zip(weights, biases, strict=True))

    def calls(self) -> list[int]:
        """How often each expert was called."""
        return [len(expert.seen) for expert in self._all()]

    def rows(self) -> list[list[list[float]]]:
        """The rows that each expert was given, those of all its calls in order."""
        return [[row for x in expert.seen for row in x.tolist()] for expert in self._all()]

    def _all(self) -> list[CountingExpert]:
        return [expert for expert in self if isinstance(expert, CountingExpert)]


class CountingExpert(nn.Module):
    """One of `CountingExperts`."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight.detach().clone()), nn.Parameter(bias.detach().clone())
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """Rows, `(n, D)`, to rows, `(n, D)`."""
        self.seen.append(x.detach().clone())
        return torch.tanh(functional.linear(x, self.weight, self.bias))
