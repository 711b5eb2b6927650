from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from safelaunch.analysis.option_model import HYDRA
from safelaunch.analysis.options.read import ScriptOptions, read_options
from safelaunch.analysis.options.unknown_options import option_problems
from safelaunch.analysis.python.trees import Unclear
from safelaunch.model import Args

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
    import hydra
    @hydra.main(config_path="conf", config_name="train", version_base=None)
    def main(cfg): ...
    if __name__ == "__main__":
        main()
"""
FILES = {
    "train": """
        defaults:
          - model: small
          - optim@model.optim: adam
          - optional data: text
          - override model/head: wide
          - _self_
        trainer: {gpus: 1, nodes: null, name: "${model.name}"}
        tags: [a]
    """,
    "eval": "trainer: {gpus: 1}",
    "model/small": """
        defaults: [head: narrow]
        name: small
        layers: 2
    """,
    "model/large": "{defaults: [head: narrow], name: large, layers: 9, experts: 8}",
    "model/head/narrow": "width: 1",
    "model/head/wide": "{width: 2, depth: 1}",
    "optim/adam": "{lr: 1.0, betas: {first: 0.9}}",
    "optim/sgd": "# @package solver\nlr: 1.0",
}


def read(
    folder: Path, script: str = SCRIPT, files: dict[str, str] = FILES, cwd: str | None = None
) -> ScriptOptions:
    for name, text in files.items():
        path = folder / "conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    (folder / "train.py").write_text(dedent(script))
    result = read_options(folder / "train.py", [], seconds=30, cwd=cwd)
    assert result is not None
    return result


def messages(folder: Path, *words: str, script: str = SCRIPT) -> list[str]:
    options = read(folder, script)
    assert options.kind == HYDRA, options.why
    return [problem.message for problem in option_problems(options, Args(words=words))]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("trainer.gpus=8", "trainer.nodes=2", "model.layers=1", "tags=[x,y]", "tags.0=b"),
        ("model=large", "model.experts=4", "model.optim.betas.first=0.1"),
        ("model.head.depth=3",),
        ("+trainer.seed=1", "trainer.seed=2", "++any.thing=1", "any.thing=2"),
        ("+trainer.nodes=2",),
        ("~trainer.gpus", "~model"),
        ("+model@teacher=large", "teacher.experts=1", "teacher.head.width=2"),
        ("optim@model.optim=sgd", "model.optim.lr=2"),
        ("+optim=sgd", "solver.lr=2"),
        ("+data=text",),
        ("hydra.run.dir=x", "hydra/launcher=submitit", "hydra.job.chdir=true"),
        ("-m", "trainer.gpus=1,2", "model=small,large"),
        ("--multirun", "trainer.gpus=choice(1,2)"),
        ("--config-name=eval", "trainer.gpus=2"),
        ("-cn", "eval.yaml", "trainer.gpus=2"),
        ("--cfg", "job", "nothing"),
        ("trainer={gpus:3}", "trainer.gpus=1"),
    ],
)
def test_what_hydra_accepts_has_no_complaint(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert messages(tmp_path, *words) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trainer.gpu=8", "`trainer.gpu=8`: the configuration has no key `trainer.gpu`"),
        ("model.experts=4", "`model.experts=4`: the configuration has no key `model.experts`"),
        ("trainer.gpus.x=1", "`trainer.gpus.x=1`: the configuration has no key `trainer.gpus.x`"),
        ("model=huge", "`model=huge`: the group `model` has no option `huge`"),
        ("model/head=tiny", "`model/head=tiny`: the group `model/head` has no option `tiny`"),
        ("optim=sgd", "`optim=sgd`: no defaults list has the group `optim`"),
        ("model=1", "`model=1`: `model` is a group: its option is the name of a file"),
        ("++model=large", "`++model=large`: `model` is a group, which `++` cannot add"),
        ("data@x=y", "`data@x=y`: there is no group `data`"),
        (
            "+trainer.gpus=8",
            "`+trainer.gpus=8`: the configuration has the key `trainer.gpus` already",
        ),
        ("~trainer.gpu", "`~trainer.gpu`: the configuration has no key `trainer.gpu` to delete"),
        (
            "trainer.gpus=1,2",
            "`trainer.gpus=1,2`: an unquoted comma is a sweep, which only `--multirun` runs",
        ),
        ("trainer.gpus", "`trainer.gpus`: Hydra cannot parse it: it has no `=`"),
        ("--gpus=1", "`--gpus`: Hydra has no such option"),
        ("tags=[a] -m trainer.gpus=2", "`trainer.gpus=2`: Hydra refuses overrides on both sides"),
        ("--config-name big", "`--config-name big`: no such configuration in "),
    ],
)
def test_what_hydra_refuses_is_told(tmp_path: Path, words: str, message: str) -> None:
    (problem,) = messages(tmp_path, *words.split())
    assert problem.startswith(message)


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        ("trainer.gpu=8", "did you mean `trainer.gpus`? else write `+trainer.gpu=8` to add it"),
        ("layers=8", "did you mean `model.layers`? else write `+layers=8` to add it"),
        ("trainer.seed=8", "write `+trainer.seed=8` to add it"),
        (
            "model.optim.first=1",
            "did you mean `model.optim.betas.first`? else write `+model.optim.first=1` to add it",
        ),
        ("model=larg", "did you mean `large`?"),
        ("optim=sgd", "did you mean `optim@model.optim`?"),
        (" ", "remove the blank behind a `\\` at a line's end"),
        ("tags=x=y", "quote the value for Hydra: tags='x=y', within shell quotes"),
        ("--trainer.gpus=1", "write `trainer.gpus=1`, as an item of a list in `args:`"),
    ],
)
def test_complaint_says_what_to_write(tmp_path: Path, word: str, fix: str) -> None:
    (problem,) = option_problems(read(tmp_path), Args(words=(word,)))
    assert problem.fix == fix


def test_no_key_is_suggested_that_another_argument_has_wrong(tmp_path: Path) -> None:
    words = ("trainer.seed_a=1", "trainer.seed_b=1")
    problems = option_problems(read(tmp_path), Args(words=words))
    assert [problem.fix for problem in problems] == [f"write `+{w}` to add it" for w in words]


@pytest.mark.parametrize(
    "words",
    [
        "model=${oc.env:MODEL} x=1",
        "hydra.searchpath=[file://more] x=1",
        "--config-path /of/the/host x=1",
        "--config-dir more x=1",
    ],
)
def test_what_is_not_certain_is_unclear(tmp_path: Path, words: str) -> None:
    with pytest.raises(Unclear):
        messages(tmp_path, *words.split())


def test_group_that_must_be_selected_is_told(tmp_path: Path) -> None:
    files = FILES | {"train": "defaults: [{model: '???'}]"}
    (problem,) = option_problems(read(tmp_path, files=files), Args(words=()))
    assert problem.message == "`model`: the group `model` has no option by default"


def test_keys_of_a_configuration_in_code_are_not_judged(tmp_path: Path) -> None:
    script = "from hydra.core.config_store import ConfigStore\n" + dedent(SCRIPT)
    files = FILES | {"train": "defaults: [code@part, _self_]\nlr: 1"}
    options = read(tmp_path, script, files)
    assert [*option_problems(options, Args(words=("part.x=1", "db=mysql", "x.y=2")))] != []
    assert [*option_problems(options, Args(words=("part.x=1", "db=mysql", "lr=2")))] == []


def test_group_is_selected_by_an_interpolation_of_another(tmp_path: Path) -> None:
    files = FILES | {
        "train": "defaults: [{model: small}, {optional data: '${model}_data'}]",
        "data/large_data": "rows: 1",
    }
    options = read(tmp_path, files=files)
    assert [*option_problems(options, Args(words=("model=large", "data.rows=2")))] == []
    assert [*option_problems(options, Args(words=("data.rows=2",)))] != []


def test_search_path_of_the_primary_configuration_starts_at_the_working_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "more" / "db").mkdir(parents=True)
    (tmp_path / "more" / "db" / "mysql.yaml").write_text("port: 1")
    files = {"train": "hydra: {searchpath: ['file://more']}\ndefaults: [{db: mysql}]"}
    options = read(tmp_path, files=files, cwd=str(tmp_path))
    assert [*option_problems(options, Args(words=("db.port=2",)))] == []
    assert [*option_problems(options, Args(words=("db.host=2",)))] != []


@pytest.mark.parametrize(
    "decorator",
    [
        "@hydra.main(config_path=path(), config_name='train')",
        "@other\n@hydra.main(config_path='conf', config_name='train', version_base=None)",
        "@hydra.main('conf', 'train', extra=1)",
    ],
)
def test_decorator_that_is_not_explicit_is_unclear(tmp_path: Path, decorator: str) -> None:
    script = f"import hydra\n{decorator}\ndef main(cfg): ...\nmain()\n"
    assert read(tmp_path, script).is_incomplete


def test_program_that_changes_its_words_is_unclear(tmp_path: Path) -> None:
    script = "import hydra, sys\nsys.argv.append('x=1')\n" + dedent(SCRIPT)
    assert read(tmp_path, script).why == "the program changes `sys.argv`"


@pytest.mark.parametrize(
    "text", ["- a", "a: [", "defaults: {a: b}", "defaults: [{a: b, c: d}]", "a: &a [*a]\n: x"]
)
def test_configuration_that_is_not_understood_is_unclear(tmp_path: Path, text: str) -> None:
    options = read(tmp_path, files=FILES | {"train": text})
    with pytest.raises(Unclear):
        list(option_problems(options, Args(words=("trainer.gpus=1",))))
