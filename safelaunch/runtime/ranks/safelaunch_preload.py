"""Imports modules once for all ranks of a node, and runs the program in a forked copy.

start_ranks.py loads it by its path, in a process of the job's own Python. A fork copies what an
import has made, but not threads, connections or a context on a GPU; where an import has made one of
these, or has drawn random numbers, `import_all` says so, and each rank imports for itself.

A forked copy is not a new process in all: code that reads RANK or LOCAL_RANK while it is imported
sees none, and all ranks have one seed of hash(). Random generators are seeded anew in each.

Any Python 3 of the job may run it: no syntax newer than 3.5.
"""

import builtins
import gc
import importlib
import importlib.machinery
import importlib.util
import os
import random
import runpy
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/davinci", "/dev/accel")
CONNECTIONS = ("socket:", "pipe:", "anon_inode:")
SITE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "site")


def import_all(names: "list[str]", words: "list[str]") -> str:
    """Import modules as the program would; return why they cannot be shared, "" if they can.

    `words` are the program's, from the script, or from `-m`, on.
    """
    set_search_path(words)
    before, state = descriptors(), random.getstate()
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as e:  # noqa: BLE001 - a rank will show it with its traceback
            return "`%s` cannot be imported (%s: %s)" % (name, type(e).__name__, e)
    why = device_problem(descriptors() - before)
    if not why and random.getstate() != state:
        why = "an import has drawn or seeded random numbers"
    threads = 1 if why else threads_after_fork()
    if threads > 1:
        why = "an import has started %d thread%s" % (threads - 1, "s" if threads > 2 else "")  # noqa: PLR2004
    if not why:
        # the ranks share the memory of what lives now, while the collector does not write to it
        gc.collect()
        gc.freeze()
    return why


def device_problem(opened: "set[str]") -> str:
    """Return which device or connection an import has opened; "" for none."""
    for path in sorted(opened):
        if path.startswith(DEVICES):
            return "an import has opened a GPU (%s)" % path
        if path.startswith(CONNECTIONS):
            return "an import has opened a connection (%s)" % path
    torch = sys.modules.get("torch")
    if torch is not None and is_initialized(torch):
        return "an import has initialised the GPU"
    return ""


def set_search_path(words: "list[str]") -> None:
    """Let modules be searched where the program's own are: in its folder, or the working one."""
    if getattr(sys.flags, "safe_path", False):
        return
    own = os.getcwd() if words[0] == "-m" else os.path.dirname(os.path.realpath(words[0]))
    sys.path[0] = own


def descriptors() -> "set[str]":
    """Return what the descriptors above 2 stand for."""
    paths = set()
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:  # noqa: PLR2004
            try:
                paths.add(os.readlink("/proc/self/fd/" + name))
            except OSError:
                pass  # that of the listing
    return paths


def is_initialized(torch: types.ModuleType) -> bool:
    """Whether torch has a context on a GPU, which no forked process may use."""
    return any(
        getattr(getattr(torch, kind, None), "is_initialized", bool)() for kind in ("cuda", "npu")
    )


def threads_after_fork() -> int:
    """Return how many threads are left once a child was forked.

    OpenBLAS starts threads when numpy is imported; it ends them before a fork (pthread_atfork), and
    starts them again when they have work.
    """
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task"))


def run(words: "list[str]", environment: "dict[str, str]") -> "NoReturn":
    """Be a rank, in the child: run the program as `python WORDS` would."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    try:
        seed_anew()
        become_rank()
        sys.argv = words[1:] if words[0] == "-m" else words
        execute(words)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001 - shown as the interpreter shows it
        show(error)
        sys.exit(1)
    sys.exit(0)


def seed_anew() -> None:
    """Seed the generators that a new process seeds from the system; `random` does so itself."""
    numpy_random, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
    if numpy_random is not None:
        numpy_random.seed()
    if torch is not None:  # of the CPU: the seed of a GPU's is the same in all new processes
        torch.default_generator.seed()


def become_rank() -> None:
    """Do what `sitecustomize` does in a process that is a rank from its start on."""
    if not os.environ.get("SAFELAUNCH_SITE"):
        return
    path = os.path.join(SITE, "sitecustomize.py")
    spec = importlib.util.spec_from_file_location("safelaunch_sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.become_rank()


def execute(words: "list[str]") -> None:
    """Run a script, or behind `-m` a module, as the main module."""
    if words[0] == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if os.path.isdir(words[0]):
        runpy.run_path(words[0], run_name="__main__")
        return
    # from 3.9 on the interpreter itself makes it absolute
    path = words[0] if sys.version_info < (3, 9) else os.path.join(os.getcwd(), words[0])
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    names = main.__dict__
    names.update(__file__=path, __cached__=None, __builtins__=builtins, __annotations__={})
    names["__loader__"] = importlib.machinery.SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    exec(code, names)  # noqa: S102 - the user's program


def show(error: BaseException) -> None:
    """Print an uncaught exception as the interpreter does, without the frames of this file."""
    trace = error.__traceback__
    own = (__file__, runpy.__file__)
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    record = getattr(getattr(sys, "last_value", None), "record", None)  # of safelaunch_rank.py
    sys.last_type, sys.last_traceback = type(error), trace
    sys.last_value = error
    setattr(sys, "last_exc", error)  # noqa: B010 - from 3.12 on
    if record is not None:
        record(error)
    sys.excepthook(type(error), error, trace)
