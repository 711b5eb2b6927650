"""The JSON Schema for editors accepts what the reader accepts, and refuses what it plainly refuses.

An editor that marks a good file as wrong is worse than none: the first half is checked key by key
over many values.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft7Validator
from support import REPOSITORY
from support.inputs import yaml_core_schema
from support.inputs.fuzzed_jobs import JOBS, VALID, WORDS

from safelaunch.config import json_schema
from safelaunch.config.schema.blocks import BLOCKS
from safelaunch.config.schema.files import HOST, JOB, PROFILE
from safelaunch.config.yaml_io.reader import parse
from safelaunch.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from safelaunch.config.schema.keys import Key, Schema
    from safelaunch.config.yaml_io.node import Node

FILES = {
    "job": [*REPOSITORY.glob("examples/*/*.yaml"), *REPOSITORY.glob("tests/golden/jobs/*.yaml")],
    "profile": sorted(REPOSITORY.glob("profiles/*.yaml")),
    "hosts": [],
}
SCHEMAS = (JOB, PROFILE, HOST)


def refuses(name: str, text: str) -> list[str]:
    """Return what the schema has against a file."""
    validator = Draft7Validator(json_schema.make(name))
    return [error.message for error in validator.iter_errors(yaml_core_schema.read(text))]


@pytest.mark.parametrize("name", json_schema.NAMES)
def test_it_is_a_schema(name: str) -> None:
    Draft7Validator.check_schema(json_schema.make(name))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        pytest.param(name, path, id="/".join(path.parts[-2:]))
        for name, paths in FILES.items()
        for path in paths
        if path.parent.name != "configs"
    ],
)
def test_no_file_of_this_repository_is_refused(name: str, path: Path) -> None:
    assert refuses(name, path.read_text(encoding="utf-8")) == []


GOOD = {
    "job": [
        yaml.safe_dump(VALID),
        "name: 5\nlauncher: command\ncommand: [run, 1, true, 1e-3]\nprocesses: +2\n",
        "launcher: null\nprofile: ./mine.yaml\nscript: train.py\nargs: null\nenv: null\n",
        "extends: base.yaml\nassets: {base: {to: /data/base}, data: null}\nhang: off\n",
        "module: módulo.трен\nscript: null\ngpus: auto\ninherit: none\nlog_cap: 1.5GiB\n",
        "env: {A: 1, B: yes, C: {prepend: /x}, D: {prepend: [/x, 1]}, E: 2026-11-21, F: ~}\n",
        "recovery: {}\nhang: {}\nsuccess: {artifacts: out/*.pt}\nsync: {include: [data/x]}\n",
        "recovery: {backoff: 0s, budget: 1d12h, classes: {port-in-use: null, cuda-oom: stop}}\n",
        "slurm: {mem: 4GiB, exclude: n7, nodelist: [n1, 'n[2-3]'], signal: 0s, time: 1d12h}\n",
        "slurm: {options: [--nice, 100], qos: null, gres: true, setup: module load x}\n",
        "gpus: [0, GPU-1a2b, '3']\ninherit: [HOME]\nargs: [--lr, 1e-3, '']\nextends: [a, b]\n",
    ],
    "profile": [
        "extends: rtx5090\nenv: {A: null, B: {when: {gpus: 2, nccl: '<2.21'}}, C: {cost: x}}\n",
        "env: {A: {value: 1, workaround: true, when: null}}\nsite: {B: {why: x}, C: }\n",
        "accelerator: null\nladder: [{A: 1}, {}]\nfacts: {a: 1, b: null}\n",
    ],
    "hosts": [
        "hosts: {gpu1: , gpu2: {}, 'me@10.0.0.5': {address: 10.0.0.5}}\n",
        "hosts: {a: {ssh: lab, port: '22', hub: offline}, b: {hub: 'http://x/y', port: 2222}}\n",
        "hosts: {a: {address: [10.0.0.5, 'x:2201', 'fe80::1%ethé', '[fe80::2]:24'], user: a$}}\n",
        "hosts: {a: {facts: {nccl: 2.27.3, cuda: 12.8}, setup: true}}\ngroups: {lab: [a]}\n",
        "hosts: {5: {workdir: ~/work, conda: x, conda_root: /opt/conda}}\ngroups: null\n",
    ],
}


@pytest.mark.parametrize(
    ("name", "text"), [(n, text) for n, texts in GOOD.items() for text in texts]
)
def test_what_may_be_written_is_not_refused(name: str, text: str) -> None:
    assert refuses(name, text) == []


def test_the_hosts_file_of_the_docs_is_not_refused() -> None:
    docs = (REPOSITORY / "docs" / "hosts.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", docs, re.DOTALL)
    assert refuses("hosts", example) == []


BAD = {
    "job": [
        "proceses: 2",
        "processes: four",
        'processes: "4"',
        "processes: 0",
        "processes: 1.5",
        "script: [train.py]",
        "script: ''",
        "launcher: {a: b}",
        "launcher: acelerate",
        "name: my job",
        f"name: {'x' * 42}",
        "module: my/train.py",
        "mixed_precision: bf32",
        "gpus: []",
        "gpus: 0",
        "gpus: [a]",
        "gpus: [0, 0]",
        "hosts: gpu1",
        "command: echo hello",
        "command: [echo, null]",
        "args: --lr 1",
        "args: {--lr: 1}",
        "args: {a b: 1}",
        "args: {a: {b: 1}}",
        "env: [A=1]",
        "env: {A-B: 1}",
        "env: {A: [1]}",
        "env: {A: {append: /x}}",
        "env: {A: {prepend: null}}",
        "env_from: HF_TOKEN",
        "inherit: some",
        "setup: {a: b}",
        "capture: 'true'",
        "capture: yes",
        "logs: ~/x.log",
        "max_duration: 5",
        "max_duration: 5 minutes",
        "log_cap: 1GB",
        "progress: step (\\d+)",
        "progress: step (?P<x>\\d+)",
        "success: true",
        "success: {min_step: 1}",
        "success: {artifacts: [/out]}",
        "hang: on",
        "hang: {action: kill}",
        "recovery: 3",
        "recovery: {classes: {oom: stop}}",
        "recovery: {classes: {cuda-oom: kill}}",
        "sync: {include: ['!x']}",
        "assets: [models]",
        "assets: {1a: models}",
        "assets: {a: ~/models}",
        "assets: {a: {path: x, place: y}}",
        "slurm: gpu",
        "slurm: {partitions: gpu}",
        "slurm: {partition: a b}",
        "slurm: {time: 24:00:00}",
        "slurm: {mem: 4GB}",
        "slurm: {requeue: yes}",
        "slurm: {gpus_per_node: 0}",
        "slurm: {prefix: ssh login}",
        "smoke: {smoke: {}}",
        "smoke: {extends: x}",
        "smoke: {processes: 0}",
    ],
    "profile": [
        "acelerator: cuda",
        "accelerator: tpu",
        "facts: [a]",
        "env: {A: [1]}",
        "env: {A: {valu: 1}}",
        "env: {A: {value: 1, workaround: maybe}}",
        "env: {A: {value: 1, when: {gpu: 2}}}",
        "env: {A: {value: 1, when: {gpus: two}}}",
        "ladder: {A: 1}",
        "sources: one",
    ],
    "hosts": [
        "host: {}",
        "hosts: null",
        "hosts: [gpu1]",
        "hosts: {a b: {}}",
        "hosts: {a: gpu}",
        "hosts: {a: {adress: x}}",
        "hosts: {a: {password: x}}",
        "hosts: {a: {address: []}}",
        "hosts: {a: {address: 'a b'}}",
        "hosts: {a: {port: 70000}}",
        "hosts: {a: {port: ssh}}",
        "hosts: {a: {user: 'bob:secret'}}",
        "hosts: {a: {ssh: '-oX'}}",
        "hosts: {a: {hub: mirror.example}}",
        "hosts: {a: }\ngroups: {lab: a}",
        "hosts: {a: }\ngroups: {lab: []}",
    ],
}


@pytest.mark.parametrize(
    ("name", "text"), [(n, text) for n, texts in BAD.items() for text in texts]
)
def test_what_the_reader_refuses_is_refused(name: str, text: str) -> None:
    assert refuses(name, text) != []


@pytest.mark.parametrize("text", BAD["job"])
def test_what_is_refused_here_is_refused_by_the_reader(text: str) -> None:
    if "acelerate" in text:
        return  # by the planner: the keys alone do not know which launchers there are
    with pytest.raises(ConfigError):
        JOB.read(parse(text, "job.yaml"))


# -- the same values to both -----------------------------------------------------------------------

SCALARS = [
    *WORDS, "~", "Null", "True", "yes", "no", "on", "0x1F", "0o17", "017", "+5", "-0", "1.0", ".5",
    "1_000", "22:22", "2026-11-21", ".inf", ".nan", "10m", "1.5h", "4GiB", "fp8", "report", "x.y",
    "é.ü", "a/b", "~", "~x", "!x", "#x", "a b", "a=b", "GPU-1", "22", "65535", "10.0.0.5", "online",
    "https://hub.example/x", "[fe80::1]:22", "fe80::1%é", "lab$", "a\\", "2.27.3", ">1",
    "<2,!=3.post1", "module", "cuda", "job-1", "*.pt", "/out/*.pt", "(?P<loss>x)", "A=1",
]  # fmt: skip
PARTS = ["A", "lr", "prepend", "path", "to", "value", "when", "gpus", "artifacts", "action"]


def flow_values() -> Iterator[str]:
    """Yield values in YAML's flow style: scalars plain and quoted, lists and mappings of them."""
    for scalar in filter(str.isprintable, SCALARS):
        quoted = '"' + "".join(f"\\U{ord(c):08x}" for c in scalar) + '"'
        is_plain = re.fullmatch(r"[^\s\0\[\]{},:#&*!|>'\"%@`-][^\s\0\[\]{},:#]*", scalar)
        for text in (scalar, quoted) if is_plain else (quoted,):
            yield from (text, f"[{text}]", f"[1, {text}]")
            yield from (f"{{{part}: {text}}}" for part in PARTS)
            yield from (f"{{A: {{{part}: {text}}}}}" for part in ("prepend", "path", "value", "x"))
    yield from ("", "[]", "{}", "[[]]", "[{}]", "[{A: 1}]", "{A: []}", "{A: [1, b]}", "{A: {}}")


@pytest.fixture(scope="module")
def values() -> list[tuple[Node, Any]]:
    """Return the values as nodes, and as JSON."""
    texts = [value for value in flow_values() if len(value) < 5000]
    nodes = [parse(f"key: {text}\n", "file").items[0][1] for text in texts]
    return [(node, yaml_core_schema.typed(node)) for node in nodes]


@pytest.mark.parametrize(
    ("schema", "key"),
    [pytest.param(s, k, id=f"{s.name}.{k.name}") for s in SCHEMAS for k in s.keys],
)
def test_no_value_that_the_reader_takes_is_refused(
    schema: Schema, key: Key, values: list[tuple[Node, Any]]
) -> None:
    shape = schema.schema()
    validator = Draft7Validator(shape).evolve(schema=shape["properties"][key.name])
    accepted = {}  # plain and quoted, most are the same value
    for node, value in values:
        with contextlib.suppress(ConfigError):
            if not node.is_null:
                key.type.read(node)
            accepted[repr(value)] = value
    assert accepted
    assert [value for value in accepted.values() if not validator.is_valid(value)] == []


@settings(
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(JOBS)
def test_no_job_that_the_reader_takes_is_refused(job: bytes) -> None:
    try:
        tree = parse(job.decode(errors="strict"), "job.yaml")
        JOB.read(tree)
    except (ConfigError, UnicodeDecodeError):
        return
    assert Draft7Validator(JOB.schema()).is_valid(yaml_core_schema.typed(tree))


# -- what it says ----------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [*SCHEMAS, *BLOCKS.values()], ids=lambda s: s.name)
def test_every_key_has_its_line_of_help(schema: Schema) -> None:
    descriptions = {
        name: shape["description"] for name, shape in schema.schema()["properties"].items()
    }
    assert descriptions == {key.name: key.help for key in schema.keys}


def test_the_files_have_every_key_of_the_declaration() -> None:
    schemas = {name: json_schema.make(name) for name in json_schema.NAMES}
    hosts = schemas["hosts"]["properties"]["hosts"]["additionalProperties"]
    assert schemas["job"]["properties"].keys() == {key.name for key in JOB.keys}
    assert schemas["profile"]["properties"].keys() == {key.name for key in PROFILE.keys}
    assert hosts["properties"].keys() == {key.name for key in HOST.keys}


def patterns(shape: Any) -> Iterator[str]:
    """Yield the regular expressions of a schema."""
    if isinstance(shape, dict):
        yield from (v for k, v in shape.items() if k == "pattern" and isinstance(v, str))
    for inner in shape.values() if isinstance(shape, dict) else shape:
        if isinstance(inner, (dict, list)):
            yield from patterns(inner)


@pytest.mark.parametrize("name", json_schema.NAMES)
def test_patterns_are_read_alike_by_editors(name: str) -> None:
    # ECMAScript with the flag u: no other escapes, and its \w and \d are those of ASCII
    for pattern in patterns(json_schema.make(name)):
        assert set(re.findall(r"\\(.)", pattern)) <= set("nxsS^$\\.*+?()[]{}|/"), pattern
        assert "(?P<" not in pattern.replace("\\(\\?P<", "")
