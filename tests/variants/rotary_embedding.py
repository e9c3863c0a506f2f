"""Right rotary embeddings that differ from the reference: each must get full marks."""

import math

import torch
from torch import Tensor

from course.grading.specimens import variant

# rope_frequencies


@variant("by the exponential of a logarithm, as the original transformer's code does")
def rope_frequencies(d: int, base: float = 10000.0) -> Tensor:
    if d % 2 or d <= 0:
        raise ValueError(f"the width of a head must be even, at least 2: it is {d}")
    return torch.exp(torch.arange(0, d, 2, dtype=torch.float64) * (-math.log(base) / d)).float()


@variant("number by number, in Python's own float64")
def rope_frequencies(d: int, base: float = 10000.0) -> Tensor:
    if d not in range(2, d + 1, 2):
        raise ValueError(f"d is {d}: it must be even and positive")
    return torch.tensor([base ** (-2 * i / d) for i in range(d // 2)], dtype=torch.float32)


@variant("evenly spaced logarithms")
def rope_frequencies(d: int, base: float = 10000.0) -> Tensor:
    if d < 2 or d % 2 == 1:
        raise ValueError(f"{d} is no even width")
    last = -(d - 2) / d
    return torch.logspace(0, last, d // 2, base=base, dtype=torch.float64).to(torch.float32)


# rope_cos_sin


@variant("by an outer product")
def rope_cos_sin(positions: Tensor, freqs: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.outer(positions.to(torch.float32), freqs.to(positions.device, torch.float32))
    return torch.cos(angles), torch.sin(angles)


@variant("angles in float64, converted at the end")
def rope_cos_sin(positions: Tensor, freqs: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.einsum("t,i->ti", positions.double(), freqs.double().to(positions.device))
    return angles.cos().float(), angles.sin().float()


@variant("as complex numbers of length one")
def rope_cos_sin(positions: Tensor, freqs: Tensor) -> tuple[Tensor, Tensor]:
    angles = positions.float().unsqueeze(-1) * freqs.float().to(positions.device).unsqueeze(0)
    clock = torch.polar(torch.ones_like(angles), angles)
    return clock.real.clone(), clock.imag.clone()


# apply_rope


@variant("as complex numbers, as Llama's own code does")
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    dtype = torch.promote_types(x.dtype, cos.dtype)
    y, clock = x.to(dtype), torch.complex(cos.to(dtype), sin.to(dtype))
    if layout == "interleaved":
        pairs = torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * clock).flatten(-2).to(x.dtype)
    if layout != "half":
        raise ValueError(f"there are the layouts interleaved and half, not {layout}")
    pairs = torch.view_as_complex(torch.stack(y.split(x.shape[-1] // 2, dim=-1), dim=-1).contiguous())
    return torch.cat([(pairs * clock).real, (pairs * clock).imag], dim=-1).to(x.dtype)


@variant("by rotate_half, as Hugging Face's code does")
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    if layout not in ("interleaved", "half"):
        raise ValueError(f"layout is {layout!r}, and must be one of 'interleaved', 'half'")
    if layout == "half":
        a, b = x.tensor_split(2, dim=-1)
        beside, cos, sin = torch.cat((-b, a), dim=-1), torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
    else:
        beside = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
        cos, sin = cos.repeat_interleave(2, dim=-1), sin.repeat_interleave(2, dim=-1)
    return (x * cos + beside * sin).to(x.dtype)


@variant("matrices of two by two, one for each pair and position")
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    if layout not in ("interleaved", "half"):
        raise ValueError(f"{layout} is neither interleaved nor half")
    dtype = torch.promote_types(x.dtype, cos.dtype)
    turn = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2).to(dtype)  # (T, d / 2, 2, 2)
    shape = (-1, 2) if layout == "interleaved" else (2, -1)
    pairs = x.to(dtype).unflatten(-1, shape)
    if layout == "interleaved":
        return torch.einsum("tiac,bhtic->bhtia", turn, pairs).flatten(-2).to(x.dtype)
    return torch.einsum("tiac,bhtci->bhtai", turn, pairs).flatten(-2).to(x.dtype)


@variant("the half layout by reordering the columns for the interleaved one")
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    d = x.shape[-1]
    if layout == "half":
        order = torch.arange(d, device=x.device).view(2, -1).T.flatten()
    elif layout == "interleaved":
        order = torch.arange(d, device=x.device)
    else:
        raise ValueError(f"layout {layout!r}: must be 'interleaved' or 'half'")
    y = x[..., order]
    a, b = y[..., 0::2], y[..., 1::2]
    result = torch.empty_like(y, dtype=torch.promote_types(x.dtype, cos.dtype))
    result[..., 0::2], result[..., 1::2] = a * cos - b * sin, a * sin + b * cos
    return result[..., order.argsort()].to(x.dtype)


# interleaved_to_half and half_to_interleaved


@variant("by unflatten and a transpose")
def interleaved_to_half(weight: Tensor, n_heads: int) -> Tensor:
    if n_heads <= 0 or len(weight) % n_heads or len(weight) // n_heads % 2:
        raise ValueError(f"{len(weight)} rows do not make {n_heads} heads of even width (n_heads)")
    pairs = weight.unflatten(0, (n_heads, -1, 2))  # (n_heads, d / 2, 2, ...)
    return pairs.transpose(1, 2).reshape(weight.shape)


@variant("by a list of row numbers")
def interleaved_to_half(weight: Tensor, n_heads: int) -> Tensor:
    rows = weight.shape[0]
    if n_heads < 1 or rows % (n_heads * 2) != 0:
        raise ValueError(f"weight has {rows} rows, which is no even number for each of n_heads={n_heads}")
    d = rows // n_heads
    places = [h * d + i for h in range(n_heads) for start in (0, 1) for i in range(start, d, 2)]
    return weight.index_select(0, torch.tensor(places, device=weight.device))


@variant("by unflatten and a transpose, back")
def half_to_interleaved(weight: Tensor, n_heads: int) -> Tensor:
    if n_heads <= 0 or len(weight) % n_heads or len(weight) // n_heads % 2:
        raise ValueError(f"{len(weight)} rows do not make {n_heads} heads of even width (n_heads)")
    halves = weight.unflatten(0, (n_heads, 2, -1))  # (n_heads, 2, d / 2, ...)
    return halves.swapaxes(1, 2).reshape(weight.shape)


@variant("written to the rows where they belong")
def half_to_interleaved(weight: Tensor, n_heads: int) -> Tensor:
    rows = weight.shape[0]
    if n_heads < 1 or rows % (n_heads * 2) != 0:
        raise ValueError(f"weight has {rows} rows, which is no even number for each of n_heads={n_heads}")
    result = torch.empty_like(weight)
    d = rows // n_heads
    for h in range(0, rows, d):
        result[h : h + d : 2] = weight[h : h + d // 2]
        result[h + 1 : h + d : 2] = weight[h + d // 2 : h + d]
    return result
