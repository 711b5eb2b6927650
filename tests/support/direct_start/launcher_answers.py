"""What the real launchers make of their words, asked without starting a rank.

`python launcher_answers.py PACKAGE VERSION <questions.json` prints the answers as JSON. It needs
torch and accelerate, and nothing of safelaunch: another version comes by PYTHONPATH. The launchers'
own code runs up to the call of torch's elastic agent; what the agent adds (LocalElasticAgent
._start_workers) is read from the configuration that it gets.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

RANDOM = "<random>"  # a run id that the launcher draws
C10D = "<c10d>"  # an address or port that only the agent knows
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]{30,}")


class Started(Exception):  # noqa: N818 - it stands for a start, which ends the launcher's code here
    """The launcher would start ranks with this configuration now."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__("started")
        self.answer = answer


class Agent:
    """In place of `elastic_launch`: its configuration is the answer."""

    def __init__(self, config: Any, entrypoint: Any) -> None:
        self.config, self.entrypoint = config, entrypoint

    def __call__(self, *words: str) -> None:
        raise Started(rank(self.config, self.entrypoint, words))


def rank(config: Any, entrypoint: Any, words: Sequence[str]) -> dict[str, Any]:
    """Return the words and the environment of a node's first rank, as the agent makes them."""
    api = importlib.import_module("torch.distributed.launcher.api")
    macros = importlib.import_module("torch.distributed.elastic.utils").macros
    node, nodes, local = config.rdzv_configs.get("rank", 0), config.max_nodes, config.nproc_per_node
    parameters = api.RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id or RANDOM,
        min_nodes=config.min_nodes,
        max_nodes=nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    address, port = api._get_addr_and_port(parameters)
    if config.rdzv_backend not in ("static", "c10d"):
        raise ValueError(f"rendezvous {config.rdzv_backend}")
    run_id = config.run_id or RANDOM
    world = str(local * nodes)
    environment = {
        "GROUP_RANK": str(node),
        "ROLE_NAME": config.role,
        "LOCAL_WORLD_SIZE": str(local),
        "WORLD_SIZE": world,
        "GROUP_WORLD_SIZE": str(nodes),
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": address or C10D,
        "MASTER_PORT": str(port or C10D),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "TORCHELASTIC_RUN_ID": RANDOM if _UUID.fullmatch(run_id) else run_id,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    signals = getattr(config, "signals_to_handle", None)
    if signals is not None:
        environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = signals
    unusual = {
        "entrypoint": not isinstance(entrypoint, str),
        "redirects": bool(config.logs_specs._redirects) or bool(config.logs_specs._tee),
        "log_dir": config.logs_specs._root_log_dir is not None
        and not os.path.basename(config.logs_specs._root_log_dir).startswith("torchelastic"),
        "local_addr": config.local_addr is not None,
    }
    return {
        "words": [str(entrypoint), *macros.substitute(list(words), "0")],
        "env": {**os.environ, **environment},
        "unusual": [name for name, is_so in unusual.items() if is_so],
    }


def answer(module: str, words: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return what `python -m module words` would start in this environment, or why it does not."""
    own, errors = dict(os.environ), io.StringIO()
    os.environ.clear()
    os.environ.update(env)
    try:
        with contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _LAUNCHERS[module](list(words))
    except Started as e:
        return e.answer
    except SystemExit:
        lines = errors.getvalue().strip().splitlines()
        return {"refused": lines[-1] if lines else "SystemExit"}
    except Exception as e:  # noqa: BLE001 - any error of the launcher is its refusal
        return {"refused": f"{type(e).__name__}: {e}"}
    finally:
        os.environ.clear()
        os.environ.update(own)
    return {"refused": "nothing was started"}


def _torchrun(words: list[str]) -> None:
    run = importlib.import_module("torch.distributed.run")
    run.run(run.parse_args(words))


def _launch(words: list[str]) -> None:
    launch = importlib.import_module("torch.distributed.launch")
    launch.launch(launch.parse_args(words))


def _accelerate(words: list[str]) -> None:
    launch = importlib.import_module("accelerate.commands.launch")
    if not PARSERS:
        PARSERS.append(launch.launch_command_parser())
    launch.launch_command(PARSERS[0].parse_args(words))


def _child(*_: Any, **__: Any) -> None:
    raise Started({"child": True})


PARSERS: list[Any] = []  # accelerate's takes 10 ms to build
_LAUNCHERS = {
    "torch.distributed.run": _torchrun,
    "torch.distributed.launch": _launch,
    "accelerate.commands.launch": _accelerate,
}


@contextlib.contextmanager
def without_starts() -> Iterator[None]:
    """Let the launchers of this process start nothing, and think that DeepSpeed is installed."""
    run = importlib.import_module("torch.distributed.run")
    launch = importlib.import_module("accelerate.commands.launch")
    utils = importlib.import_module("accelerate.utils.launch")
    runner = types.ModuleType("deepspeed.launcher.runner")
    runner.DEEPSPEED_ENVIRONMENT_NAME = os.devnull  # type: ignore[attr-defined]
    places: list[tuple[Any, str, Any]] = [
        (run, "elastic_launch", Agent),
        (launch, "is_deepspeed_available", lambda: True),
        (launch, "is_rich_available", lambda: False),  # asked of every error, 10 ms each time
        (launch, "subprocess", types.SimpleNamespace(Popen=_child, CalledProcessError=OSError)),
        (utils, "is_port_in_use", lambda _port: False),
    ]
    modules = {
        "deepspeed": types.ModuleType("deepspeed"),
        "deepspeed.launcher": types.ModuleType("deepspeed.launcher"),
        "deepspeed.launcher.runner": runner,
    }
    saved = [(place, name, getattr(place, name)) for place, name, _ in places]
    hidden = {name: sys.modules.get(name) for name in modules}
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    for place, name, value in places:
        setattr(place, name, value)
    sys.modules.update(modules)
    try:
        yield
    finally:
        logging.disable(level)
        for place, name, value in saved:
            setattr(place, name, value)
        for name, module in hidden.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


def answers(questions: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the answers to questions: module, words, environment."""
    with without_starts():
        return [answer(module, words, env) for module, words, env in questions]


def ask(
    questions: Sequence[Sequence[Any]], env: Mapping[str, str], expected: tuple[str, str]
) -> list[dict[str, Any]]:
    """Return the answers of another process with this environment, one that has its PYTHONPATH.

    `expected` are a package and the version of it that has to answer.
    """
    done = subprocess.run(
        [sys.executable, __file__, *expected],
        input=json.dumps(questions),
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    result: list[dict[str, Any]] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    package, version = sys.argv[1:]
    imported = importlib.import_module(package).__version__
    if imported != version:
        sys.exit(f"{package} {imported} is imported, not {version}")
    json.dump(answers(json.load(sys.stdin)), sys.stdout)
