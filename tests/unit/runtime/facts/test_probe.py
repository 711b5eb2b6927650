"""The probe itself, with programs in place of nvidia-smi that replay, hang, rave and fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.facts.gpu_host_records import records
from support.python_versions import interpreter
from support.workspace import DEADLINE

from safelaunch.hostfacts import assemble as host
from safelaunch.hostfacts.gpus import gpus
from safelaunch.runtime import processes
from safelaunch.runtime.facts import child, probe
from safelaunch.runtime.facts import interpreter as facts_interpreter
from safelaunch.runtime.facts.libraries import elf_strings

if TYPE_CHECKING:
    from pathlib import Path

# torch's libraries, which a virtual environment may have, take two thirds of a probe's time
BARE_PYTHON = os.path.realpath(sys.executable)
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RECORDS = {record["id"]: record for record in records()}
LINE = "NVIDIA H100 80GB HBM3, GPU-{}, 00000000:{}:00.0, 81559 MiB, {} MiB, 550.90, 9.0, Disabled"
LINES = f"0, {LINE.format('a', '1B', 500)}\n1, {LINE.format('b', '43', 0)}\n"
HEAD = "index, name, uuid, pci.bus_id, memory.total [MiB], memory.used [MiB], driver_version, "
QUERY = f"{HEAD}compute_cap, mig.mode.current\n{LINES}"


class Smi:
    """A folder on PATH with a program in place of nvidia-smi."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def script(self, text: str, name: str = "nvidia-smi") -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def says(self, code: int = 0, **answers: str) -> None:
        """Answer each question (a word of its arguments) with a text, and end with a code."""
        words = {"query": "*--query-gpu*", "xml": "*-x*", "topology": "*topo\\ -m*",
                 "peers": "*-p2p*", "links": "*nvlink*", "apps": "*compute-apps*",
                 "list": "*-L*"}  # fmt: skip
        cases = []
        for name, text in answers.items():
            (self.folder / name).write_text(text)
            cases.append(f"{words[name]}) cat {self.folder / name}; exit {code};;")
        self.script(f'case "$*" in {" ".join(cases)} esac; echo "not asked: $*"; exit 3')


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{SYSTEM}")
    return Smi(tmp_path / "bin")


def ask(**request: Any) -> dict[str, Any]:
    """Return the facts of this machine as a probe tells them."""
    request = {"limit": 4, "python": BARE_PYTHON, **request}
    return host.from_probe("here", probe.probe(request, None))


# -- nvidia-smi ------------------------------------------------------------------------------------


def test_what_nvidia_smi_says_becomes_facts(smi: Smi) -> None:
    topology = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\t0-51\t0\n"
    apps = "pid, gpu_uuid, used_gpu_memory [MiB], process_name\n"
    smi.says(
        query=QUERY,
        topology=topology + "GPU1\tNV18\t X \t0-51\t0\n",
        peers=" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n",
        links="GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n\t Link 0: 26.562 GB/s\n",
        apps=f"{apps}{os.getpid()}, GPU-a, 500 MiB, python train.py, x\n",
    )
    facts = ask()["gpus"]
    assert (facts["count"], facts["driver"], facts["models"]) == (2, "550.90", ["h100-sxm"])
    assert [card["compute_capability"] for card in facts["cards"]] == ["9.0", "9.0"]
    assert facts["topology"]["fabric"] == "nvlink-full"
    assert (facts["peers"]["ok"], facts["peers"]["of"]) == (1, 1)
    assert facts["links"][0]["gb_s"] == 26.562
    (process,) = facts["processes"]
    assert (process["pid"], process["card"], process["used_mib"]) == (os.getpid(), 0, 500)
    assert process["user"] == facts_user()
    assert facts["late"] == {}


def facts_user() -> str:
    import pwd  # noqa: PLC0415 - not on Windows

    return pwd.getpwuid(os.getuid()).pw_name


def test_recorded_xml_tells_slices_and_cuda(smi: Smi) -> None:
    record = next(r for r in RECORDS.values() if r["kind"] == "smi-xml" and "cuda" in r["expected"])
    expected = record["expected"]
    smi.says(query="index, name\n0, x\n", xml=record["text"])
    facts = ask()["gpus"]
    assert facts["cuda"] == expected["cuda"]
    assert facts["driver"] == expected["driver"]


@pytest.mark.parametrize("code", [9, 15, 6, 255])
def test_an_exit_code_is_told_with_the_words(smi: Smi, code: int) -> None:
    words = (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure"
    )
    smi.says(code, query=words + " that the latest NVIDIA driver is installed and running.\n")
    facts = ask()["gpus"]
    assert [trouble["kind"] for trouble in facts["troubles"]] == ["driver-not-running"]
    assert facts["late"]["query"].startswith(f"exit code {code}: NVIDIA-SMI has failed")
    assert facts["count"] is None


def test_a_mismatch_of_driver_and_library_is_named(smi: Smi) -> None:
    smi.says(18, query="Failed to initialize NVML: Driver/library version mismatch\n")
    assert [t["kind"] for t in ask()["gpus"]["troubles"]] == ["driver-library-mismatch"]


def test_no_devices_are_none_and_no_fault(smi: Smi) -> None:
    smi.says(6, query="No devices were found\n")
    facts = ask()["gpus"]
    assert (facts["count"], [t["kind"] for t in facts["troubles"]]) == (0, ["no-devices"])


def test_a_warning_about_one_card_does_not_hide_the_others(smi: Smi) -> None:
    smi.says(14, query=QUERY + "WARNING: infoROM is corrupted at gpu 0000:0B:00.0\n")
    facts = ask()["gpus"]
    assert (facts["count"], facts["late"]) == (2, {})


def test_a_field_that_an_old_driver_does_not_know_is_left_out(smi: Smi) -> None:
    (smi.folder / "rows").write_text("index, name\n0, GeForce GTX 1080\n")
    smi.script(
        'case "$*" in *compute_cap*) echo "Field \\"compute_cap\\" is not a valid field to query.";'
        f" exit 2;; *--query-gpu*) cat {smi.folder}/rows;; esac"
    )
    assert [card["name"] for card in ask()["gpus"]["cards"]] == ["GeForce GTX 1080"]


def test_a_hanging_nvidia_smi_is_given_up_and_all_else_is_told(smi: Smi) -> None:
    smi.script("echo begun; exec sleep 600")
    started = time.monotonic()
    facts = ask(limit=2)
    assert time.monotonic() - started < DEADLINE
    assert facts["gpus"]["late"]["query"] == "it did not end within 2 s"
    assert facts["gpus"]["count"] is None
    assert facts["memory"]["total"] > 0


def test_what_a_hanging_wrapper_has_started_ends_with_it(smi: Smi, tmp_path: Path) -> None:
    smi.script(f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    ask(limit=2)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + DEADLINE
    while processes.start_time(pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_part_that_hangs_is_given_up_and_one_that_fails_says_why(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fails() -> None:
        raise ZeroDivisionError("of all things")

    never = threading.Event()
    child.print_parts({"slow": (never.wait, 0.2), "bad": (fails, 5), "good": (lambda: 7, 5)})
    answer = dict(json.loads(line) for line in capfd.readouterr().out.split("\n") if line)
    never.set()
    assert answer["slow"] == {"skip": "did not answer within 0.2 s"}
    assert answer["bad"] == {"skip": "ZeroDivisionError: of all things"}
    assert answer["good"] == {"value": 7}
    assert "end" in answer


def test_an_output_that_a_descendant_holds_open_is_given_up(smi: Smi) -> None:
    smi.script(f"cat {smi.folder}/rows; setsid sleep 600 & echo $! >{smi.folder}/pid; exit 0")
    (smi.folder / "rows").write_text(QUERY)
    started = time.monotonic()
    facts = ask(limit=2)
    assert time.monotonic() - started < DEADLINE
    os.kill(int((smi.folder / "pid").read_text()), signal.SIGKILL)
    assert facts["gpus"]["count"] == 2  # what was said is still right
    assert "did not end" in facts["gpus"]["late"]["query"]


def test_one_question_that_hangs_takes_no_other_with_it(smi: Smi) -> None:
    (smi.folder / "rows").write_text(QUERY)
    smi.script(f'case "$*" in *topo*) exec sleep 60;; *--query-gpu*) cat {smi.folder}/rows;; esac')
    facts = ask(limit=2)["gpus"]
    assert (facts["count"], facts["topology"]) == (2, None)
    assert facts["late"]["topology"] == "it did not end within 2 s"


def test_garbage_without_end_is_cut(smi: Smi) -> None:
    smi.script("exec cat /dev/urandom")
    facts = ask()["gpus"]
    assert facts["late"]["query"] == "it printed more than 2 MiB"


def test_a_file_that_cannot_be_run_is_no_nvidia_smi(smi: Smi) -> None:
    path = smi.folder / "nvidia-smi"
    path.write_bytes(b"\x7fELF of another machine")
    path.chmod(0o755)
    assert "format" in ask()["gpus"]["late"]["query"].lower()


def test_a_machine_without_a_driver_has_no_cards(smi: Smi) -> None:
    if shutil.which("nvidia-smi") or os.path.exists("/proc/driver/nvidia"):
        pytest.skip("this machine has a driver")
    assert smi.folder.exists()
    facts = ask()["gpus"]
    assert (facts["count"], facts["cards"], facts["troubles"]) == (0, [], [])


def test_cards_are_known_by_the_driver_where_nvidia_smi_hangs() -> None:
    answer = {
        "nvidia_smi": "/usr/bin/nvidia-smi",
        "said": {"query": {"exit": None, "text": "", "why": "it did not end within 10 s"}},
        "proc": {
            "version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May",
            "cards": {"0000:1b:00.0": "Model: \t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-a\n"},
        },
    }
    facts = gpus(answer, {})
    assert (facts["count"], facts["source"], facts["driver"]) == (1, "/proc", "550.90.07")
    assert facts["models"] == ["h100-sxm"]


# -- the rest of the machine -----------------------------------------------------------------------


def test_the_machine_tells_of_itself(tmp_path: Path) -> None:
    facts = ask(cwd=str(tmp_path), python=sys.executable)
    assert facts["system"]["kernel"] == os.uname().release
    assert facts["cores"]["usable"] >= 1
    assert facts["disks"]["cwd"]["path"] == str(tmp_path)
    assert facts["disks"]["cwd"]["free"] > 0
    assert facts["disks"]["shm"]["type"] == "tmpfs"
    assert facts["tools"]["tar"]["version"]
    assert facts["python"]["executable"] == sys.executable
    assert "click" in facts["python"]["packages"]


def test_a_folder_that_is_not_there_is_skipped_with_the_reason(tmp_path: Path) -> None:
    facts = ask(cwd=str(tmp_path / "no"))
    assert facts["skipped"]["disk.cwd"] == f"{tmp_path / 'no'}: No such file or directory"


def test_a_password_in_a_proxy_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy:3128")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    facts = ask()
    assert facts["network"]["proxies"]["https_proxy"] == "http://***@proxy:3128"
    assert "secret" not in str(facts)


def test_configuration_of_nccl_in_the_home_folder_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".nccl.conf").write_text("NCCL_DEBUG=WARN\n")
    assert ask()["nccl_conf"] == {str(tmp_path / ".nccl.conf"): "NCCL_DEBUG=WARN\n"}


def test_facts_survive_whatever_shape_a_probe_has() -> None:
    for answer in ({}, {"parts": 7}, {"parts": {"cards": {"value": []}, "system": 3, "torch": {}}}):
        assert host.from_probe("x", answer)["version"] == host.VERSION


# -- interpreters ----------------------------------------------------------------------------------


def test_an_interpreter_that_is_not_there_is_said_and_the_machine_still_told(
    tmp_path: Path,
) -> None:
    facts = ask(python=str(tmp_path / "python"))
    assert facts["skipped"]["python"] == f"{tmp_path / 'python'}: No such file or directory"
    assert facts["python"] is None
    assert facts["memory"]["total"] > 0


def test_an_interpreter_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "EXTRA", 0.5)
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    answer = probe.probe({"python": str(path), "limit": 1.0}, None)
    assert answer["parts"]["python"]["skip"] == f"{path}: the interpreter did not answer in time"


@pytest.mark.parametrize("version", ["3.6", "3.7"])
def test_a_python_that_is_too_old_is_named(version: str) -> None:
    python = interpreter(version)
    skipped = ask(python=python)["skipped"]["python"]
    assert skipped.startswith(f"{python}: Python {version}.")
    assert skipped.endswith("is older than 3.8")


@pytest.mark.parametrize("version", ["3.8", "3.12", "3.13"])
def test_every_python_from_38_tells_all_parts(version: str) -> None:
    facts = ask(python=interpreter(version))
    assert facts["python"]["version"].startswith(version)
    assert set(facts["skipped"]) <= {"torch", "names"}


# -- packages and libraries ------------------------------------------------------------------------


def test_versions_come_from_the_names_of_metadata(tmp_path: Path) -> None:
    for name in ("torch-2.8.0+cu128.dist-info", "Flash_Attn-2.7.4.post1.dist-info",
                 "ms_swift-3.9.0-py3.11.egg-info", "notes.txt"):  # fmt: skip
        (tmp_path / name).mkdir()
    assert facts_interpreter.packages([str(tmp_path)]) == {
        "torch": "2.8.0+cu128",
        "flash-attn": "2.7.4.post1",
        "ms-swift": "3.9.0",
    }


def test_other_environments_tell_what_they_have(tmp_path: Path) -> None:
    prefix = tmp_path / "venv"
    site = prefix / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text("home = /usr\n")
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to(sys.executable)
    for name in ("torch-2.6.0", "accelerate-1.5.2", "nvidia_nccl_cu12-2.21.5", "six-1.0"):
        (site / f"{name}.dist-info").mkdir()
    (facts,) = [
        e for e in facts_interpreter.environments(str(tmp_path)) if e["prefix"] == str(prefix)
    ]
    assert (facts["kind"], facts["version"]) == ("venv", "3.11")
    assert facts["packages"] == {
        "torch": "2.6.0",
        "accelerate": "1.5.2",
        "nvidia-nccl-cu12": "2.21.5",
    }


def library(path: Path, constants: bytes, code: bytes = b"") -> Path:
    """Write an ELF file with `constants` in .rodata and `code` in .text."""
    names = b"\0.rodata\0.text\0.shstrtab\0"
    offset = 64
    bodies = ((1, constants), (9, code), (15, names))
    headers, at = [struct.pack("<IIQQQQ", 0, 0, 0, 0, 0, 0) + bytes(24)], offset
    for name, body in bodies:
        headers.append(struct.pack("<IIQQQQ", name, 1, 0, 0, at, len(body)) + bytes(24))
        at += len(body)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + bytes(0x18) + struct.pack("<Q", at)
    head = head.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, 4, 3)
    path.write_bytes(head.ljust(offset, b"\0") + b"".join(b for _, b in bodies) + b"".join(headers))
    return path


def soon() -> float:
    return time.monotonic() + 5


def test_names_are_read_off_the_constants_only(tmp_path: Path) -> None:
    inside = b"\0NCCL_IB_DISABLE\0xNCCL_NOT\0TORCH_NCCL_BLOCKING_WAIT\0NCCL_DEBUG set by user\0"
    path = library(tmp_path / "libnccl.so.2", inside, b"NCCL_IN_CODE\0")
    assert elf_strings.names(str(path), soon()) == [
        "NCCL_DEBUG",
        "NCCL_IB_DISABLE",
        "TORCH_NCCL_BLOCKING_WAIT",
    ]


def test_a_name_across_two_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf_strings, "PIECE", 400)
    filled = b"".join(b"NCCL_NAME_%03d\0" % n for n in range(200))
    path = library(tmp_path / "lib.so", b"\0" + filled)
    assert elf_strings.names(str(path), soon()) == [f"NCCL_NAME_{n:03}" for n in range(200)]


def test_the_version_of_nccl_and_its_cuda_are_read_off_the_library(tmp_path: Path) -> None:
    path = library(tmp_path / "libnccl.so.2", b"x\0NCCL version 2.26.2+cuda12.2\0")
    assert elf_strings.nccl_version(str(path), soon()) == ("2.26.2", "12.2")


def test_architectures_are_found_behind_another_constant(tmp_path: Path) -> None:
    # in torch 2.8 the text stands right behind one that has no end of its own
    inside = b"sm_90\0\0std::string ipc_hsm_75 sm_80 sm_90a compute_120\0\0"
    path = library(tmp_path / "libtorch_python.so", inside)
    assert elf_strings.arches(str(path), soon()) == ["sm_75", "sm_80", "sm_90a", "compute_120"]


def test_a_scan_stops_when_its_time_is_over(tmp_path: Path) -> None:
    path = library(tmp_path / "lib.so", b"\0" * 100)
    with pytest.raises(elf_strings.Late):
        elf_strings.names(str(path), time.monotonic() - 1)


@pytest.mark.parametrize(
    "body", [b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200, b"text NCCL_A_B "]
)
def test_a_file_that_is_no_library_does_not_raise(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "lib.so").write_bytes(body)
    assert elf_strings.names(str(tmp_path / "lib.so"), soon()) in ([], ["NCCL_A_B"])


@pytest.mark.train
def test_torch_is_not_imported() -> None:
    facts = ask(python=sys.executable)
    assert facts["torch"]["version"]
    code = "import sys\nfrom safelaunch.runtime.facts import interpreter\n"
    code += "interpreter.torch(); interpreter.names(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.train
def test_deep_imports_it_and_agrees() -> None:
    facts = ask(deep=True, python=sys.executable)
    assert facts["deep"]["version"] == facts["torch"]["version"]
    assert facts["deep"]["cuda"] == facts["torch"]["cuda"]


def test_a_table_that_was_cut_behind_its_head_does_not_say_that_there_are_no_cards(
    smi: Smi,
) -> None:
    smi.says(query=HEAD + "compute_cap, mig.mode.current\n")
    assert ask()["gpus"]["count"] is None


def test_a_machine_whose_nvidia_smi_finds_no_device_has_none(smi: Smi) -> None:
    smi.says(code=6, query="No devices were found\n")
    assert ask()["gpus"]["count"] == 0
