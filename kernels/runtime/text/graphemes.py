"""Grapheme clusters (what a reader sees as one character) in the kernel language: the rules of Unicode Annex 29.

Classes of code points come from Python's character database where a category decides, and from the lists below where
only the annex does.
"""

from __future__ import annotations

import unicodedata
from array import array
from functools import cache

from tsql.kernels.codegen.lang import Kernel, Val, routine
from tsql.kernels.runtime.text.utf8 import code_width, new_record, pack, utf8_decode, utf8_is_ascii

OTHER, CR, LF, CONTROL, EXTEND, ZWJ, SPACING, PREPEND, REGIONAL, PICTURE, L, V, T, LV, LVT = range(15)
JOINED: dict[int, tuple[int, ...]] = {
    CR: (LF,), LF: (), CONTROL: (),
    PREPEND: (EXTEND, ZWJ, SPACING, OTHER, PREPEND, REGIONAL, PICTURE, L, V, T, LV, LVT),
    L: (EXTEND, ZWJ, SPACING, L, V, LV, LVT), LV: (EXTEND, ZWJ, SPACING, V, T), V: (EXTEND, ZWJ, SPACING, V, T),
    LVT: (EXTEND, ZWJ, SPACING, T), T: (EXTEND, ZWJ, SPACING, T),
}  # fmt: skip
"""Which classes stay in the cluster after a class; after others, EXTEND, ZWJ and SPACING do."""

PAGE, PAGES = 128, 0xE0200 // 128
SCANNED = ((0, 0x3400), (0xA000, 0xAC00), (0xD7B0, 0xD800), (0xF900, 0x17000), (0x1B000, 0x1FC00), (0xE0000, 0xE0200))
"""Where classes other than OTHER are; Hangul syllables are computed."""

EXTENDS = (
    0x9BE, 0x9D7, 0xB3E, 0xB57, 0xBBE, 0xBD7, 0xCC2, (0xCD5, 0xCD6), 0xD3E, 0xD57, 0xDCF, 0xDDF, 0xECE, 0x1B35, 0x200C,
    (0x302E, 0x302F), (0xFF9E, 0xFF9F), (0x10EFD, 0x10EFF), 0x11241, 0x1133E, 0x11357, 0x114B0, 0x114BD, 0x115AF,
    0x11930, (0x11F00, 0x11F01), (0x11F36, 0x11F3A), 0x11F40, 0x11F42, 0x13440, (0x13447, 0x13455), 0x1D165,
    (0x1D16E, 0x1D172), 0x1E08F, (0x1E4EC, 0x1E4EF), (0x1F3FB, 0x1F3FF), (0xE0020, 0xE007F),
)  # fmt: skip
SPACINGS = (0xCF3, 0xE33, 0xEB3, 0x11F03, (0x11F34, 0x11F35), (0x11F3E, 0x11F3F), 0x11F41)
NOT_SPACING = (
    (0x102B, 0x102C), 0x1038, (0x1062, 0x1064), (0x1067, 0x106D), 0x1083, (0x1087, 0x108C), 0x108F, (0x109A, 0x109C),
    0x1A61, (0x1A63, 0x1A64), 0xAA7B, 0xAA7D, (0x11720, 0x11721),
)  # fmt: skip
CONTROLS = (
    0xAD, 0x61C, 0x180E, 0x200B, (0x200E, 0x200F), (0x2028, 0x202E), (0x2060, 0x2064), (0x2066, 0x206F), 0xFEFF,
    (0xFFF9, 0xFFFB), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), 0xE0001,
)  # fmt: skip
PREPENDS = (
    (0x600, 0x605), 0x6DD, 0x70F, (0x890, 0x891), 0x8E2, 0xD4E, 0x110BD, 0x110CD, (0x111C2, 0x111C3), 0x1193F, 0x11941,
    0x11A3A, (0x11A84, 0x11A89), 0x11D46, 0x11F02,
)  # fmt: skip
PICTURES = (
    0xA9, 0xAE, 0x203C, 0x2049, 0x2122, 0x2139, (0x2194, 0x2199), (0x21A9, 0x21AA), (0x231A, 0x231B), 0x2328, 0x2388,
    0x23CF, (0x23E9, 0x23F3), (0x23F8, 0x23FA), 0x24C2, (0x25AA, 0x25AB), 0x25B6, 0x25C0, (0x25FB, 0x25FE),
    (0x2600, 0x2605), (0x2607, 0x2612), (0x2614, 0x2685), (0x2690, 0x2705), (0x2708, 0x2712), 0x2714, 0x2716, 0x271D,
    0x2721, 0x2728, (0x2733, 0x2734), 0x2744, 0x2747, 0x274C, 0x274E, (0x2753, 0x2755), 0x2757, (0x2763, 0x2767),
    (0x2795, 0x2797), 0x27A1, 0x27B0, 0x27BF, (0x2934, 0x2935), (0x2B05, 0x2B07), (0x2B1B, 0x2B1C), 0x2B50, 0x2B55,
    0x3030, 0x303D, 0x3297, 0x3299, (0x1F000, 0x1F02B), (0x1F030, 0x1F093), (0x1F0A0, 0x1F0AE), (0x1F0B1, 0x1F0BF),
    (0x1F0C1, 0x1F0CF), (0x1F0D1, 0x1F0F5), (0x1F10D, 0x1F10F), 0x1F12F, (0x1F16C, 0x1F171), (0x1F17E, 0x1F17F),
    0x1F18E, (0x1F191, 0x1F19A), 0x1F1AD, (0x1F201, 0x1F202), 0x1F21A, 0x1F22F, (0x1F232, 0x1F23A), (0x1F250, 0x1F251),
    (0x1F260, 0x1F265), (0x1F300, 0x1F3FA), (0x1F400, 0x1F53D), (0x1F546, 0x1F64F), (0x1F680, 0x1F6D7),
    (0x1F6DC, 0x1F6EC), (0x1F6F0, 0x1F6FC), (0x1F774, 0x1F776), (0x1F77B, 0x1F77F), (0x1F7D5, 0x1F7D9),
    (0x1F7E0, 0x1F7EB), 0x1F7F0, (0x1F8B0, 0x1F8B1), (0x1F90C, 0x1F93A), (0x1F93C, 0x1F945), (0x1F947, 0x1FA53),
    (0x1FA60, 0x1FA6D), (0x1FA70, 0x1FA7C), (0x1FA80, 0x1FA88), (0x1FA90, 0x1FABD), (0x1FABF, 0x1FAC5),
    (0x1FACE, 0x1FADB), (0x1FAE0, 0x1FAE8), (0x1FAF0, 0x1FAF8),
)  # fmt: skip
LISTED = (
    (NOT_SPACING, OTHER), (SPACINGS, SPACING), (EXTENDS, EXTEND), (CONTROLS, CONTROL), (PREPENDS, PREPEND),
    (PICTURES, PICTURE), (((0x1F1E6, 0x1F1FF),), REGIONAL), (((0x1100, 0x115F), (0xA960, 0xA97C)), L),
    (((0x1160, 0x11A7), (0xD7B0, 0xD7C6)), V), (((0x11A8, 0x11FF), (0xD7CB, 0xD7FB)), T), ((0x200D,), ZWJ), ((13,), CR),
    ((10,), LF),
)  # fmt: skip
CATEGORIES = {"Mn": EXTEND, "Me": EXTEND, "Mc": SPACING, "Cc": CONTROL}


@cache
def grapheme_table() -> bytes:
    """16 masks of what joins, PAGES 16-bit page numbers, then pages of PAGE classes; page 0 is all OTHER."""
    classes: dict[int, int] = {}
    category = unicodedata.category
    for start, stop in SCANNED:
        for code in range(start, stop):
            found = CATEGORIES.get(category(chr(code)))
            if found is not None:
                classes[code] = found
    for ranges, kind in LISTED:
        for r in ranges:
            first, last = (r, r) if isinstance(r, int) else r
            classes.update(dict.fromkeys(range(first, last + 1), kind))
    numbers, pages = array("h", [0] * PAGES), [bytearray(PAGE)]
    for code, kind in classes.items():
        if not numbers[code // PAGE]:
            numbers[code // PAGE] = len(pages)
            pages.append(bytearray(PAGE))
        pages[numbers[code // PAGE]][code % PAGE] = kind
    masks = array("h", [sum(1 << c for c in JOINED.get(kind, (EXTEND, ZWJ, SPACING))) for kind in range(16)])
    return masks.tobytes() + numbers.tobytes() + b"".join(pages)


@routine("grapheme_class", ("ptr", "i64"), "i64")
def grapheme_class(k: Kernel, table: Val, code: Val) -> None:
    with k.when((code >= 0xAC00) & (code <= 0xD7A3)):
        k.ret(k.select((code - 0xAC00) % 28 == 0, k.i64(LV), k.i64(LVT)))
    with k.when(code >= PAGES * PAGE):
        k.ret(k.i64(OTHER))
    page = k.load("i16", k.offset(table, 32), code.ushr(7)).to("i64")
    k.ret(k.load("i8", k.offset(table, 32 + PAGES * 2), page * PAGE + (code & (PAGE - 1))).uto("i64"))


@routine("grapheme_end", ("ptr", "ptr", "i64", "i64"), "i64")
def grapheme_end(k: Kernel, table: Val, p: Val, n: Val, start: Val) -> None:
    """Where the cluster ends that starts at byte `start` (< n)."""
    at = k.var(start)
    before = k.var(grapheme_class(k, table, utf8_decode(k, p + start)))
    # 1 after a picture and its extenders, 2 after a ZWJ that follows them
    picture = k.var((before.value == PICTURE).to("i64"))
    paired = k.var(k.false)
    with k.forever() as loop:
        at.set(at.value + code_width(k.load("i8", p, at.value)))
        loop.stop_if(at.value >= n)
        kind = grapheme_class(k, table, utf8_decode(k, p + at.value))
        by_table = (k.load("i16", table, before.value).to("i64").ushr(kind) & 1) != 0
        pair = (before.value == REGIONAL) & (kind == REGIONAL) & ~paired.value
        joined = by_table | ((picture.value == 2) & (kind == PICTURE)) | pair
        loop.stop_if(~joined)
        paired.set(pair)
        kept = k.select(kind == EXTEND, k.i64(1), k.select(kind == ZWJ, k.i64(2), k.i64(0)))
        picture.set(k.select(kind == PICTURE, k.i64(1), k.select(picture.value == 1, kept, k.i64(0))))
        before.set(kind)
    k.ret(k.min(at.value, n))


@routine("grapheme_length", ("ptr", "ptr", "i64"), "i64")
def grapheme_length(k: Kernel, table: Val, p: Val, n: Val) -> None:
    """How many clusters. Bytes in ASCII text, where DuckDB counts CR LF as two."""
    with k.when(utf8_is_ascii(k, p, n)):
        k.ret(n)
    at, total = k.var(k.i64(0)), k.var(k.i64(0))
    with k.forever() as loop:
        loop.stop_if(at.value >= n)
        at.set(grapheme_end(k, table, p, n, at.value))
        total.set(total.value + 1)
    k.ret(total.value)


@routine("grapheme_skip", ("ptr", "ptr", "i64", "i64"), "i64")
def grapheme_skip(k: Kernel, table: Val, p: Val, n: Val, count: Val) -> None:
    """The bytes of the first `count` clusters (at most n)."""
    at, left = k.var(k.i64(0)), k.var(count)
    with k.forever() as loop:
        loop.stop_if((left.value <= 0) | (at.value >= n))
        at.set(grapheme_end(k, table, p, n, at.value))
        left.set(left.value - 1)
    k.ret(at.value)


def _window(k: Kernel, count: Val, offset: Val, length: Val) -> tuple[Val, Val]:
    """The window of substr, cut to `count` characters."""
    first = k.select(offset > 0, offset - 1, k.select(offset < 0, count + offset, k.i64(-1)))
    low = k.select(length < 0, first + length, first)
    high = k.select(length < 0, first, first + length)
    return k.min(k.max(low, k.i64(0)), count), k.min(k.max(high, k.i64(0)), count)


@routine("grapheme_substring", ("ptr", "ptr", "i64", "i64", "i64"), "i64")
def grapheme_substring(k: Kernel, table: Val, p: Val, n: Val, offset: Val, length: Val) -> None:
    """As `utf8_substring`, in clusters. Bytes if all up to the byte after the window is ASCII (it could be a mark)."""
    low, high = _window(k, n, offset, length)
    with k.when(utf8_is_ascii(k, p, k.min(high + 1, n))):
        k.ret(pack(low, k.max(high - low, k.i64(0))))
    low, high = _window(k, grapheme_length(k, table, p, n), offset, length)
    start = grapheme_skip(k, table, p, n, low)
    k.ret(pack(start, k.max(grapheme_skip(k, table, p, n, high) - start, k.i64(0))))


@routine("str_reverse", ("ptr", "ptr", "ptr", "i64"), "ptr")
def str_reverse(k: Kernel, ctx: Val, table: Val, p: Val, n: Val) -> None:
    """The clusters in reverse order."""
    record, text = new_record(k, ctx, n)
    k.store(record, n)
    with k.when(utf8_is_ascii(k, p, n)):
        with k.range(n) as i:
            k.store(text, k.load("i8", p, i), n - 1 - i)
        k.ret(record)
    at = k.var(k.i64(0))
    with k.forever() as loop:
        start = at.value
        loop.stop_if(start >= n)
        end = grapheme_end(k, table, p, n, start)
        k.call("memcpy", text + (n - end), p + start, end - start)
        at.set(end)
    k.ret(record)
