"""Reads a job's program, and the settings files that its arguments name, once."""

# ruff: noqa: PLC0415 - the readers of programs, JSON and YAML: only for jobs that have such files

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from safelaunch.analysis.option_model import FrameworkCommand
from safelaunch.checks.answers import NotKnown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from safelaunch.analysis.imports.follow import Imports
    from safelaunch.analysis.options.read import ScriptOptions
    from safelaunch.analysis.options.trl_configs import TrlConfigs
    from safelaunch.analysis.python.libraries import LibraryPaths
    from safelaunch.model import Job, Word

# CPU seconds before a start, of the 0.1 s that all checks may take; `check` reads on to the end
QUICK = 0.03  # for the imports
QUICK_OPTIONS = 0.06
_MAX_FILES = 2000  # of the program, in `check`
# ms-swift 4.6: `torchrun swift/cli/sft.py`, as its own launcher does
_SWIFT_PROGRAM = re.compile(r"(?:^|/)swift(?:\.cli\.(\w+)$|/cli/(\w+)\.py$)")
_LLAMAFACTORY_PROGRAM = b"from llamafactory.train.tuner import run_exp"  # 0.9.5 src/train.py
_RESUME_ARGUMENT = rb"\.resume_from_checkpoint\b|['\"]resume_from_checkpoint['\"]|\.train\(\s*\*\*"
_MAX_SETTINGS = 1 << 22  # bytes of a settings file


class ProjectFiles:
    """The project's text on this machine. Nothing of it is run."""

    def __init__(
        self,
        job: Job,
        local_path: Callable[[str], str | None],
        pythonpath: Sequence[Word],
        *,
        is_quick: bool,
    ) -> None:
        self._job = job
        self._pythonpath = pythonpath
        self._local_path = local_path
        self._is_quick = is_quick
        self._trees: Any = None

    @cached_property
    def script(self) -> str | None:
        """The path of the program on this machine, or None."""
        job = self._job
        if job.script is not None:
            path = self._local_path(job.script)
            return path if path and os.path.isfile(path) and path.endswith(".py") else None
        if job.module is None:
            return None
        below = job.module.replace(".", "/")
        for root in filter(None, (self._local_path("."), *self.roots)):
            for name in (f"{below}.py", f"{below}/__main__.py"):
                if os.path.isfile(os.path.join(root, name)):
                    return os.path.join(root, name)
        return None

    @cached_property
    def roots(self) -> list[str]:
        """The folders of the job's PYTHONPATH that are on this machine."""
        return [p for p in map(self._local_path, map(str, self._pythonpath)) if p is not None]

    @cached_property
    def imports(self) -> Imports:
        """The imports of the program. Raises NotKnown."""
        from safelaunch.analysis.imports.follow import MAX_FILES, read_imports
        from safelaunch.analysis.python import trees

        if self.script is None:
            raise NotKnown("the program is not on this machine")
        self._trees = trees.Trees()
        return read_imports(
            self.script,
            self.roots,
            trees=self._trees,
            cwd=self._local_path("."),
            is_module=self._job.module is not None,
            seconds=QUICK if self._is_quick else None,
            max_files=MAX_FILES if self._is_quick else _MAX_FILES,
        )

    @cached_property
    def syntax_error(self) -> tuple[int, str] | None:
        """The (line, reason) of a syntax error of the program, or None."""
        _ = self.imports
        self._trees.tree(self.script)
        unread = self._trees.unread.get(self.script)
        if unread is None or not unread.why.startswith("syntax: "):
            return None
        return unread.location.line, unread.why.removeprefix("syntax: ")

    @cached_property
    def framework(self) -> FrameworkCommand | None:
        """The framework's command that reads the options: the job's, or that of its program."""
        job = self._job
        if job.command:
            return FrameworkCommand(job.launcher, job.command[0])
        program = _SWIFT_PROGRAM.search(job.module or job.script or "")
        if program is not None:
            return FrameworkCommand("swift", program[1] or program[2], reads_files=False)
        text = b"" if job.script is None else self.text(job.script) or b""
        if _LLAMAFACTORY_PROGRAM in text:
            return FrameworkCommand("llamafactory", "train")
        return None

    def options(self, paths: Callable[[], LibraryPaths]) -> ScriptOptions | None:
        """Return the options that the program accepts; None where it parses none. Raises NotKnown.

        `paths`: where the packages of its interpreter are.
        """
        from safelaunch.analysis.options.read import read_options

        seconds = QUICK_OPTIONS if self._is_quick else None
        job = self._job
        is_module = job.module is not None
        if self.framework is not None:
            from safelaunch.analysis.options.framework_command import read_framework_command

            first = self._local_path(".") if self.script is None else os.path.dirname(self.script)
            own = (*filter(None, [first]), *self.roots)
            options = read_framework_command(
                self.framework, lambda: _with_project(paths(), own), seconds
            )
            if options is not None or self.script is None:
                return options
        if self.script is not None:
            return read_options(
                self.script,
                self.roots,
                imports=self.imports,
                trees=self._trees,
                is_module=is_module,
                cwd=self._local_path("."),
                library_paths=paths,
                seconds=seconds,
            )
        file = self.installed_module(paths())
        if file is None:
            return None
        return read_options(
            file, [], is_module=True, library_paths=paths, is_library=True, seconds=seconds
        )

    def installed_module(self, paths: LibraryPaths) -> str | None:
        """Return the file of the job's module in the packages of its interpreter, or None."""
        from safelaunch.analysis.python.libraries import library_file

        module = self._job.module
        if module is None:
            return None
        files = (library_file(f"{module}.__main__", paths), library_file(module, paths))
        return next((file for file in files if file is not None), None)

    @cached_property
    def trl_configs(self) -> TrlConfigs | None:
        """The configurations of TRL that the program uses; None where that is not known."""
        from safelaunch.analysis.options.trl_configs import read_configs

        if self.script is None:
            return None
        return read_configs(self.script, self.imports, self._trees)

    def mentions(self, word: bytes) -> bool:
        """Whether the program's own file is on this machine and has a word."""
        if self.script is None:
            return False
        try:
            with open(self.script, "rb") as stream:
                return word in stream.read(_MAX_SETTINGS)
        except OSError:
            return False

    def any_mentions(self, word: bytes) -> bool:
        """Whether any file that the program imports of its project has a word outside comments.

        Raises NotKnown.
        """
        texts = (self._trees.data(path) or b"" for path in self.imports.files)
        lines = (line for text in texts if word in text for line in text.splitlines())
        return any(word in line.partition(b"#")[0] for line in lines)

    def folders_of_mentions(self, word: bytes) -> set[str]:
        """Return the folders of the program's files that have a word. Raises NotKnown."""
        paths = (p for p in self.imports.files if word in (self._trees.data(p) or b""))
        return {os.path.dirname(path) for path in paths}

    def reads_variable(self, name: str) -> bool:
        """Whether the program itself reads a variable. Raises NotKnown."""
        from safelaunch.analysis.python.environment import reads_variable

        return reads_variable(name, self.imports.files, self._trees)

    @cached_property
    def resumes_by_itself(self) -> bool:
        """Whether the program starts its trainer without a look at `resume_from_checkpoint`.

        Trainer.train() takes a checkpoint as its argument alone, and not from TrainingArguments.
        """
        if self.script is None:
            return False
        imports = self.imports
        texts = [self._trees.data(path) or b"" for path in imports.files]
        is_whole = imports.is_complete and not imports.unread
        is_unread = not any(re.search(_RESUME_ARGUMENT, text) for text in texts)
        return is_whole and is_unread and any(b".train(" in text for text in texts)

    def text(self, path: str) -> bytes | None:
        """Return a file of the job on this machine; None where it cannot be read."""
        file = self._local_path(path)
        if file is None or not os.path.isfile(file):  # a pipe would block
            return None
        try:
            with open(file, "rb") as stream:
                return stream.read(_MAX_SETTINGS)
        except OSError:
            return None

    def settings(self, path: str) -> Any:
        """Return a settings file as plain data; None where it cannot be read."""
        data = self.text(path)
        if data is None:
            return None
        try:
            if path.endswith(".json"):
                import json

                return json.loads(data.decode("utf-8", "replace"))
            if path.endswith((".yaml", ".yml")):
                import yaml

                loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
                return yaml.load(data, Loader=loader)  # noqa: S506 - both are the safe one
        except Exception:  # noqa: BLE001 - whatever a file may contain: other checks report it
            return None
        return None


def _with_project(paths: LibraryPaths, folders: tuple[str, ...]) -> LibraryPaths:
    """Return the paths with folders of the project first, which may be the framework itself."""
    return paths._replace(folders=(*folders, *paths.folders))
