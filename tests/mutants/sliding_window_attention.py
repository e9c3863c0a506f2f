"""Wrong masks, reaches and windowed attention, each with the property that must catch it."""

from course.grading.specimens import edit

# sliding_window_mask

edit(
    "sliding_window_mask",
    "window + 1 tokens",
    old="key > position - window",
    new="key >= position - window",
    caught_by="a token sees itself and the window - 1 tokens before it",
)
edit(
    "sliding_window_mask",
    "the token itself not counted in",
    old="(key <= position) &",
    new="(key < position) &",
    caught_by="a token sees itself and the window - 1 tokens before it",
)
edit(
    "sliding_window_mask",
    "the mask inverted",
    old="return (key <= position) & (near | (key < n_global))",
    new="return ~((key <= position) & (near | (key < n_global)))",
    caught_by="a token sees itself and the window - 1 tokens before it",
)
edit(
    "sliding_window_mask",
    "both ways",
    old="near = key > position - window",
    new="return ((key - position).abs() < window) | (key < n_global)",
    caught_by="no token sees a later one",
)
edit(
    "sliding_window_mask",
    "global tokens seen by those before them as well",
    old="return (key <= position) & (near | (key < n_global))",
    new="return ((key <= position) & near) | (key < n_global)",
    caught_by="no token sees a later one",
)
edit(
    "sliding_window_mask",
    "n_global ignored",
    old="(near | (key < n_global))",
    new="near",
    caught_by="the first n_global positions are seen from any distance",
)
edit(
    "sliding_window_mask",
    "one global token too many",
    old="key < n_global)",
    new="key <= n_global)",
    caught_by="the first n_global positions are seen from any distance",
)
edit(
    "sliding_window_mask",
    "global tokens only as queries",
    old="(key < n_global)",
    new="(position < n_global)",
    caught_by="the first n_global positions are seen from any distance",
)
edit(
    "sliding_window_mask",
    "aligned to the start of the keys",
    old="torch.arange(S - T, S)",
    new="torch.arange(T)",
    caught_by="with more keys than queries, the queries stand at the end of the keys",
)
edit(
    "sliding_window_mask",
    "S ignored",
    old="S = T if S is None else S",
    new="S = T",
    caught_by="with more keys than queries, the queries stand at the end of the keys",
)
edit(
    "sliding_window_mask",
    "the window wrapped round a short text",
    old="near = key > position - window",
    new="near = (position - key) % S < window % S",
    caught_by="a window as long as the text is a causal mask",
)
edit(
    "sliding_window_mask",
    "no check of the window",
    old="if window < 1:",
    new="if False:",
    caught_by="a window below 1 or a negative n_global is a ValueError that names the number",
)
edit(
    "sliding_window_mask",
    "no check of n_global",
    old="if n_global < 0:",
    new="if False:",
    caught_by="a window below 1 or a negative n_global is a ValueError that names the number",
)

# receptive_field

edit(
    "receptive_field",
    "layers times window",
    old="n_layers * (window - 1) + 1",
    new="n_layers * window",
    caught_by="it is what a pile of windows reaches, counted one by one",
)
edit(
    "receptive_field",
    "the token itself not counted",
    old="n_layers * (window - 1) + 1",
    new="n_layers * (window - 1)",
    caught_by="one layer reaches its window, and no layer reaches the token itself",
)
edit(
    "receptive_field",
    "window + 1 tokens a layer",
    old="n_layers * (window - 1) + 1",
    new="n_layers * window + 1",
    caught_by="it is what a pile of windows reaches, counted one by one",
)
edit(
    "receptive_field",
    "a power of the window",
    old="n_layers * (window - 1) + 1",
    new="window**n_layers",
    caught_by="each further layer adds the same",
)
edit(
    "receptive_field",
    "doubled by each layer",
    old="n_layers * (window - 1) + 1",
    new="window * 2 ** (n_layers - 1) if n_layers else 1",
    caught_by="each further layer adds the same",
)
edit(
    "receptive_field",
    "the window whatever the depth",
    old="n_layers * (window - 1) + 1",
    new="window if n_layers else 1",
    caught_by="each further layer adds the same",
)
edit(
    "receptive_field",
    "one layer less",
    old="n_layers * (window - 1) + 1",
    new="(n_layers - 1) * (window - 1) + 1",
    caught_by="one layer reaches its window, and no layer reaches the token itself",
)
edit(
    "receptive_field",
    "no check of the window",
    old="if window < 1:",
    new="if False:",
    caught_by="a window below 1 or a negative depth is a ValueError that names the argument",
)
edit(
    "receptive_field",
    "no check of the depth",
    old="if n_layers < 0:",
    new="if False:",
    caught_by="a window below 1 or a negative depth is a ValueError that names the argument",
)

# sliding_window_attention


edit(
    "sliding_window_attention",
    "full attention under a T x T mask",
    old="    window = min(window, max(T, 1))",
    new="    return attention(q, k, v, sliding_window_mask(T, window))",
    caught_by="no tensor on the way grows with the square of the length",
)
edit(
    "sliding_window_attention",
    "blocks of queries that look at all earlier keys",
    old="    window = min(window, max(T, 1))",
    new="    ends = [min(start + block, T) for start in range(0, T, block)]\n"
    "    masks = [sliding_window_mask((end - 1) % block + 1, window, S=end) for end in ends]\n"
    "    parts = zip(q.split(block, -2), ends, masks)\n"
    "    found = [attention(part, k[..., :end, :], v[..., :end, :], mask) for part, end, mask in parts]\n"
    "    return torch.cat(found, dim=-2)",
    caught_by="four times the length is four times the work, not sixteen",
)
edit(
    "sliding_window_attention",
    "the padding before the text takes part",
    old="mask & real",
    new="mask",
    caught_by="it equals attention under the window's mask",
)
edit(
    "sliding_window_attention",
    "no mask within a block",
    old="mask & real",
    new="real",
    caught_by="it equals attention under the window's mask",
)
edit(
    "sliding_window_attention",
    "one key too few before each block",
    old="mask = sliding_window_mask(block, window,",
    new="mask = sliding_window_mask(block, max(window - 1, 1),",
    caught_by="it equals attention under the window's mask",
)
edit(
    "sliding_window_attention",
    "each block sees itself alone",
    old="mask & real",
    new="mask & real & (torch.arange(span) >= window - 1)",
    caught_by="it equals attention under the window's mask",
)
edit(
    "sliding_window_attention",
    "keys and values exchanged",
    old="for x in (k, v)",
    new="for x in (v, k)",
    caught_by="it equals attention under the window's mask",
)
edit(
    "sliding_window_attention",
    "what is left over at the end dropped",
    old="n, span = -(-T // block), block",
    new="n, span = max(1, T // block), block",
    caught_by="lengths that are no multiple of the window, and windows of 1 or above T, work",
)
edit(
    "sliding_window_attention",
    "the padded end returned",
    old="[..., :T, :]",
    new="",
    caught_by="lengths that are no multiple of the window, and windows of 1 or above T, work",
)
edit(
    "sliding_window_attention",
    "four dimensions only",
    old="T, block = q.shape[-2], 64",
    new="(B, H, T, d), block = q.shape, 64",
    caught_by="any leading dimensions and values of another width work",
)
edit(
    "sliding_window_attention",
    "the values' width taken from the queries",
    old="return torch.cat(outputs, dim=-3).flatten(-3, -2)[..., :T, :]",
    new="return torch.cat(outputs, dim=-3).flatten(-3, -2)[..., :T, :].reshape(*q.shape[:-3], T, q.shape[-1])",
    caught_by="any leading dimensions and values of another width work",
)
edit(
    "sliding_window_attention",
    "always float32",
    old="T, block = q.shape[-2], 64",
    new="T, block = q.shape[-2], 64\n    q, k, v = q.float(), k.float(), v.float()",
    caught_by="tensors that are not contiguous work in every dtype, and inputs are left as they were",
)
edit(
    "sliding_window_attention",
    "queries scaled in place",
    old="T, block = q.shape[-2], 64",
    new="T, block = q.shape[-2], 64\n    q.mul_(2)\n    k = k / 2",
    caught_by="tensors that are not contiguous work in every dtype, and inputs are left as they were",
)
edit(
    "sliding_window_attention",
    "no check of the keys' number",
    old="if k.shape[-2] != T:",
    new="if False:",
    caught_by="a window below 1 or another number of keys than queries is a ValueError that names the numbers",
)
edit(
    "sliding_window_attention",
    "the keys cut off from the gradient",
    old="for x in (k, v)",
    new="for x in (k.detach(), v)",
    caught_by="gradients flow to the queries, keys and values of every block",
)
