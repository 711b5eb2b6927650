from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safelaunch.lint.fix import apply_edits
from safelaunch.lint.kinds import FileKind, kind_by_name
from safelaunch.lint.run import check
from safelaunch.lint.shell import rules
from safelaunch.runtime.shell import lexer

if TYPE_CHECKING:
    from safelaunch.lint.finding import LintFinding

TOKEN = "hf_" + "aB3dE6gH9jK2" * 3  # put together: no scanner should take it for one


def findings(text: str | bytes, file: str = "train.sh") -> tuple[LintFinding, ...]:
    return check(file, text if isinstance(text, bytes) else text.encode()).findings


def ids(text: str | bytes, file: str = "train.sh") -> list[str]:
    return [f.id for f in findings(text, file)]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")), min_size=1))
def test_quoted_words_come_back(words: list[str]) -> None:
    script = lexer.split(shlex.join(words))
    result = [word.value for command in script.commands for word in command.words]
    assert result == words


@given(st.text(alphabet="ab =$(){}`'\"\\\n<>|&;#-0,\t"))
def test_no_text_is_too_strange(text: str) -> None:
    findings(text)


def test_words_know_their_place() -> None:
    script = lexer.split('a "b\nc" \\\n  d=1 | e # f\ng')
    places = [(w.value, w.line, w.column) for c in script.commands for w in c.words]
    assert places == [("a", 1, 1), ("b\nc", 1, 3), ("d=1", 3, 3), ("e", 3, 9), ("g", 4, 1)]


def test_crlf_and_a_bom_are_found_and_mended() -> None:
    before = b"\xef\xbb\xbf#!/bin/bash\r\necho \xff\r\n"
    assert ids(before) == ["bom", "crlf"]
    assert apply_edits(before, findings(before)) == b"#!/bin/bash\necho \xff\n"


def test_continued_lines_with_crlf_are_one_finding() -> None:
    assert ids("a \\\r\n  --b\r\n") == ["crlf"]


@pytest.mark.parametrize(
    "text",
    [
        "torchrun t.py \\ \n  --lr 1\n",
        "torchrun t.py \\\t\n--lr 1\n",
        "torchrun t.py \\\n\n  --lr 1\n",
        "NPROC_PER_NODE=4 \\\n\nswift sft\n",
        "torchrun t.py \\\n  # --old 1 \\\n  --lr 1\n",
        "torchrun t.py --a \\\n   \n    x\n",
    ],
)
def test_a_broken_continuation_is_found(text: str) -> None:
    assert ids(text) == ["shell-continuation"]


@pytest.mark.parametrize(
    "text",
    [
        "torchrun t.py \\\n  --lr 1\n",
        "torchrun t.py \\\n\necho done\n",
        "torchrun t.py \\\n",
        "echo 'a \\ \nb'\n",
        "# a \\ \n# b\n",
        "cat <<'EOF'\na \\ \n\n  --b\nEOF\n",
    ],
)
def test_a_continuation_that_does_no_harm_is_none(text: str) -> None:
    assert ids(text) == []


def test_blanks_behind_a_backslash_are_mended() -> None:
    before = b"torchrun t.py \\  \n  --lr 1\n"
    assert apply_edits(before, findings(before)) == b"torchrun t.py \\\n  --lr 1\n"


@pytest.mark.parametrize(
    "text",
    [
        "torchrun t.py 2>&1 | tee log\n",
        "torchrun t.py |& tee -a log\n",
        "if true; then\n  python t.py | grep x | tee log\nfi\n",
        "set -o pipefail\nset +o pipefail\npython t.py | tee log\n",
        "A=1 python t.py | tee log",
    ],
)
def test_tee_without_pipefail_is_found(text: str) -> None:
    assert ids(text) == ["shell-tee"]


@pytest.mark.parametrize(
    "text",
    [
        "set -euo pipefail\ntorchrun t.py | tee log\n",
        "#!/bin/bash -o pipefail\ntorchrun t.py | tee log\n",
        "torchrun t.py | tee log\nexit ${PIPESTATUS[0]}\n",
        "echo x | tee log\n",
        "# a | tee b\n",
        "echo 'a | tee b'\n",
        "cat <<EOF | tee conf\na | tee b\nEOF\n",
        "tee log < x\n",
        "a || tee log\n",
    ],
)
def test_tee_that_hides_nothing_is_none(text: str) -> None:
    assert ids(text) == []


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("export CUDA_VISIBLE_DEVICES=0, 1\n", "export CUDA_VISIBLE_DEVICES=0,1\n"),
        ("CUDA_VISIBLE_DEVICES=0, 1, 2 python t.py\n", "CUDA_VISIBLE_DEVICES=0,1,2 python t.py\n"),
        ('export CUDA_VISIBLE_DEVICES="0, 1"\n', 'export CUDA_VISIBLE_DEVICES="0,1"\n'),
    ],
)
def test_blanks_in_a_list_of_devices_are_found_and_mended(text: str, new: str) -> None:
    assert ids(text) == ["shell-devices"]
    assert apply_edits(text.encode(), findings(text)).decode() == new


@pytest.mark.parametrize(
    "text", ["CUDA_VISIBLE_DEVICES=0,1 python 1\n", "export CUDA_VISIBLE_DEVICES=0\n"]
)
def test_a_list_without_blanks_is_none(text: str) -> None:
    assert ids(text) == []


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"export HF_TOKEN={TOKEN}\n", TOKEN),
        (f"huggingface-cli login --token {TOKEN}\n", TOKEN),
        (f"cat <<EOF\n{TOKEN}\nEOF\n", TOKEN),
        ("WANDB_API_KEY=abc123def456 python t.py\n", "abc123def456"),
        ("sshpass -p hunter2x ssh gpu1\n", "hunter2x"),
        ("wandb login " + "0123456789" * 4 + "\n", "0123456789"),
        ("run --api-key=abc123def456\n", "abc123def456"),
        ("git clone https://me:s3cretpw@host/x\n", "s3cretpw"),
        ("x='-----BEGIN RSA PRIVATE KEY-----'\n", "-----BEGIN"),
    ],
)
def test_a_secret_is_found_and_never_shown(text: str, secret: str) -> None:
    (finding,) = findings(text)
    assert finding.id == "secret"
    assert secret not in f"{finding.message} {finding.fix}"


@pytest.mark.parametrize(
    "text",
    [
        "export HF_TOKEN=$TOKEN\n",
        'export HF_TOKEN="$(cat ~/.token)"\n',
        "export OPENAI_API_KEY=EMPTY\n",
        "export WANDB_API_KEY=<your key>\n".replace("<your key>", "your_key_here"),
        "export WANDB_API_KEY=\n",
        "python t.py --pad_token abcdefgh --max-new-token 512\n",
        "echo hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
        "export API_KEY_FILE=/run/key\n",
        "cat_passwd='getent passwd'\n",
    ],
)
def test_a_placeholder_or_reference_is_no_secret(text: str) -> None:
    assert ids(text) == []


@pytest.mark.parametrize("text", [f"token: {TOKEN}\n", "wandb: {api_key: a1b2c3d4e5}\n"])
def test_a_secret_in_yaml_is_found_once(text: str) -> None:
    (finding,) = findings(text, file="train.yaml")
    assert finding.id == "secret"
    assert "a1b2" not in finding.message


@pytest.mark.parametrize(
    "text",
    ["pad_token: <pad12345>\n", "api_key: $KEY12345\n", "token: true\n", "max_token: 9999999\n"],
)
def test_a_key_that_only_sounds_secret_is_none(text: str) -> None:
    assert ids(text, file="train.yaml") == []


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("A=1 accelerate launch t.py", "accelerate"),
        ("/opt/x/bin/torchrun t.py", "torchrun"),
        ("python -m torch.distributed.run t.py", "torchrun"),
        ("NPROC=4 swift sft --x", "swift"),
        ("python3 -m areal.launcher.local x.py", "areal"),
        ("echo", None),
    ],
)
def test_the_launcher_of_a_script_is_known(text: str, launcher: str | None) -> None:
    assert rules.find_launcher(lexer.split(text)) == launcher


@pytest.mark.parametrize(
    ("name", "start", "kind"),
    [
        ("a/b.sh", b"", FileKind.SHELL),
        ("a/run", b"#!/usr/bin/env bash\n", FileKind.SHELL),
        ("a/run", b"\xef\xbb\xbf#!/bin/sh\r\n", FileKind.SHELL),
        ("a/run", b"#!/usr/bin/env python3\n", None),
        ("x.py", b"#!/bin/sh", None),
        ("requirements-dev.txt", b"", FileKind.REQUIREMENTS),
        ("requirements/base.txt", b"", FileKind.REQUIREMENTS),
        ("notes.txt", b"", None),
        ("a\\b.YML", b"", FileKind.YAML),
    ],
)
def test_the_kind_of_a_file_is_told_by_its_name(
    name: str, start: bytes, kind: FileKind | None
) -> None:
    assert kind_by_name(name, start) is kind
