"""Wrong YaRN frequencies, each with the property that must catch it."""

from course.grading.specimens import edit

edit(
    "yarn_frequencies",
    "the ramp turned round: fast pairs divided, slow ones kept",
    old="return own * (1 - share) + own / factor * share",
    new="return own * share + own / factor * (1 - share)",
    caught_by="known values: d=16, base 10,000, stretched 4 times from 64",
)
edit(
    "yarn_frequencies",
    "all divided, as in linear interpolation",
    old="return own * (1 - share) + own / factor * share",
    new="return own / factor",
    caught_by="pairs that turn often in the original length keep their frequency",
)
edit(
    "yarn_frequencies",
    "fast pairs divided, slow ones too",
    old="return own * (1 - share) + own / factor * share",
    new="return own / factor * (1 - share) + own / factor * share",
    caught_by="pairs that turn often in the original length keep their frequency",
)
edit(
    "yarn_frequencies",
    "nothing divided",
    old="return own * (1 - share) + own / factor * share",
    new="return own",
    caught_by="pairs that turn less than once in the original length are divided by the factor",
)
edit(
    "yarn_frequencies",
    "slow pairs multiplied",
    old="own / factor * share",
    new="own * factor * share",
    caught_by="pairs that turn less than once in the original length are divided by the factor",
)
edit(
    "yarn_frequencies",
    "a base that is scaled, and the ramp as well",
    old="own = rope_frequencies(d, base)",
    new="own = rope_frequencies(d, base * factor ** (d / max(d - 2, 1)))",
    caught_by="pairs that turn less than once in the original length are divided by the factor",
)
edit(
    "yarn_frequencies",
    "wavelengths blended, not frequencies",
    old="return own * (1 - share) + own / factor * share",
    new="return 1 / ((1 - share) / own + factor / own * share)",
    caught_by="between them the divided share rises evenly from pair to pair",
)
edit(
    "yarn_frequencies",
    "a ramp in the turns of the pair, as the paper writes it",
    old="share = ((torch.arange(d // 2) - low) / width).clamp(0, 1)",
    new="turns = original_length * rope_frequencies(d, base) / (2 * math.pi)\n"
    "    share = (1 - (turns - beta_slow) / max(beta_fast - beta_slow, 0.001)).clamp(0, 1)",
    caught_by="between them the divided share rises evenly from pair to pair",
)
edit(
    "yarn_frequencies",
    "a smooth ramp instead of a straight one",
    old=".clamp(0, 1)",
    new=".clamp(0, 1)\n    share = share * share * (3 - 2 * share)",
    caught_by="between them the divided share rises evenly from pair to pair",
)
edit(
    "yarn_frequencies",
    "a step in the middle instead of a ramp",
    old=".clamp(0, 1)",
    new=".clamp(0, 1).round()",
    caught_by="between them the divided share rises evenly from pair to pair",
)
edit(
    "yarn_frequencies",
    "a ramp one pair too long",
    old="width = max(high - low, 0.001)",
    new="width = max(high - low + 1, 0.001)",
    caught_by="between them the divided share rises evenly from pair to pair",
)
edit(
    "yarn_frequencies",
    "the share not kept within 0 and 1",
    old=".clamp(0, 1)",
    new="",
    caught_by="pairs that turn less than once in the original length are divided by the factor",
)
edit(
    "yarn_frequencies",
    "the ramp's lower end rounded up",
    old="math.floor(",
    new="math.ceil(",
    caught_by="the ramp's ends are whole pairs: the lower rounded down, the upper up",
)
edit(
    "yarn_frequencies",
    "the ramp's upper end rounded down",
    old="math.ceil(",
    new="math.floor(",
    caught_by="the ramp's ends are whole pairs: the lower rounded down, the upper up",
)
edit(
    "yarn_frequencies",
    "the ends not rounded",
    old="high = min(math.ceil(_pair_of(beta_slow)), d - 1)",
    new="low, high = max(_pair_of(beta_fast), 0), min(_pair_of(beta_slow), d - 1)",
    caught_by="the ramp's ends are whole pairs: the lower rounded down, the upper up",
)
edit(
    "yarn_frequencies",
    "the lower end below the first pair",
    old="max(math.floor(_pair_of(beta_fast)), 0)",
    new="math.floor(_pair_of(beta_fast))",
    caught_by="the ramp's ends stay within the pairs: low at least 0, high at most d - 1",
)
edit(
    "yarn_frequencies",
    "the upper end above d - 1",
    old="min(math.ceil(_pair_of(beta_slow)), d - 1)",
    new="math.ceil(_pair_of(beta_slow))",
    caught_by="the ramp's ends stay within the pairs: low at least 0, high at most d - 1",
)
edit(
    "yarn_frequencies",
    "the upper end held at the last pair",
    old="d - 1)",
    new="d // 2 - 1)",
    caught_by="the ramp's ends stay within the pairs: low at least 0, high at most d - 1",
)
edit(
    "yarn_frequencies",
    "a division by zero where the ramp has no width",
    old="width = max(high - low, 0.001)",
    new="width = high - low",
    caught_by="a ramp of no width is a step, without a division by zero",
)
edit(
    "yarn_frequencies",
    "a ramp at least one pair wide, around its middle",
    old="width = max(high - low, 0.001)",
    new="low, width = (low, high - low) if high > low else (low - 0.5, 1)",
    caught_by="a ramp of no width is a step, without a division by zero",
)
edit(
    "yarn_frequencies",
    "divided by one more than the factor",
    old="own / factor * share",
    new="own / (factor + 1) * share",
    caught_by="a factor of 1 gives RoPE's own frequencies",
)
edit(
    "yarn_frequencies",
    "the base 10,000, whatever was asked",
    old="own = rope_frequencies(d, base)",
    new="own = rope_frequencies(d)",
    caught_by="base, factor and original length are used, whatever they are",
)
edit(
    "yarn_frequencies",
    "a ramp for the base 10,000",
    old="(2 * math.log(base))",
    new="(2 * math.log(10000.0))",
    caught_by="base, factor and original length are used, whatever they are",
)
edit(
    "yarn_frequencies",
    "always 4 times",
    old="own / factor * share",
    new="own / 4 * share",
    caught_by="base, factor and original length are used, whatever they are",
)
edit(
    "yarn_frequencies",
    "the length after stretching in place of the original",
    old="math.log(original_length /",
    new="math.log(factor * original_length /",
    caught_by="base, factor and original length are used, whatever they are",
)
edit(
    "yarn_frequencies",
    "turns counted in radians",
    old="(2 * math.pi * turns)",
    new="turns",
    caught_by="beta_fast and beta_slow move the ramp's two ends, and are 32 and 1 if left out",
)
edit(
    "yarn_frequencies",
    "beta_fast ignored",
    old="_pair_of(beta_fast)",
    new="_pair_of(32.0)",
    caught_by="beta_fast and beta_slow move the ramp's two ends, and are 32 and 1 if left out",
)
edit(
    "yarn_frequencies",
    "beta_slow ignored",
    old="_pair_of(beta_slow)",
    new="_pair_of(1.0)",
    caught_by="beta_fast and beta_slow move the ramp's two ends, and are 32 and 1 if left out",
)
edit(
    "yarn_frequencies",
    "the two betas exchanged",
    old="low = max(math.floor(_pair_of(beta_fast)), 0)",
    new="beta_fast, beta_slow = beta_slow, beta_fast\n    low = max(math.floor(_pair_of(beta_fast)), 0)",
    caught_by="known values: d=16, base 10,000, stretched 4 times from 64",
)
edit(
    "yarn_frequencies",
    "the pair's number counted in columns",
    old="/ (2 * math.log(base))",
    new="/ math.log(base)",
    caught_by="known values: d=16, base 10,000, stretched 4 times from 64",
)
edit(
    "yarn_frequencies",
    "the attention factor multiplied in",
    old="return own * (1 - share) + own / factor * share",
    new="return (own * (1 - share) + own / factor * share) * (0.1 * math.log(factor) + 1)",
    caught_by="pairs that turn often in the original length keep their frequency",
)
edit(
    "yarn_frequencies",
    "in half precision on the way",
    old="own = rope_frequencies(d, base)",
    new="own = rope_frequencies(d, base).half().float()",
    caught_by="the new frequencies are float32, and as exact as that",
)
edit(
    "yarn_frequencies",
    "returned in float64",
    old="return own * (1 - share) + own / factor * share",
    new="return (own * (1 - share) + own / factor * share).double()",
    caught_by="the new frequencies are float32, and as exact as that",
)
edit(
    "yarn_frequencies",
    "nothing refused",
    old="_check(d, base, factor, original_length, beta_fast, beta_slow)",
    new="pass",
    caught_by="an argument out of its range is a ValueError that names it and what it was",
)
edit(
    "yarn_frequencies",
    "the betas not looked at",
    old="_check(d, base, factor, original_length, beta_fast, beta_slow)",
    new="_check(d, base, factor, original_length, 32.0, 1.0)",
    caught_by="an argument out of its range is a ValueError that names it and what it was",
)
