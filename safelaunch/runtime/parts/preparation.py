"""Makes the folders and the pieces of all parts, and takes over what an earlier run has done."""

from __future__ import annotations

import os
import shutil

from safelaunch.runtime import members
from safelaunch.runtime.parts import expand, manifest, pieces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from safelaunch.runtime.records import FanOutSpec, PartEnd


def folder(node_dir: str, index: int | str) -> str:
    """Return the folder of a part, which has a `node-0` as that of a run has.

    `index` is its number, or a word that stands for it.
    """
    return members.folder(node_dir, f"part-{index}")


def input_path(node_dir: str, index: int) -> str:
    """Return the file with a part's piece of the input."""
    return os.path.join(folder(node_dir, index), "input")


def output_path(node_dir: str, index: int) -> str:
    """Return the file that a part of a run writes."""
    return os.path.join(folder(node_dir, index), "output")


def prepare(
    node_dir: str,
    spec: FanOutSpec,
    words: Sequence[Mapping[str, str]],
    record: Callable[[str, PartEnd], object] = manifest.add,
) -> list[str]:
    """Make the folders and pieces; return the SHA-256 of each piece, "" without an input.

    `words` are those of each part, of which several hosts make their own alone; `record` adds the
    end of one that an earlier run has done. Raises OSError, PartsError.
    """
    own = expand.share(spec, len(words))
    for index in own:
        os.makedirs(os.path.join(folder(node_dir, index), "node-0"), mode=0o700, exist_ok=True)
    digests = [""] * len(words)
    if spec.over:
        inputs = [""] * len(words)
        for index in own:
            inputs[index] = input_path(node_dir, index)
        digests = pieces.divide(spec.over, spec.by, inputs)
    if spec.earlier:
        _adopt(node_dir, spec, words, digests, record)
    return digests


def source_digest(spec: FanOutSpec, digests: Sequence[str]) -> str | None:
    """Return the SHA-256 of an input that several hosts divide, None for any other."""
    return pieces.digest_of_all(digests) if spec.over and spec.hosts > 1 else None


def _adopt(
    node_dir: str,
    spec: FanOutSpec,
    words: Sequence[Mapping[str, str]],
    digests: Sequence[str],
    record: Callable[[str, PartEnd], object],
) -> None:
    """Take over the parts that an earlier run has done. Raises OSError."""
    earlier, source = spec.earlier or "", source_digest(spec, digests)
    ends, own = manifest.read(earlier), manifest.read(node_dir)
    run, _, node = earlier.rpartition(os.sep)
    for index in expand.share(spec, len(words)):
        end, digest = ends.get(index), digests[index]
        if end is None or index in own or not manifest.is_done(end, dict(words[index]), digest):
            continue
        output = output_path(earlier, index)
        if os.path.lexists(output):
            shutil.copyfile(output, output_path(node_dir, index))
        if end.run is None:
            end.run, end.run_node = os.path.basename(run), int(node.rpartition("-")[2])
        if source is not None:
            end.source_sha256 = source
        record(node_dir, end)


def prepare_array(node_dir: str, spec: FanOutSpec) -> list[int]:
    """Make folders and pieces of parts on machines of their own; return the parts that have to run.

    Where all are done and only their outputs are to be merged, that is the one which ended last.
    Raises OSError, PartsError.
    """
    manifest.make_folder(node_dir)
    words = expand.part_words(spec)
    prepare(node_dir, spec, words, manifest.add_in_order)
    ends = manifest.read(node_dir)
    missing = [index for index in range(len(words)) if index not in ends]
    return missing or [list(ends)[-1]]
