"""What git says of a project: commit, branch, changes, and contents of committed files.

Nothing of the repository is written: no index is refreshed, no object is made.
"""

# ruff: noqa: PLC0415 - most runs are of no checkout, and need none of what starts a process

from __future__ import annotations

import os

from safelaunch.runtime.records import Checkout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

LIMIT = 30.0  # seconds for one command
FILE_LIMIT = 200  # changed files that are listed
_BRANCH = "refs/heads/"
# what a user may have set that would make another form of patch
_DIFF = (
    "diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
    "--src-prefix=a/", "--dst-prefix=b/", "HEAD", "--",
)  # fmt: skip


class GitState:
    """A checkout as it is, seen from a folder in it."""

    def __init__(
        self, checkout: Checkout, committed: frozenset[str], changed: frozenset[str]
    ) -> None:
        self.checkout = checkout
        self.committed = committed  # files of the commit below the folder, from it on
        self.changed = changed  # those that are not as in the commit, new ones too


def output(folder: str, *words: str, stdin: bytes | None = None, **variables: str) -> bytes | None:
    """Return what a git command prints; None where there is no git or no checkout."""
    import subprocess

    environ = dict(os.environ, GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0", **variables)
    try:
        result = subprocess.run(
            ["git", "-C", folder, "--literal-pathspecs", *words],
            input=stdin or b"",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            timeout=LIMIT,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def state(folder: str) -> GitState | None:
    """Return the state of the checkout around a folder; None where there is no commit."""
    if not _may_be_checkout(folder):
        return None
    head = output(folder, "rev-parse", "--show-prefix", "HEAD", "--symbolic-full-name", "HEAD")
    if head is None:
        return None
    prefix, commit, name = map(_text, head.split(b"\n")[:3])
    files = output(folder, "ls-tree", "-r", "-z", "--name-only", "HEAD")
    status = output(folder, "status", "--porcelain", "-z")
    rows = None if status is None else list(_status(status))
    lines = [line for line, _ in rows or ()]
    paths = [path for _, paths in rows or () for path in paths]
    checkout = Checkout(
        commit=commit,
        branch=name[len(_BRANCH) :] if name.startswith(_BRANCH) else None,
        changed=lines[:FILE_LIMIT] if rows is not None else None,
        more_changed=max(0, len(lines) - FILE_LIMIT),
    )
    # without a status nothing is sure to be as in the commit
    committed = [] if files is None or rows is None else map(_text, files.split(b"\0")[:-1])
    below = [path[len(prefix) :] for path in paths if path.startswith(prefix)]
    return GitState(checkout, frozenset(committed), frozenset(below))


def top(folder: str) -> str | None:
    """Return the top of the checkout around a folder; None where there is none."""
    if not _may_be_checkout(folder):
        return None
    path = output(folder, "rev-parse", "--show-toplevel")
    return None if path is None else os.fsdecode(path.rstrip(b"\n"))


def _may_be_checkout(folder: str) -> bool:
    """Whether git could take a folder for a part of a checkout: a look costs less than git does."""
    if "GIT_DIR" in os.environ:
        return True
    path = os.path.realpath(folder)
    while not any(os.path.lexists(os.path.join(path, name)) for name in (".git", "HEAD")):
        path, child = os.path.dirname(path), path
        if path == child:
            return False
    return True  # HEAD is there without `.git` in a repository without a work tree


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _status(data: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield each line of `status --porcelain`, and its paths: a renamed file has two."""
    fields = iter(data.split(b"\0")[:-1])
    for entry in fields:
        mark, path = _text(entry[:3]), _text(entry[3:])
        if mark[0] in "RC":
            before = _text(next(fields, b""))
            yield _printable(f"{mark}{before} -> {path}"), [path, before]
        else:
            yield _printable(mark + path), [path]


def _printable(line: str) -> str:
    return line.encode("utf-8", "replace").decode()


def patch(folder: str, changed: list[str], new: list[str]) -> bytes | None:
    """Return the patch from the commit to some files below a folder as they are; None if git fails.

    `new` are files that git does not know. `git apply` takes it, anywhere in the checkout.
    """
    import shutil
    import tempfile

    index = output(folder, "rev-parse", "--git-path", "index")
    if index is None:
        return None
    with tempfile.TemporaryDirectory(prefix="safelaunch-") as temporary:
        # new files are announced in a copy of the index: the user's own stays as it is. With its
        # time: git compares that with the times of files to see an edit within one second
        path = os.path.join(temporary, "index")
        try:
            shutil.copy2(os.path.join(folder, os.fsdecode(index.rstrip(b"\n"))), path)
        except OSError:
            return None  # a repository without an index
        if new and output(folder, "add", "-N", "-f", "--", *new, GIT_INDEX_FILE=path) is None:
            return None
        return output(folder, *_DIFF, *changed, *new, GIT_INDEX_FILE=path)


def contents(
    folder: str, commit: str, paths: Collection[str], *, filters: bool = False
) -> Mapping[str, bytes]:
    """Return {path: content} of files of a commit, by their paths from a folder on.

    With `filters` as a checkout would write them (line endings, LFS). What git lacks is left out.
    """
    prefix = output(folder, "rev-parse", "--show-prefix")
    tree = output(folder, "ls-tree", "-r", "-z", "--full-name", commit)
    if prefix is None or tree is None or not paths:
        return {}
    start = len(_text(prefix.rstrip(b"\n")))
    blobs = []
    for row in tree.split(b"\0")[:-1]:
        head, _, name = row.partition(b"\t")
        if _text(name)[start:] in paths and b"\n" not in name and head.split()[1] == b"blob":
            blobs.append((head.split()[2], name))
    words = ["--filters", "--batch"] if filters else ["--batch"]
    request = [b"%s %s" % blob if filters else blob[0] for blob in blobs]
    data = output(folder, "cat-file", *words, stdin=b"\n".join([*request, b""]))
    names = (_text(name)[start:] for _, name in blobs)
    return {} if data is None else dict(_batch(data, names))


def _batch(data: bytes, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield path and content of each file that `cat-file --batch` has printed."""
    at = 0
    for name in names:
        end = data.find(b"\n", at)
        if end < 0:
            return
        words = data[at:end].split()
        at = end + 1
        if words[-1] != b"missing":
            size = int(words[-1])
            yield name, data[at : at + size]
            at += size + 1
