"""How much work one import may do: a script of a few lines can ask for any amount."""

from __future__ import annotations

from safelaunch.importer.findings import Stop

LONGEST_VALUE = 256 * 1024  # characters; an argument of a program may have 128 KiB
MOST_ITEMS = 10_000  # of an array, and arguments
_MOST_WORK = 16_000_000  # characters that are expanded or compared


class Budget:
    """What is left of the work of one import, for a shell and its subshells."""

    def __init__(self, work: int = _MOST_WORK) -> None:
        self._left = work

    def spend(self, amount: int) -> None:
        """Take an amount of work. Raises Stop where none is left."""
        self._left -= amount
        if self._left < 0:
            raise Stop("its values take too much work to follow", 0, "import it with `--record`")
