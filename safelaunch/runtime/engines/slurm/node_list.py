"""Slurm's short form of node names, such as `n[1-3,07-10],gpu-a[1-2]b[3-4]`.

`scontrol show hostnames` expands it too, but many compute nodes and containers lack it. The order
is scontrol's: node ranks follow from it.
"""

from __future__ import annotations

# Slurm's own limit of a range and of a cluster (MAX_RANGE and MAX_SLURM_NODES in its source). A
# whole list has none there, and could name billions: `n[0-65535]x[0-65535]`.
MOST = 64 * 1024
_BLANK = ", \t\n"  # what separates names outside of brackets


def expand(text: str) -> list[str]:
    """Return the names in a list of nodes, in order; an empty list has none. Raises ValueError."""
    names: list[str] = []
    for word in _words(text):
        names.extend(_expand_word(word))
        if len(names) > MOST:
            raise ValueError(f"more than {MOST} nodes in `{text[:80]}`")
    return names


def _words(text: str) -> list[str]:
    """Return the parts between separators, which count only outside of brackets."""
    words, start, is_inside = [], 0, False
    for index, char in enumerate(text):
        if char in "[]":
            if is_inside == (char == "["):
                raise ValueError(f"unexpected `{char}` in the node list `{text[:80]}`")
            is_inside = not is_inside
        elif char in _BLANK and not is_inside:
            words.append(text[start:index])
            start = index + 1
    if is_inside:
        raise ValueError(f"no `]` in the node list `{text[:80]}`")
    words.append(text[start:])
    return [word for word in words if word]


def _expand_word(word: str) -> list[str]:
    """Return the names of a word, which may have several pairs of brackets.

    The last pair counts fastest. Of those before it the first does: so scontrol orders them.
    """
    *heads, tail = word.split("]")
    if not heads:
        return [word]
    texts = [head.split("[")[0] for head in heads]
    numbers = [_numbers(head.split("[")[1], word) for head in heads]
    count = 1
    for group in numbers:
        count *= len(group)
    if count > MOST:
        raise ValueError(f"more than {MOST} nodes in `{word[:80]}`")
    prefixes = [""]
    for text, group in list(zip(texts, numbers))[:-1]:  # noqa: B905 - Python 3.10
        prefixes = [f"{prefix}{text}{number}" for number in group for prefix in prefixes]
    return [f"{prefix}{texts[-1]}{number}{tail}" for prefix in prefixes for number in numbers[-1]]


def _numbers(text: str, word: str) -> list[str]:
    """Return the numbers inside of brackets, with as many zeros as the begin of their range."""
    numbers: list[str] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        high = high if dash else low
        if not (_is_number(low) and _is_number(high)) or int(low) > int(high):
            raise ValueError(f"`{part}` is no number and no range in the node list `{word[:80]}`")
        if int(high) - int(low) >= MOST or len(numbers) > MOST:
            raise ValueError(f"more than {MOST} nodes in `{word[:80]}`")
        numbers.extend(str(number).zfill(len(low)) for number in range(int(low), int(high) + 1))
    return numbers


def _is_number(text: str) -> bool:
    """Whether a text is a number of decimal digits, which are not more than a node has."""
    return text.isascii() and text.isdigit() and len(text) <= 18  # noqa: PLR2004 - of 64 bits
