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
    assert all(1 <= f.line <= text.count("\n") + 1 for f in findings(text))


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
        "torchrun --nproc_per_node 8 \\ # eight cards\n  t.py\n",
        "torchrun t.py \\  # a comment\n  --lr 1 \\\n  --x\n",
        "torchrun t.py --use_8bit_adam\n  --lr 1 \\\n  --x 2\n",
        "torchrun t.py \\\n  --a 1 # note \\\n  --lr 1\n  --x 2\n",
        "torchrun t.py --a 1\n\n  --lr 1\n",
        "torchrun t.py --a 1\n  --dataset.name=x\n",
        "torchrun t.py \\\\\n  --lr 1\n",
        "python3 -m verl.trainer.main_ppo a.b=1\n    data.train_files=$x \\\n    +c.d=2\n",
        "python t.py --a 1\\\n--lr 2\n",
        "python t.py \\ --lr 1 \\ --x 2\n",
        "if true; then\n  torchrun t.py\n    -x\nfi\n",
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
        "ARGS=(\n  --lr 1\n  # --old\n  --x $(nproc)\n  --y\n)\ntorchrun t.py ${ARGS[@]}\n",
        "ARGS+=(\n  a.b=1\n)\n",
        'case "$1" in\n  -h|--help) echo x;;\n  --lr | -l)\n    shift;;\n  --a=*) b;;\nesac\n',
        "if [[ -f a ||\n  -f b ]]; then\n  c\nfi\n",
        "x=$((\n  -1 + 2))\n",
        "X='\n--lr 1\n'\n",
        "cut -d \\  -f 1 x\n",
        "torchrun a\\\nb.py\n",
        "--lr 1 \\\n--x 2\n",
    ],
)
def test_a_continuation_that_does_no_harm_is_none(text: str) -> None:
    assert ids(text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("torchrun t.py --a\n  --lr 1\n", "end line 1 with"),
        ("torchrun t.py \\\n  --a # x \\\n  --lr 1\n", "remove the comment in line 2"),
        ("torchrun t.py --a\n# x\n--lr 1\n", "move the comment in line 2 up"),
        ("torchrun t.py --a\n\n--lr 1\n", "remove the empty line 2"),
    ],
)
def test_a_missing_backslash_is_said_with_its_line(text: str, line: str) -> None:
    (finding,) = findings(text)
    assert line in str(finding.fix)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("torchrun \u2014nproc_per_node 8 t.py\n", "torchrun --nproc_per_node 8 t.py\n"),
        ("torchrun \u2013m a.b\n", "torchrun -m a.b\n"),
        ("python t.py --name \u201ca\u201d\n", 'python t.py --name "a"\n'),
        ("python\u00a0t.py\n", "python t.py\n"),
    ],
)
def test_a_character_of_a_text_processor_is_found_and_mended(text: str, after: str) -> None:
    assert ids(text) == ["shell-characters"]
    assert apply_edits(text.encode(), findings(text)).decode() == after


@pytest.mark.parametrize(
    "text",
    [
        "echo \u2014done \u201cx\u201d\n",
        'python t.py --prompt "\u201cHi\u201d \u2014 x"\n',
        "# \u2014x\n",
        "cat <<EOF\n\u2014x\nEOF\n",
        "python t.py --name \u00e9t\u00e9\n",
    ],
)
def test_a_character_in_a_text_is_none(text: str) -> None:
    assert ids(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "torchrun t.py --model <your_path>\n",
        "torchrun t.py --model <your_path> \\\n  --data <your data>\n",
        "MODEL=<PATH_OF_MODEL>\n",
        "cd <your_path>\n",
        "python t.py --host http://<node_ip>:8000\n",
        "torchrun t.py \\\n  <your_arguments>\n",
        "<your_command>\n",
    ],
)
def test_a_placeholder_is_found_once(text: str) -> None:
    assert ids(text) == ["shell-placeholder"]


@pytest.mark.parametrize(
    "text",
    [
        "sort <in >out\n",
        "sort <in> out\n",
        "python t.py --stop '<end>' \"<pad>\"\n",
        "cat <<EOF\n<name>\nEOF\n",
        "# <name>\n",
        "diff <(a) <(b)\n",
    ],
)
def test_a_redirection_is_no_placeholder(text: str) -> None:
    assert ids(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "torchrun train.py --nproc_per_node 8\n",
        "accelerate launch train.py --lr 1 --num_processes=4\n",
        "python -m torch.distributed.run train.py --nnodes 2\n",
        "torchrun --nproc_per_node 8 --nproc-per-node=4 train.py\n",
        "torchrun --nproc_per_node train.py\n",
        "torchrun --nproc_per_node --nnodes 1 train.py\n",
        "torchrun --nproc_per_node=eight train.py\n",
        "accelerate launch train.py \\\n  --main_process_port 1\n",
        "torchrun $ARGS train.py --nproc_per_node 8\n",
        "srun -n 2 torchrun train.py --nproc_per_node 8\n",
        "uv run --with x accelerate launch train.py --num_processes 8\n",
    ],
)
def test_a_launcher_flag_that_the_launcher_does_not_get_is_found(text: str) -> None:
    assert ids(text) == ["launch-flag"]


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nproc_per_node 8 train.py --lr 1\n",
        "torchrun --nproc_per_node gpu --nnodes 1:4 train.py\n",
        "torchrun --nproc_per_node $N --nproc_per_nod $M train.py --nnodes 2\n",
        "torchrun --nproc_per_node ${N:-8} -m a.b --x\n",
        "python train.py --nproc_per_node 8\n",
        "accelerate launch --num_processes 2 train.py --num_processes 4\n",
        "accelerate config\n",
        "python -m pkg.train torchrun x.py --nnodes 2\n",
        "accelerate launch train.py --mixed_precision bf16\n",
        "echo torchrun train.py --nnodes 2\n",
        "torchrun\n",
    ],
)
def test_a_flag_in_its_place_is_none(text: str) -> None:
    assert ids(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --master_port 66665 t.py\n",
        "deepspeed --master_port=66665 t.py\n",
        "torchrun --rdzv_endpoint=localhost:70000 t.py\n",
        "export MASTER_PORT=295000\n",
        "MASTER_PORT=66666 torchrun t.py\n",
        "python s.py --server-port 80000\n",
    ],
)
def test_a_port_that_does_not_exist_is_found(text: str) -> None:
    assert ids(text) == ["launch-port"]


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --master_port 29500 t.py\n",
        "PORT=$((66666 + 1))\n",
        "python s.py --report 80000 --port $PORT\n",
        "echo --port 70000\n",
    ],
)
def test_a_port_that_exists_is_none(text: str) -> None:
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
        "export OPENAI_API_KEY=sk-xxxxxx\n",
        "export OPENAI_API_KEY=sk-" + "xxxx" * 8 + "\n",
        "export OPENAI_API_KEY=fakeapikey\n",
        "export WANDB_API_KEY='<your key>'\n",
        "export HF_TOKEN=hf_...\n",
        "huggingface-cli login --token hf_your_token\n",
        "docker build --secret id=KEYS_OF_CI .\n",
        "gantry run --env-secret HF_TOKEN=my_hf_token -- x\n",
        "export GITLAB_TOKEN='glpat-<your-token>'\n",
        "docker run -e JUPYTER_PASSWORD=mypassword x\n",
        "sky launch x.yaml --secret WANDB_API_KEY -y\n",
        "python t.py --initializer_token toy --T-token=0.7\n",
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
        ("srun -n 2 deepspeed t.py", "deepspeed"),
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
