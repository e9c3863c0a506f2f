"""Wrong rotary embeddings, each with the property that must catch it."""

import torch
from torch import Tensor

from course.grading.specimens import edit, mutant

# rope_frequencies

edit(
    "rope_frequencies",
    "the factor 2 forgotten",
    old="torch.arange(0, d, 2, dtype=torch.float32) / d",
    new="torch.arange(d // 2, dtype=torch.float32) / d",
    caught_by="pair i turns by base ** (-2i / d), whatever the width",
)
edit(
    "rope_frequencies",
    "the base to the wrong power: d / 2 below the line",
    old="dtype=torch.float32) / d",
    new="dtype=torch.float32) / (d / 2)",
    caught_by="known values: d=8 gives 1, 0.1, 0.01 and 0.001",
)
edit(
    "rope_frequencies",
    "spread evenly from 1 to exactly 1 / base",
    old="torch.arange(0, d, 2, dtype=torch.float32) / d",
    new="torch.linspace(0, 1, d // 2)",
    caught_by="pair i turns by base ** (-2i / d), whatever the width",
)
edit(
    "rope_frequencies",
    "the base ignored",
    old="base **",
    new="10000.0 **",
    caught_by="the base is used, whatever it is",
)
edit(
    "rope_frequencies",
    "the sign of the exponent forgotten: the pairs get faster",
    old="1.0 / base **",
    new="base **",
    caught_by="one frequency for each pair, the fastest first",
)
edit(
    "rope_frequencies",
    "the slowest first",
    old="/ d)",
    new="/ d).flip(0)",
    caught_by="one frequency for each pair, the fastest first",
)
edit(
    "rope_frequencies",
    "one for each column",
    old="/ d)",
    new="/ d).repeat_interleave(2)",
    caught_by="one frequency for each pair, the fastest first",
)
edit(
    "rope_frequencies",
    "computed in bfloat16",
    old="torch.arange(0, d, 2, dtype=torch.float32) / d)",
    new="(torch.arange(0, d, 2, dtype=torch.float32) / d).bfloat16()).float()",
    caught_by="the frequencies are float32, and as exact as that",
)
edit(
    "rope_frequencies",
    "rounded to float16",
    old="/ d)",
    new="/ d).half().float()",
    caught_by="the frequencies are float32, and as exact as that",
)
edit(
    "rope_frequencies",
    "in turns a position, not radians",
    old="return 1.0",
    new="return 6.283185307179586",
    caught_by="known values: d=8 gives 1, 0.1, 0.01 and 0.001",
)
edit(
    "rope_frequencies",
    "an odd width accepted",
    old="if d < 2 or d % 2:",
    new="if d < 2:",
    caught_by="an odd width, or none, is a ValueError that names it",
)

# rope_cos_sin

edit(
    "rope_cos_sin",
    "positions restarted at zero",
    old="positions.float()[:, None]",
    new="torch.arange(len(positions)).float()[:, None]",
    caught_by="the positions that come are used: they need not start at zero, nor be in order",
)
edit(
    "rope_cos_sin",
    "positions counted on from the first",
    old="positions.float()[:, None]",
    new="(positions[0] + torch.arange(len(positions))).float()[:, None]",
    caught_by="the positions that come are used: they need not start at zero, nor be in order",
)
edit(
    "rope_cos_sin",
    "positions counted from one",
    old="positions.float()[:, None]",
    new="(positions.float() + 1)[:, None]",
    caught_by="known values: 60 degrees a position",
)
edit(
    "rope_cos_sin",
    "positions cut to whole numbers",
    old="positions.float()[:, None]",
    new="positions.long()[:, None]",
    caught_by="positions between whole numbers keep their fractions",
)
edit(
    "rope_cos_sin",
    "sine and cosine exchanged",
    old="angles.cos(), angles.sin()",
    new="angles.sin(), angles.cos()",
    caught_by="known values: 60 degrees a position",
)
edit(
    "rope_cos_sin",
    "angles transposed",
    old="angles.cos(), angles.sin()",
    new="angles.T.cos(), angles.T.sin()",
    caught_by="row t, column i: the angle of position t for pair i",
)
edit(
    "rope_cos_sin",
    "repeated to the full width",
    old="return angles",
    new="angles = torch.cat([angles, angles], dim=-1)\n    return angles",
    caught_by="row t, column i: the angle of position t for pair i",
)
edit(
    "rope_cos_sin",
    "angles divided by the frequency",
    old="[:, None] * freqs",
    new="[:, None] / freqs",
    caught_by="row t, column i: the angle of position t for pair i",
)
edit(
    "rope_cos_sin",
    "angles in bfloat16",
    old="positions.float()[:, None] * freqs.float().to(positions.device)",
    new="(positions.bfloat16()[:, None] * freqs.bfloat16()).float()",
    caught_by="angles far from the start are computed in float32",
)
edit(
    "rope_cos_sin",
    "angles in float16",
    old="positions.float()[:, None] * freqs.float().to(positions.device)",
    new="(positions.half()[:, None] * freqs.half()).float()",
    caught_by="angles far from the start are computed in float32",
)
edit(
    "rope_cos_sin",
    "left in the dtype of the frequencies",
    old="positions.float()[:, None] * freqs.float()",
    new="positions.to(freqs.dtype)[:, None] * freqs",
    caught_by="angles far from the start are computed in float32",
)
edit(
    "rope_cos_sin",
    "frequencies of its own",
    old="freqs.float()",
    new="(1e4 ** (-torch.arange(len(freqs)) / len(freqs)))",
    caught_by="the frequencies that come are used",
)
edit(
    "rope_cos_sin",
    "the frequencies scaled in place",
    old="return angles",
    new="freqs.mul_(positions.max())\n    return angles",
    caught_by="positions and frequencies stay as they were",
)


@mutant("angles in degrees", caught_by="known values: 60 degrees a position")
def rope_cos_sin(positions: Tensor, freqs: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.outer(positions.float(), freqs.float()).deg2rad()
    return angles.cos(), angles.sin()
