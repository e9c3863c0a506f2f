"""Hidden tests of chapter 00, the first exercise: ByteTokenizer."""

from functools import partial

import torch

from course.grading.hidden import Check, hidden_test
from course.grading.student import Student

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

# Texts that go wrong in practice: a byte order mark, marks that combine, joined emoji, ends of lines,
# a null, the replacement character itself, and the first and last code point of each length in bytes.
AWKWARD = (
    "\N{ZERO WIDTH NO-BREAK SPACE}a byte order mark first",
    "e\u0301 and \u00e9 look alike",
    "\U0001f469\u200d\U0001f4bb \U0001f1ec\U0001f1f7",
    "line\r\nline\rline\n",
    "\x00 between \x00",
    f"a {REPLACEMENT} of its own",
    "  spaces at both ends  ",
    "\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff",
)


def utf8(code_point: int) -> list[int]:
    """The bytes of one character, by the bit patterns of RFC 3629."""
    if code_point < 0x80:
        return [code_point]
    if code_point < 0x800:
        return [0xC0 | code_point >> 6, 0x80 | code_point & 0x3F]
    if code_point < 0x10000:
        return [0xE0 | code_point >> 12, 0x80 | code_point >> 6 & 0x3F, 0x80 | code_point & 0x3F]
    tail = [0x80 | code_point >> shift & 0x3F for shift in (12, 6, 0)]
    return [0xF0 | code_point >> 18, *tail]


def characters(check: Check, count: int) -> list[int]:
    """Random code points, as many of each length in bytes; none is half of a surrogate pair."""
    ranges = [(0x00, 0x80), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]
    return check.shuffled([check.integer(*ranges[i % len(ranges)]) for i in range(count)])


def written(check: Check, count: int) -> str:
    """Random text over all of Unicode."""
    return "".join(map(chr, characters(check, count)))


@hidden_test(
    "ByteTokenizer",
    "a letter of ASCII is one id, its byte's value, of 256",
    hint="`H` is byte 72 and has id 72: no shift, no table of your own. `vocab_size` counts all 256 values of a byte.",
)
def test_ascii(student: Student, check: Check) -> None:
    tokenizer = student.ByteTokenizer()
    check.equal(tokenizer.encode("Hi!"), [72, 105, 33], "encode('Hi!')")
    codes = check.randint(0, 128, (23,)).tolist()
    text = "".join(map(chr, codes))
    check.equal(tokenizer.encode(text), codes, f"encode({text!r})")
    check.equal(tokenizer.decode(codes), text, f"decode({codes})")
    check.equal(tokenizer.vocab_size, 256, "vocab_size")


@hidden_test(
    "ByteTokenizer",
    "a character outside ASCII is the two to four bytes of its UTF-8 form",
    hint="Encode the text to UTF-8 and list the bytes. `ord` gives the character's number, which is not a byte, and "
    "other encodings (latin-1, utf-16) give other bytes.",
    weight=2,
)
def test_utf8(student: Student, check: Check) -> None:
    tokenizer = student.ByteTokenizer()
    check.equal(tokenizer.encode("é"), [195, 169], "encode('é')")
    check.equal(tokenizer.encode("€"), [226, 130, 172], "encode('€')")
    check.equal(tokenizer.encode("🐈"), [240, 159, 144, 136], "encode('🐈')")
    points = characters(check, 25)
    want = [byte for point in points for byte in utf8(point)]
    check.equal(tokenizer.encode("".join(map(chr, points))), want, "encode of 25 random characters")


@hidden_test(
    "ByteTokenizer",
    "encode gives a list of Python integers",
    hint="A `bytes` object prints as text and a tensor is not a list. The docstring asks for list[int].",
)
def test_list(student: Student, check: Check) -> None:
    text = written(check, 7)
    got = student.ByteTokenizer().encode(text)
    check.true(isinstance(got, list), "encode: expected a list")
    check.true(all(type(value) is int for value in got), "encode: expected every item to be an int")
    check.equal(len(got), sum(len(utf8(ord(character))) for character in text), "the number of ids, one for each byte")


@hidden_test(
    "ByteTokenizer",
    "any Unicode text survives the round trip, character for character",
    hint="Do not clean the text: a byte order mark, a space, a carriage return and a combining accent are all part of "
    "it. And decode all the bytes in one go.",
    weight=2,
)
def test_round_trip(student: Student, check: Check) -> None:
    tokenizer = student.ByteTokenizer()
    for text in (*AWKWARD, written(check, 40), written(check, 1)):
        check.equal(tokenizer.decode(tokenizer.encode(text)), text, f"{text!r}, there and back")
        want = [byte for character in text for byte in utf8(ord(character))]
        check.equal(tokenizer.decode(want), text, f"decode of the bytes of {text!r}")


@hidden_test(
    "ByteTokenizer",
    "the empty text is the empty list, both ways",
    hint="No character, no byte: encode gives [] and decode gives an empty string, with no special case needed.",
)
def test_empty(student: Student, check: Check) -> None:
    tokenizer = student.ByteTokenizer()
    check.equal(tokenizer.encode(""), [], "encode('')")
    check.equal(tokenizer.decode([]), "", "decode([])")
    check.equal(tokenizer.decode(torch.tensor([], dtype=torch.int64)), "", "decode of an empty tensor")


@hidden_test(
    "ByteTokenizer",
    "a text cut within a character ends in U+FFFD",
    hint="A model may stop after the first of three bytes. Tell `bytes.decode` to replace what it cannot read; by "
    "default it raises, and errors='ignore' hides that something was lost.",
)
def test_cut(student: Student, check: Check) -> None:
    tokenizer = student.ByteTokenizer()
    for character in ("é", "€", "🐈", chr(check.integer(0x10000, 0x110000))):
        whole = list(map(ord, "so ")) + utf8(ord(character))
        for cut in range(len("so ") + 1, len(whole)):
            check.equal(tokenizer.decode(whole[:cut]), f"so {REPLACEMENT}", f"decode({whole[:cut]})")


@hidden_test(
    "ByteTokenizer",
    "bytes that are not UTF-8 become U+FFFD and never an exception",
    hint="An untrained model writes any of the 256 bytes in any order. decode must answer all the same, as "
    "bytes.decode does with errors='replace'.",
    weight=2,
)
def test_invalid(student: Student, check: Check) -> None:
    tokenizer = student.ByteTokenizer()
    check.equal(tokenizer.decode([72, 255, 105]), f"H{REPLACEMENT}i", "decode([72, 255, 105])")
    check.equal(tokenizer.decode([169, 195, 72]), f"{REPLACEMENT}{REPLACEMENT}H", "decode([169, 195, 72])")
    for length in (1, 13, 200):
        ids = check.randint(0, 256, (length,)).tolist()
        check.equal(tokenizer.decode(ids), bytes(ids).decode("utf-8", errors="replace"), f"decode({ids})")
    every = check.shuffled(range(256))
    check.equal(tokenizer.decode(every), bytes(every).decode("utf-8", errors="replace"), "all 256 bytes, shuffled")


@hidden_test(
    "ByteTokenizer",
    "decode takes a tensor as well as a list",
    hint="A model hands back a tensor. Its `tolist()` gives Python integers; `bytes(tensor)` does something else.",
)
def test_tensor(student: Student, check: Check) -> None:
    text = written(check, 9)
    ids = [byte for character in text for byte in utf8(ord(character))]
    tokenizer = student.ByteTokenizer()
    check.equal(tokenizer.decode(torch.tensor(ids)), text, "decode of an int64 tensor")
    check.equal(tokenizer.decode(torch.tensor(ids, dtype=torch.uint8)), text, "decode of a uint8 tensor")
    every_second = torch.tensor([[i, 0] for i in ids])[:, 0]
    check.equal(tokenizer.decode(every_second), text, "decode of a column of a tensor")


@hidden_test(
    "ByteTokenizer",
    "an id that is not a byte is a ValueError that names it",
    hint="Ids are 0 to 255. Look at each before you make bytes of them, and put the offending one into the message.",
)
def test_out_of_range(student: Student, check: Check) -> None:
    tokenizer = student.ByteTokenizer()
    check.equal(tokenizer.decode([72, 0, 255]), f"H\x00{REPLACEMENT}", "decode([72, 0, 255]), the smallest and largest")
    for wrong in (-1, check.integer(-900, -300), check.integer(300, 900), 50_000):
        ids = [*check.randint(0, 256, (check.integer(0, 5),)).tolist(), wrong, 72]
        check.raises(ValueError, lambda ids=ids: tokenizer.decode(ids), f"decode({ids})", mentions=[wrong])
    check.raises(ValueError, lambda: tokenizer.decode([256]), "decode([256])")
    for wrong in (777, -3):
        call = partial(tokenizer.decode, torch.tensor([72, wrong]))
        check.raises(ValueError, call, f"a tensor with {wrong}", mentions=[wrong])


@hidden_test(
    "ByteTokenizer",
    "half of a surrogate pair is a ValueError, not a silent change",
    hint="A lone surrogate has no UTF-8 form. Python's own error says so: let it pass, and leave `errors` alone here.",
)
def test_surrogates(student: Student, check: Check) -> None:
    text = written(check, 6)
    want = [byte for character in text for byte in utf8(ord(character))]
    check.equal(student.ByteTokenizer().encode(text), want, f"encode({text!r})")
    for code in (0xD800, 0xDFFF, check.integer(0xD800, 0xE000)):
        text = f"so {chr(code)} it goes"
        check.raises(ValueError, lambda text=text: student.ByteTokenizer().encode(text), f"encode({text!r})")
