"""Wrong temperatures, each with the property that must catch it."""

from course.grading.specimens import edit

edit(
    "softmax_with_temperature",
    "a floor of 0.01 under the temperature",
    old="max(temperature, info.tiny)",
    new="max(temperature, 0.01)",
    caught_by="the scores are divided by the temperature",
)
edit(
    "softmax_with_temperature",
    "a small number added to the temperature",
    old="max(temperature, info.tiny)",
    new="(temperature + 1e-6)",
    caught_by="the scores are divided by the temperature",
)
edit(
    "softmax_with_temperature",
    "a small temperature taken for 0",
    old="if temperature == 0:",
    new="if temperature < 1e-3:",
    caught_by="the scores are divided by the temperature",
)
edit(
    "softmax_with_temperature",
    "nearly as large counts as tied",
    old="scores < largest,",
    new="scores < largest - 1e-6,",
    caught_by="at temperature 0, scores tied for the largest share equally",
)
edit(
    "softmax_with_temperature",
    "ties of float64 scores judged in float32",
    old="if temperature == 0:",
    new="if temperature == 0:\n        scores, largest = scores.float(), largest.float()",
    caught_by="at temperature 0, scores tied for the largest share equally",
)
edit(
    "softmax_with_temperature",
    "integer scores give integer weights",
    old="weights.to(logits.dtype) if logits.is_floating_point() else weights",
    new="weights.to(logits.dtype)",
    caught_by="gradients flow through the temperature, and the dtype is kept",
)
edit(
    "softmax_with_temperature",
    "divided in half precision",
    old="scores = logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="scores = logits if logits.is_floating_point() else logits.float()",
    caught_by="gradients flow through the temperature, and the dtype is kept",
)
edit(
    "softmax_with_temperature",
    "multiplied by the temperature",
    old="(scores - largest) / divisor",
    new="(scores - largest) * divisor",
    caught_by="the scores are divided by the temperature",
)


edit(
    "softmax_with_temperature",
    "dim not passed on",
    old="softmax((scores - largest) / divisor, dim)",
    new="softmax((scores - largest) / divisor)",
    caught_by="the weights are shared out along `dim`",
)


edit(
    "softmax_with_temperature",
    "0 refused as if it were negative",
    old="if not temperature >= 0:",
    new="if not temperature > 0:",
    caught_by="temperature 0 gives everything to the largest score",
)
edit(
    "softmax_with_temperature",
    "argmax picks one of the tied",
    old="weights = softmax(scores.masked_fill(scores < largest, -torch.inf), dim)",
    new="weights = torch.zeros_like(scores).scatter(dim, scores.argmax(dim, keepdim=True), 1.0)",
    caught_by="at temperature 0, scores tied for the largest share equally",
)
edit(
    "softmax_with_temperature",
    "divided before the shift: large / tiny overflows",
    old="(scores - largest) / divisor",
    new="scores / divisor",
    caught_by="a tiny temperature neither overflows nor gives NaN",
)
edit(
    "softmax_with_temperature",
    "a temperature too small for float32 becomes 0",
    old="min(max(temperature, info.tiny), 1 / info.tiny)",
    new="min(temperature, 1 / info.tiny)",
    caught_by="a tiny temperature neither overflows nor gives NaN",
)
edit(
    "softmax_with_temperature",
    "-inf divided by an infinite temperature",
    old="min(max(temperature, info.tiny), 1 / info.tiny)",
    new="max(temperature, info.tiny)",
    caught_by="a huge temperature shares equally among all scores but -inf",
)
edit(
    "softmax_with_temperature",
    "at temperature 0 an empty row shares equally",
    old="weights = softmax(scores.masked_fill(scores < largest, -torch.inf), dim)",
    new="weights = softmax(torch.where(scores == scores.amax(dim, keepdim=True), 0.0, -torch.inf), dim)",
    caught_by="temperature 0 gives everything to the largest score",
)
edit(
    "softmax_with_temperature",
    "NaN passes the test for negative numbers",
    old="if not temperature >= 0:",
    new="if temperature < 0:",
    caught_by="a negative temperature or NaN is a ValueError that names it and its value",
)
edit(
    "softmax_with_temperature",
    "the message does not say what came",
    old='f"temperature must be 0 or more, got {temperature}"',
    new='"temperature must be 0 or more"',
    caught_by="a negative temperature or NaN is a ValueError that names it and its value",
)
edit(
    "softmax_with_temperature",
    "the scores leave the graph",
    old="logits.to(torch.promote_types(logits.dtype, torch.float32))",
    new="logits.detach().to(torch.promote_types(logits.dtype, torch.float32))",
    caught_by="gradients flow through the temperature, and the dtype is kept",
)
edit(
    "softmax_with_temperature",
    "the caller's logits are divided in place",
    old="(scores - largest) / divisor",
    new="scores.sub_(largest).div_(divisor)",
    caught_by="it rests on your own softmax, and leaves the logits as they were",
)
edit(
    "softmax_with_temperature",
    "torch.softmax with empty rows replaced",
    old="weights = softmax((scores - largest) / divisor, dim)",
    new="weights = torch.softmax((scores - largest) / divisor, dim).nan_to_num(0.0)",
    caught_by="it rests on your own softmax, and leaves the logits as they were",
)
