"""Wrong turns and reorderings, each with the property that must catch it."""

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# apply_rope

edit(
    "apply_rope",
    "the layout ignored: always interleaved",
    old='if layout == "interleaved":',
    new='if layout in ("interleaved", "half"):',
    caught_by="known values in the half layout: columns i and i + d/2 are a pair",
)
edit(
    "apply_rope",
    "the layout ignored: always halves",
    old='elif layout == "half":',
    new='if layout in ("interleaved", "half"):',
    caught_by="known values in the interleaved layout: columns 0 and 1 are a pair",
)
edit(
    "apply_rope",
    "the two layouts exchanged",
    old='layout == "interleaved"',
    new='layout == "half"',
    caught_by="known values in the interleaved layout: columns 0 and 1 are a pair",
)
edit(
    "apply_rope",
    "halves by default",
    old='layout: str = "interleaved"',
    new='layout: str = "half"',
    caught_by="known values in the interleaved layout: columns 0 and 1 are a pair",
)
edit(
    "apply_rope",
    "interleaved pairs put back as halves",
    old="torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)",
    new="torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)",
    caught_by="known values in the interleaved layout: columns 0 and 1 are a pair",
)
edit(
    "apply_rope",
    "halves put back in turn",
    old="torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)",
    new="torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)",
    caught_by="known values in the half layout: columns i and i + d/2 are a pair",
)
edit(
    "apply_rope",
    "turned backwards",
    old="a * cos - b * sin, a * sin + b * cos",
    new="a * cos + b * sin, b * cos - a * sin",
    caught_by="a positive angle turns the first axis towards the second",
)
edit(
    "apply_rope",
    "a reflection: the second entry's sign wrong",
    old="a * sin + b * cos",
    new="a * sin - b * cos",
    caught_by="a positive angle turns the first axis towards the second",
)
edit(
    "apply_rope",
    "both signs plus",
    old="a * cos - b * sin",
    new="a * cos + b * sin",
    caught_by="a positive angle turns the first axis towards the second",
)
edit(
    "apply_rope",
    "sine and cosine exchanged",
    old="a * cos - b * sin, a * sin + b * cos",
    new="a * sin - b * cos, a * cos + b * sin",
    caught_by="known values in the interleaved layout: columns 0 and 1 are a pair",
)
edit(
    "apply_rope",
    "the first entry's new value used for the second",
    old="    return turned",
    new="    a = a * cos - b * sin\n"
    "    pair = [a, a * sin + b * cos]\n"
    '    turned = torch.stack(pair, -1).flatten(-2) if layout == "interleaved" else torch.cat(pair, -1)\n'
    "    return turned",
    caught_by="a positive angle turns the first axis towards the second",
)
edit(
    "apply_rope",
    "the dtype of x lost",
    old="turned.to(x.dtype)",
    new="turned",
    caught_by="the result has the dtype of x",
)
edit(
    "apply_rope",
    "always float32",
    old="turned.to(x.dtype)",
    new="turned.float()",
    caught_by="the result has the dtype of x",
)
edit(
    "apply_rope",
    "cosines rounded to the dtype of x first",
    old="if layout ==",
    new="cos, sin = cos.to(x.dtype), sin.to(x.dtype)\n    if layout ==",
    caught_by="the turn is computed in the wider of the two dtypes",
)
edit(
    "apply_rope",
    "float64 squeezed through float32",
    old="if layout ==",
    new="dtype = x.dtype\n    x = x.float().to(dtype)\n    if layout ==",
    caught_by="the turn is computed in the wider of the two dtypes",
)
edit(
    "apply_rope",
    "an unknown layout taken for the half one",
    old='elif layout == "half":',
    new="elif True:",
    caught_by="another layout is a ValueError that names it and the two that there are",
)
edit(
    "apply_rope",
    "the gradient cut",
    old="return turned",
    new="turned = turned.detach()\n    return turned",
    caught_by="gradients flow back through the turn",
)


@mutant("only the first head turned", caught_by="the angle goes by position, the same for every head and text")
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    if layout == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    elif layout == "half":
        a, b = x.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    else:
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    return torch.cat([turned[:, :1].to(x.dtype), x[:, 1:]], dim=1)


@mutant("the angle goes by the head", caught_by="the angle goes by position, the same for every head and text")
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    cos, sin = cos[:, None, :], sin[:, None, :]  # (T, 1, d / 2): right for (B, T, H, d)
    if layout == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    elif layout == "half":
        a, b = x.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    else:
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    return turned.to(x.dtype)


@mutant(
    "cosines each twice in a row beside halves, whatever the layout",
    caught_by="every pair has its own angle, at every position",
)
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    if layout not in ("interleaved", "half"):
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    a, b = x.chunk(2, dim=-1)
    beside = torch.cat([-b, a], dim=-1)
    return (x * cos.repeat_interleave(2, -1) + beside * sin.repeat_interleave(2, -1)).to(x.dtype)


@mutant(
    "neighbours exchanged beside cosines repeated as a whole",
    caught_by="every pair has its own angle, at every position",
)
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    if layout == "half":
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)
    if layout != "interleaved":
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    beside = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return (x * cos.repeat(1, 2) + beside * sin.repeat(1, 2)).to(x.dtype)


@mutant("added, as a position vector is", caught_by="a score depends only on the gap: 2 and 5 score as 200 and 203")
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    if layout not in ("interleaved", "half"):
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    both = torch.stack([cos, sin], -1).flatten(-2) if layout == "interleaved" else torch.cat([cos, sin], -1)
    return (x + both).to(x.dtype)


@mutant(
    "only the first entry of each pair turned",
    caught_by="a score depends only on the gap: 2 and 5 score as 200 and 203",
)
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    if layout == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]
        turned = torch.stack([a * cos - b * sin, b.expand_as(a * cos)], dim=-1).flatten(-2)
    elif layout == "half":
        a, b = x.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, b.expand_as(a * cos)], dim=-1)
    else:
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    return turned.to(x.dtype)


@mutant(
    "written into the caller's queries", caught_by="queries, cosines and sines stay as they were, in any memory order"
)
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    if layout not in ("interleaved", "half"):
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    first = slice(0, None, 2) if layout == "interleaved" else slice(0, x.shape[-1] // 2)
    second = slice(1, None, 2) if layout == "interleaved" else slice(x.shape[-1] // 2, None)
    a, b = x[..., first], x[..., second]
    one, two = a * cos - b * sin, a * sin + b * cos
    x.data[..., first], x.data[..., second] = one.to(x.dtype), two.to(x.dtype)
    return x


@mutant(
    "view where heads may be transposed",
    caught_by="queries, cosines and sines stay as they were, in any memory order",
)
def apply_rope(x: Tensor, cos: Tensor, sin: Tensor, layout: str = "interleaved") -> Tensor:
    B, H, T, d = x.shape
    if layout == "interleaved":
        a, b = x.view(B, H, T * d // 2, 2).unbind(-1)
        a, b = a.reshape(B, H, T, d // 2), b.reshape(B, H, T, d // 2)
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).view(B, H, T, d)
    elif layout == "half":
        a, b = x.chunk(2, dim=-1)
        turned = torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
    else:
        raise ValueError(f"layout must be 'interleaved' or 'half', got {layout!r}")
    return turned.to(x.dtype)


# interleaved_to_half and half_to_interleaved

edit(
    "interleaved_to_half",
    "the two ways exchanged",
    old="torch.cat([heads[:, 0::2], heads[:, 1::2]], dim=1)",
    new="torch.stack(heads.chunk(2, dim=1), dim=2)",
    caught_by="known rows: 0, 2, 4 and then 1, 3, 5 for a head six wide",
)
edit(
    "half_to_interleaved",
    "the same reordering both ways",
    old="torch.stack([first, second], dim=2)",
    new="torch.cat([torch.cat([first, second], 1)[:, 0::2], torch.cat([first, second], 1)[:, 1::2]], dim=1)",
    caught_by="known rows of the way back: 0, 3, 1, 4, 2, 5",
)
edit(
    "half_to_interleaved",
    "the second half's row before the first's",
    old="[first, second]",
    new="[second, first]",
    caught_by="known rows of the way back: 0, 3, 1, 4, 2, 5",
)
edit(
    "interleaved_to_half",
    "odd rows first",
    old="[heads[:, 0::2], heads[:, 1::2]]",
    new="[heads[:, 1::2], heads[:, 0::2]]",
    caught_by="the half layout with the new rows scores as the interleaved one with the old",
)
edit(
    "interleaved_to_half",
    "reordered across all heads at once",
    old="_rows_of_heads(weight, n_heads)",
    new="_rows_of_heads(weight, n_heads).flatten(0, 1)[None]",
    caught_by="each head is reordered by itself",
)
edit(
    "half_to_interleaved",
    "reordered across all heads at once, on the way back",
    old="_rows_of_heads(weight, n_heads)",
    new="_rows_of_heads(weight, n_heads).flatten(0, 1)[None]",
    caught_by="each head is reordered by itself",
)
edit(
    "interleaved_to_half",
    "heads and rows of a head exchanged",
    old="heads = _rows_of_heads(weight, n_heads)",
    new="heads = _rows_of_heads(weight, n_heads)\n"
    "    heads = weight.reshape(heads.shape[1], n_heads, *weight.shape[1:]).transpose(0, 1)",
    caught_by="each head is reordered by itself",
)
edit(
    "interleaved_to_half",
    "handed back as it came",
    old="torch.cat([heads[:, 0::2], heads[:, 1::2]], dim=1)",
    new="heads",
    caught_by="the half layout with the new rows scores as the interleaved one with the old",
)
edit(
    "half_to_interleaved",
    "only a rounded copy comes back",
    old=".reshape(weight.shape)",
    new=".reshape(weight.shape).bfloat16().to(weight.dtype)",
    caught_by="there and back gives the weight again",
)
edit(
    "interleaved_to_half",
    "the columns reordered, not the rows",
    old="torch.cat([heads[:, 0::2], heads[:, 1::2]], dim=1)",
    new="torch.cat([heads[..., 0::2], heads[..., 1::2]], dim=-1)",
    caught_by="known rows: 0, 2, 4 and then 1, 3, 5 for a head six wide",
)
edit(
    "interleaved_to_half",
    "a bias refused",
    old="heads = _rows_of_heads(weight, n_heads)",
    new="rows, D = weight.shape\n    heads = _rows_of_heads(weight, n_heads)",
    caught_by="a bias is reordered like the rows of its weight",
)
edit(
    "half_to_interleaved",
    "a bias refused, on the way back",
    old="first, second =",
    new="rows, D = weight.shape\n    first, second =",
    caught_by="a bias is reordered like the rows of its weight",
)
edit(
    "interleaved_to_half",
    "turned into float32",
    old=".reshape(weight.shape)",
    new=".reshape(weight.shape).float()",
    caught_by="the rows are moved, never changed, in the dtype that they have",
)
edit(
    "half_to_interleaved",
    "written into the caller's weight",
    old="return torch.stack([first, second], dim=2).reshape(weight.shape)",
    new="weight.data.copy_(torch.stack([first, second], dim=2).reshape(weight.shape))\n    return weight",
    caught_by="the rows are moved, never changed, in the dtype that they have",
)


@mutant(
    "heads of odd width accepted",
    caught_by="rows that do not make heads of even width are a ValueError that names rows and n_heads",
)
def interleaved_to_half(weight: Tensor, n_heads: int) -> Tensor:
    rows = weight.shape[0]
    if n_heads < 1 or rows % n_heads:
        raise ValueError(f"{rows} rows, n_heads {n_heads}")
    heads = weight.reshape(n_heads, rows // n_heads, *weight.shape[1:])
    return torch.cat([heads[:, 0::2], heads[:, 1::2]], dim=1).reshape(weight.shape)


@mutant(
    "nothing checked on the way back",
    caught_by="rows that do not make heads of even width are a ValueError that names rows and n_heads",
)
def half_to_interleaved(weight: Tensor, n_heads: int) -> Tensor:
    d = weight.shape[0] // max(n_heads, 1)
    order = torch.arange(d).view(2, -1).T.flatten()
    places = (torch.arange(n_heads)[:, None] * d + order).flatten()
    return weight[places]
