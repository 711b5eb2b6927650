from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.inputs.option_scripts import flags, script_options, write

from safelaunch.analysis.options.read import read_options
from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.analysis.python.libraries import LibraryPaths
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

    from safelaunch.analysis.options.read import ScriptOptions

# The verdicts are those of draccus 0.11.6 and of pyrallis 0.3.1.
CLASSES = """
    import enum
    from dataclasses import dataclass, field
    from pathlib import Path
    from typing import Any, Dict, List, Literal, Optional, Tuple, Union
    import LIBRARY
    class Mode(enum.Enum):
        fast = "f"
        slow = "s"
    @dataclass
    class Data:
        root: Path
        sizes: List[int] = field(default_factory=lambda: [1])
        limits: Optional[Tuple[float, float]] = None
        names: Dict[str, str] = field(default_factory=dict)
"""
CONFIG = """
    @dataclass
    class Config:
        steps: int
        data: Data = field(default_factory=lambda: Data(Path()))
        rate: float = field(default=1e-4, metadata={"help": "of learning"})
        resume: bool = False
        name: str = "run"
        seed: Optional[int] = None
        mode: Mode = Mode.fast
        anything: Any = None
        output: Path = Path("out")
        computed: int = field(init=False, default=1)
"""
MAIN = """
    @LIBRARY.wrap()
    def main(config: Config):
        print(config)
    if __name__ == "__main__":
        main()
"""
CHOICES = """
    @dataclass
    class Policy(draccus.ChoiceRegistry):
        device: str = "cuda"
    @Policy.register_subclass("act")
    @dataclass
    class ActPolicy(Policy):
        chunk: int = 100
    @Policy.register_subclass("pi0")
    @dataclass
    class PiPolicy(Policy):
        horizon: int
        kind: Literal["a", "b"] = "a"
    @dataclass
    class Config:
        policy: Policy | None = None
        steps: int = 1
"""
LEROBOT = """
    from dataclasses import dataclass
    import draccus
    from lerobot.configs import parser
    @dataclass
    class Policy(draccus.ChoiceRegistry):
        device: str = "cuda"
    @Policy.register_subclass("act")
    @dataclass
    class ActPolicy(Policy):
        chunk: int = 100
    @dataclass
    class Data:
        repo_id: str
    @dataclass
    class Config:
        dataset: Data
        policy: Policy | None = None
        steps: int = 1
    @parser.wrap()
    def train(config: Config):
        print(config)
    train()
"""
WRAP = """
    import draccus
    def filter_path_args(fields, words): ...
    def wrap():
        def outer(function):
            def inner():
                words = filter_path_args(["policy"], sys.argv[1:])
                function(draccus.parse(Config, args=words))
            return inner
        return outer
"""


def read(folder: Path, library: str, *parts: str) -> ScriptOptions:
    return script_options(folder, "".join(parts).replace("LIBRARY", library))


def read_beside(folder: Path, text: str, *packages: Path) -> ScriptOptions:
    """Return what is read of a script of an interpreter with these folders of packages."""
    paths = LibraryPaths(tuple(map(str, packages)))
    script = write(folder, text)
    options = read_options(script, [folder], seconds=30, library_paths=lambda: paths)
    assert options is not None
    return options


def verdict(options: ScriptOptions, words: str) -> str | None:
    problems = list(option_problems(options, Args(words=tuple(words.split("~")))))
    return problems[0].message if problems else None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--steps~3", None),
        ("--steps=3~--data.root~x~--data.sizes=[1, 2]~--rate~1e-4~--name=1", None),
        ("--steps=3~--resume=yes~--seed~null~--mode=fast~--anything={a: 1}", None),
        ("--steps=3~--mode=s~--data.root=x~--data.limits=[0, 1]~--data.names={a: b}", None),
        ("--steps=x~--steps=3", None),
        ("--steps=-3", None),
        ("--config_path=c.yaml", None),
        ("--help", None),
        ("--nothing~--help", None),
        ("--rate=1", "the script requires `--steps`"),
        ("--steps=3~--data.sizes=[1]", "the script requires `--data.root`"),
        ("--steps=3~--step=3", "the script has no option `--step`"),
        ("--steps=3~--data.size=[1]", "the script has no option `--data.size`"),
        ("--steps=3~--computed=1", "the script has no option `--computed`"),
        ("--steps=3~--resume", "`--resume` takes a value, got none"),
        ("--steps=3~--resume=1", "`--resume 1` is not accepted: draccus expects `true` or `false`"),
        ("--steps=1e3", "`--steps 1e3` is not accepted: draccus expects a whole number"),
        ("--steps=1.0", "`--steps 1.0` is not accepted: draccus expects a whole number"),
        ("--steps=3~--rate=x", "`--rate x` is not accepted: draccus expects a number"),
        ("--steps=3~--output=7", "`--output 7` is not accepted: draccus expects a path"),
        (
            "--steps=3~--data.root=no",
            "`--data.root no` is not accepted: draccus expects a path, and reads `no` as false",
        ),
        (
            "--steps=3~--mode=x",
            "`--mode x` is not accepted: draccus expects one of `fast`, `slow`, `f`, `s`",
        ),
        (
            "--steps=3~--data.root=x~--data.sizes=1,2",
            "`--data.sizes 1,2` is not accepted: draccus expects a list such as `[a, b]`",
        ),
        (
            "--steps=3~--name=a: b: c",
            (
                "`--name a: b: c` is no YAML, as which draccus reads it: "
                "mapping values are not allowed here"
            ),
        ),
        ("--steps=3~4", "`4`: the script accepts no positional arguments"),
    ],
)
def test_draccus_options_are_judged_as_draccus_parses_them(
    words: str, message: str | None, tmp_path: Path
) -> None:
    (tmp_path / "site" / "draccus").mkdir(parents=True)
    parser = tmp_path / "site" / "draccus" / "argparsing.py"
    parser.write_text('kwargs["allow_abbrev"] = False\n')
    (tmp_path / "site" / "draccus" / "__init__.py").touch()
    text = (CLASSES + CONFIG + MAIN).replace("LIBRARY", "draccus")
    options = read_beside(tmp_path, text, tmp_path / "site")
    assert verdict(options, words) == message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--steps=3.7~--resume=maybe~--mode=fast~--data.root=x", None),
        ("--ste=3~--rat=1", None),
        ("--steps=1e3", "`--steps 1e3` is not accepted: pyrallis expects a whole number"),
        ("--steps=null", "`--steps null` is not accepted: pyrallis expects a whole number"),
        ("--steps=3~--mode=f", "`--mode f` is not accepted: pyrallis expects one of `fast`, "),
        ("--steps=3~--data.sizes=[1]", "the script requires `--data.root`"),
        ("--steps=3~--lr=1", "the script has no option `--lr`"),
    ],
)
def test_pyrallis_options_are_judged_as_pyrallis_parses_them(
    words: str, message: str | None, tmp_path: Path
) -> None:
    reported = verdict(read(tmp_path, "pyrallis", CLASSES, CONFIG, MAIN), words)
    assert reported == message if message is None else str(reported).startswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--policy.type=act~--policy.chunk=3~--policy.device=cpu", None),
        ("--policy.type~pi0~--policy.horizon~3~--policy.kind=b", None),
        ("--steps=2", None),
        ("--policy.chunk=3~--config_path=c.yaml", None),
        ("--policy={type: act}", None),
        ("--policy.type=acd", "`--policy.type acd` is not one of its choices"),
        ("--policy.type=act~--policy.horizon=1", "the script has no option `--policy.horizon`"),
        ("--policy.type=pi0", "the script requires `--policy.horizon`"),
        (
            "--policy.device=cpu",
            "the script requires `--policy.type` with the other options of `policy`",
        ),
        (
            "--policy.type=pi0~--policy.horizon=1~--policy.kind=c",
            "`--policy.kind c` is not accepted: draccus expects one of `a`, `b`",
        ),
    ],
)
def test_options_of_a_registry_are_those_of_the_selected_choice(
    words: str, message: str | None, tmp_path: Path
) -> None:
    assert verdict(read(tmp_path, "draccus", CLASSES, CHOICES, MAIN), words) == message


def test_choices_that_another_module_registers_are_known(tmp_path: Path) -> None:
    (tmp_path / "more.py").write_text(
        "from policies import Policy\nfrom dataclasses import dataclass\n"
        "@Policy.register_subclass('new')\n@dataclass\nclass New(Policy):\n    width: int = 1\n"
    )
    (tmp_path / "policies.py").write_text(
        "import draccus\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Policy(draccus.ChoiceRegistry):\n    pass\n"
        "@Policy.register_subclass('old')\n@dataclass\nclass Old(Policy):\n    depth: int = 1\n"
    )
    config = (
        "\n    import more\n    from policies import Policy\n"
        "    @dataclass\n    class Config:\n        policy: Policy\n"
    )
    options = read(tmp_path, "draccus", CLASSES, config, MAIN)
    assert verdict(options, "--policy.type=new~--policy.width=2") is None
    assert verdict(options, "--policy.type=new~--policy.depth=2") == (
        "the script has no option `--policy.depth`"
    )


def test_a_registry_with_a_computed_name_accepts_any_choice(tmp_path: Path) -> None:
    names = "\n    for name in (1, 2):\n        Policy.register_subclass(str(name))(ActPolicy)\n"
    options = read(tmp_path, "draccus", CLASSES, CHOICES, names, MAIN)
    assert verdict(options, "--policy.type=other~--policy.any=1") is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--dataset.repo_id=x~--policy.path=user/model~--policy.any=1", None),
        ("--dataset.repo_id=x~--policy.path~user/model~--policy.any~1~--steps~2", None),
        ("--env.discover_packages_path=p~--policy.type=other", None),
        ("--config_path=c.json~--steps=1e3", None),
        ("--policy.path=user/model", "the script requires options of `dataset`"),
        ("--dataset.repo_id=x~--policy.type=ack", "`--policy.type ack` is not one of its choices"),
        ("--dataset.repo_id=x~--policy.type=act~--policy.chunks=1",
         "the script has no option `--policy.chunks`"),
    ],
)  # fmt: skip
def test_lerobot_leaves_the_options_of_a_checkpoint_to_its_class(
    words: str, message: str | None, tmp_path: Path
) -> None:
    (tmp_path / "lerobot" / "configs").mkdir(parents=True)
    (tmp_path / "lerobot" / "__init__.py").touch()
    (tmp_path / "lerobot" / "configs" / "__init__.py").touch()
    parser = "\n".join(line[4:] for line in WRAP.splitlines()) + "\n"
    (tmp_path / "lerobot" / "configs" / "parser.py").write_text(parser)
    options = read_beside(tmp_path, LEROBOT)
    assert verdict(options, words) == message


@pytest.mark.parametrize(
    "change",
    [
        "\n    draccus.decode.register(Mode, str)\n",
        "\n    draccus.set_config_type('json')\n",
    ],
)
def test_options_that_a_program_converts_itself_are_not_judged(change: str, tmp_path: Path) -> None:
    assert read(tmp_path, "draccus", CLASSES, CONFIG, change, MAIN).is_incomplete


def test_a_call_with_words_of_its_own_does_not_parse_the_command_line(tmp_path: Path) -> None:
    text = (CLASSES + CONFIG).replace("LIBRARY", "draccus")
    assert flags(tmp_path, text + "\n    draccus.parse(Config, None, ['--steps', '1'])\n") is None
    options = script_options(tmp_path, text + "\n    draccus.parse(Config)\n")
    assert verdict(options, "--stops=1") == "the script has no option `--stops`"
