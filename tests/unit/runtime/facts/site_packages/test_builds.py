"""What compiled packages were built for, read from libraries that are made up."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.facts.elf_files import library

from safelaunch.runtime.facts.libraries import elf_dynamic
from safelaunch.runtime.facts.site_packages import builds

if TYPE_CHECKING:
    from pathlib import Path

NEW = "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
OLD = "_ZN3c105ErrorC2ENS_14SourceLocationESs"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a torch, which is all of the interpreter's path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    library(tmp_path / "torch/lib/libc10.so", defined=[NEW])
    library(tmp_path / "torch/lib/libtorch_cpu.so", defined=["_ZN2at3addE"], undefined=[NEW])
    install(tmp_path, "torch", [])
    return tmp_path


def install(site: Path, name: str, files: list[str], *requires: str) -> None:
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    (folder / "METADATA").write_text(f"Name: {name}\n{lines}\n")
    (folder / "RECORD").write_text("".join(f"{file},sha256=x,1\n" for file in files))


def ask(*modules: str) -> Any:
    return builds.builds("/", *modules)


def extension(site: Path, name: str = "flash_attn", **tables: Any) -> None:
    library(site / f"{name}_cuda.so", needs=tables.pop("needs", ["libc10.so"]), **tables)
    install(site, name, [f"{name}_cuda.so", f"{name}/__init__.py"], *tables.pop("requires", ()))


def test_a_symbol_that_torch_lacks_is_named(site: Path) -> None:
    extension(site, undefined=[NEW, OLD, "_ZN2at3addE", "_ZN4mine3fooE", "malloc"])
    [reply] = ask("flash_attn")["libraries"]
    assert (reply["package"], reply["file"]) == ("flash-attn", "flash_attn_cuda.so")
    assert reply["symbols"] == [OLD]


def test_a_symbol_that_may_stay_undefined_is_not(site: Path) -> None:
    extension(site, undefined=[NEW], weak=[OLD])
    assert ask("flash_attn")["libraries"][0]["symbols"] == []


def test_the_runtime_of_cuda_and_the_newest_glibc_are_read(site: Path) -> None:
    versions = ["GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.9", "GLIBCXX_3.4.30", "CXXABI_1.3"]
    extension(site, needs=["libc10.so", "libcudart.so.12"], versions=versions)
    [reply] = ask("flash_attn")["libraries"]
    assert (reply["cuda"], reply["glibc"]) == ("12", "2.34")


def test_a_library_that_does_not_use_torch_is_left_out(site: Path) -> None:
    extension(site, needs=["libc.so.6"], undefined=[OLD])
    assert ask("flash_attn")["libraries"] == []


def test_what_transformers_imports_wherever_it_is_is_read_too(site: Path) -> None:
    extension(site, undefined=[OLD])
    extension(site, "apex", undefined=[OLD])
    install(site, "transformers", [])
    install(site, "trl", [], "transformers")
    assert [reply["package"] for reply in ask("trl")["libraries"]] == ["flash-attn"]
    assert ask("torch")["libraries"] == []


def test_without_torch_nothing_is_compared(site: Path) -> None:
    extension(site, undefined=[OLD])
    (site / "torch/lib/libc10.so").unlink()
    assert ask("flash_attn")["libraries"] == []


def test_the_runtimes_that_a_loader_finds_are_listed(site: Path) -> None:
    library(site / "nvidia/cuda_runtime/lib/libcudart.so.97")
    library(site / "torch/lib/libcudart.so.98")
    assert {"97", "98"} <= set(ask("torch")["runtimes"])


def test_bitsandbytes_says_for_which_cuda_it_has_a_library(site: Path) -> None:
    names = [
        f"bitsandbytes/libbitsandbytes_{n}.so" for n in ("cpu", "cuda118", "cuda126", "rocm62")
    ]
    for name in names:
        library(site / name)
    install(site, "bitsandbytes", names)
    assert ask("bitsandbytes")["bitsandbytes"] == ["118", "126"]


DEEPSPEED = """version='0.17.0'
installed_ops={'cpu_adam': True, 'fused_adam': False}
torch_info={'version': '2.4', 'bf16_support': True, 'cuda_version': '12.1', 'hip_version': '0.0'}
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEEPSPEED, {"torch": "2.4", "cuda": "12.1", "operators": ["cpu_adam"]}),
        (DEEPSPEED.replace("True, 'f", "False, 'f"), None),
        ("installed_ops={", None),
        ("installed_ops=[1]\ntorch_info=3\n", None),
        ("", None),
    ],
)
def test_deepspeed_says_what_its_operators_were_compiled_with(
    site: Path, text: str, expected: dict[str, Any] | None
) -> None:
    (site / "deepspeed").mkdir()
    (site / "deepspeed" / "git_version_info_installed.py").write_text(text)
    install(site, "deepspeed", [])
    assert ask("deepspeed")["deepspeed"] == expected


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 90, b"#!/bin/sh\n"]
)
def test_a_file_that_is_no_library_is_an_error_of_value(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.so").write_bytes(data)
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        elf_dynamic.needs(str(tmp_path / "x.so"))
