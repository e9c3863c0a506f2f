"""Wrong counts and wrong rows of a mixture of experts, each with the property that must catch it."""

from course.grading.specimens import edit

# parameter_counts

edit(
    "parameter_counts",
    "two matrices an expert",
    old="3 * d_model * d_ff",
    new="2 * d_model * d_ff",
    caught_by="the total counts three matrices for each expert, and the router",
)
edit(
    "parameter_counts",
    "the router forgotten",
    old="d_model * n_experts",
    new="0",
    caught_by="the total counts three matrices for each expert, and the router",
)
edit(
    "parameter_counts",
    "a router beside each expert",
    old="n_experts * expert + router,",
    new="n_experts * (expert + router),",
    caught_by="the total counts three matrices for each expert, and the router",
)
edit(
    "parameter_counts",
    "only the chosen rows of the router active",
    old="top_k * expert + router",
    new="top_k * expert + top_k * d_model",
    caught_by="a token meets top_k experts, and all of the router",
)
edit(
    "parameter_counts",
    "always two experts a token",
    old="top_k * expert",
    new="2 * expert",
    caught_by="a token meets top_k experts, and all of the router",
)
edit(
    "parameter_counts",
    "the share top_k / n_experts of everything, router too",
    old="top_k * expert + router",
    new="(n_experts * expert + router) * top_k // n_experts",
    caught_by="a token meets top_k experts, and all of the router",
)
edit(
    "parameter_counts",
    "the pair the other way round",
    old="n_experts * expert + router, top_k * expert + router",
    new="top_k * expert + router, n_experts * expert + router",
    caught_by="Mixtral's layer has 1,409,318,912 weights, of which a token meets 352,354,304",
)
edit(
    "parameter_counts",
    "by way of a float, which rounds",
    old="3 * d_model * d_ff",
    new="int(3.0 * d_model * d_ff)",
    caught_by="Mixtral's layer has 1,409,318,912 weights, of which a token meets 352,354,304",
)
edit(
    "parameter_counts",
    "a token that meets every expert",
    old="top_k * expert + router",
    new="n_experts * expert + router",
    caught_by="more experts add nothing to a token's work but their rows of the router",
)
edit(
    "parameter_counts",
    "more choices than experts allowed",
    old="if top_k > n_experts:",
    new="if False:",
    caught_by="impossible sizes are a ValueError that names the argument",
)
edit(
    "parameter_counts",
    "nothing allowed to be nothing",
    old="if value < 1:",
    new="if value < 0:",
    caught_by="impossible sizes are a ValueError that names the argument",
)

# rows_of

edit(
    "rows_of",
    "rows and slots exchanged",
    old="return rows, slots",
    new="return slots, rows",
    caught_by="rows and slots say where the expert's number stands",
)
edit(
    "rows_of",
    "experts counted from 1",
    old="indices == expert",
    new="indices == expert + 1",
    caught_by="rows and slots say where the expert's number stands",
)
edit(
    "rows_of",
    "places in the flat table",
    old="rows, slots = torch.where(indices == expert)",
    new="rows = slots = torch.where(indices.flatten() == expert)[0]",
    caught_by="rows and slots say where the expert's number stands",
)
edit(
    "rows_of",
    "the flat place divided by the number of rows",
    old="rows, slots = torch.where(indices == expert)",
    new="flat = (indices.flatten() == expert).nonzero()[:, 0]\n"
    "    rows, slots = flat // len(indices), flat % len(indices)",
    caught_by="rows and slots say where the expert's number stands",
)
edit(
    "rows_of",
    "first choices only",
    old="indices == expert",
    new="indices[:, :1] == expert",
    caught_by="over all experts every choice occurs once",
)
edit(
    "rows_of",
    "the last choice forgotten",
    old="indices == expert",
    new="indices[:, : max(1, indices.shape[1] - 1)] == expert",
    caught_by="over all experts every choice occurs once",
)
edit(
    "rows_of",
    "column by column",
    old="rows, slots = torch.where(indices == expert)",
    new="slots, rows = torch.where(indices.T == expert)",
    caught_by="the rows rise",
)
edit(
    "rows_of",
    "None where nobody chose it",
    old="return rows, slots",
    new="return (rows, slots) if len(rows) else (None, None)",
    caught_by="an expert that nobody chose has no rows",
)
edit(
    "rows_of",
    "a single row squeezed to a bare number",
    old="return rows, slots",
    new="return rows.squeeze(), slots.squeeze()",
    caught_by="an expert that nobody chose has no rows",
)
edit(
    "rows_of",
    "empty lists become float tensors",
    old="rows, slots = torch.where(indices == expert)",
    new="rows, slots = (torch.tensor(places.tolist()) for places in torch.where(indices == expert))",
    caught_by="an expert that nobody chose has no rows",
)
edit(
    "rows_of",
    "each row once",
    old="rows, slots = torch.where(indices == expert)",
    new="rows = (indices == expert).any(-1).nonzero()[:, 0]\n    slots = (indices[rows] == expert).int().argmax(-1)",
    caught_by="a row that chose the expert twice stands there twice",
)
edit(
    "rows_of",
    "view, which needs numbers in reading order",
    old="rows, slots = torch.where(indices == expert)",
    new="flat = torch.where(indices.view(-1) == expert)[0]\n"
    "    rows, slots = flat // indices.shape[1], flat % indices.shape[1]",
    caught_by="a table that is not contiguous works and stays as it is",
)
edit(
    "rows_of",
    "the entries found struck out",
    old="return rows, slots",
    new="indices[rows, slots] = -1\n    return rows, slots",
    caught_by="a table that is not contiguous works and stays as it is",
)
